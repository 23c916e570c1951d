"""Parity with Orbiter: the run state and its nodes."""

import time

import pytest

from treadle import RunNode, RunNodeStatus, RunState, Usage


def test_the_five_status_values():
    """init, running, success, failed, timeout."""
    values = [status.value for status in RunNodeStatus]
    assert values == ["init", "running", "success", "failed", "timeout"]


def test_a_new_node_has_the_fields_and_defaults_of_orbiter():
    """agent_name, step_index=0, status, group_id, times, tool_calls, usage, error, metadata."""
    before = time.time()
    node = RunNode("clerk")
    assert (node.agent_name, node.step_index, node.status) == ("clerk", 0, RunNodeStatus.INIT)
    assert (node.group_id, node.usage, node.error) == (None, None, None)
    assert before <= node.created_at <= time.time()
    assert (node.started_at, node.ended_at, node.duration) == (None, None, None)
    assert (node.tool_calls, node.metadata) == ([], {})
    assert RunNode("clerk").metadata is not node.metadata


def test_a_node_starts_and_succeeds_with_its_usage():
    """The usage may come with the success; the duration is known once it has ended."""
    node = RunNode("clerk")
    node.start(at=10.0)
    assert (node.status, node.started_at, node.duration) == (RunNodeStatus.RUNNING, 10.0, None)
    node.succeed(Usage(3, 4), at=12.5)
    assert (node.status, node.ended_at, node.duration) == (RunNodeStatus.SUCCESS, 12.5, 2.5)
    assert node.usage.total_tokens == 7


def test_a_node_fails_with_an_error_or_times_out():
    """Both are ends; a failure keeps its error."""
    failed, late = RunNode(), RunNode()
    failed.start()
    failed.fail("no such page")
    late.start()
    late.timeout()
    assert (failed.status, failed.error) == (RunNodeStatus.FAILED, "no such page")
    assert late.status is RunNodeStatus.TIMEOUT
    assert failed.duration >= 0
    assert late.duration >= 0


def test_a_new_state_has_the_fields_and_defaults_of_orbiter():
    """agent_name, status, messages, nodes, iterations, total_usage; no current node."""
    state = RunState("clerk")
    assert (state.agent_name, state.status) == ("clerk", RunNodeStatus.INIT)
    assert (state.messages, state.nodes, state.iterations) == ([], [], 0)
    assert state.total_usage == Usage()
    assert (state.current_node, state.is_running, state.is_terminal) == (None, False, False)


def test_a_state_collects_messages_nodes_and_usage():
    """Nodes count as iterations, usage adds up, messages keep their order."""
    state = RunState("clerk")
    state.start()
    state.add_message({"role": "user", "content": "a"})
    state.add_messages([{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])
    first = state.new_node()
    second = state.new_node("temp", group_id="g")
    state.record_usage(Usage(1, 2))
    state.record_usage(Usage(10, 20))
    assert [message["content"] for message in state.messages] == ["a", "b", "c"]
    assert (state.nodes, state.iterations, state.current_node) == ([first, second], 2, second)
    assert (first.agent_name, first.step_index, first.group_id) == ("clerk", 0, None)
    assert (second.agent_name, second.step_index, second.group_id) == ("temp", 1, "g")
    assert state.total_usage == Usage(11, 22)
    assert (state.is_running, state.is_terminal) == (True, False)


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [
        (RunState.succeed, RunNodeStatus.SUCCESS, None),
        (RunState.fail, RunNodeStatus.FAILED, None),
        (lambda state: state.fail("lost"), RunNodeStatus.FAILED, "lost"),
        (RunState.timeout, RunNodeStatus.TIMEOUT, None),
    ],
)
def test_a_state_ends_in_one_of_three_ways(end, status, error):
    """Success, failure (with its error, if one is given) and timeout are terminal."""
    state = RunState()
    state.start()
    end(state)
    assert (state.status, state.error) == (status, error)
    assert (state.is_running, state.is_terminal) == (False, True)
