"""The state of a run: the legal moves in each status, and what it stores."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.errors import TreadleError
from treadle.messages import Usage
from treadle.run_state import (
    IllegalMoveError,
    RunNode,
    RunNodeStatus,
    RunState,
)

INIT, RUNNING = RunNodeStatus.INIT, RunNodeStatus.RUNNING
SUCCESS, FAILED, TIMEOUT = RunNodeStatus.SUCCESS, RunNodeStatus.FAILED, RunNodeStatus.TIMEOUT
EVENTS = ("start", "succeed", "fail", "timeout")
LEGAL_FOR_A_NODE = {
    (INIT, "start"): RUNNING,
    (RUNNING, "succeed"): SUCCESS,
    (RUNNING, "fail"): FAILED,
    (RUNNING, "timeout"): TIMEOUT,
}
LEGAL_FOR_A_RUN = {
    **LEGAL_FOR_A_NODE,
    (SUCCESS, "start"): RUNNING,
    (FAILED, "start"): RUNNING,
    (TIMEOUT, "start"): RUNNING,
}


def node_in(status):
    return RunNode(status=status, step_index=4)


def state_in(status):
    state = RunState()
    state.status = status
    return state


def happen(thing, event):
    arguments = ("why",) if event == "fail" else ()
    getattr(thing, event)(*arguments)


@pytest.mark.parametrize(("status", "event"), list(itertools.product(RunNodeStatus, EVENTS)))
def test_the_moves_of_a_node_are_these_and_no_others(status, event):
    node = node_in(status)
    if (status, event) in LEGAL_FOR_A_NODE:
        happen(node, event)
        assert node.status is LEGAL_FOR_A_NODE[status, event]
    else:
        with pytest.raises(IllegalMoveError):
            happen(node, event)
        assert node.status is status


@pytest.mark.parametrize(("status", "event"), list(itertools.product(RunNodeStatus, EVENTS)))
def test_a_run_may_also_be_started_again_once_it_has_ended(status, event):
    state = state_in(status)
    if (status, event) in LEGAL_FOR_A_RUN:
        happen(state, event)
        assert state.status is LEGAL_FOR_A_RUN[status, event]
    else:
        with pytest.raises(IllegalMoveError):
            happen(state, event)


def test_an_illegal_move_names_the_status_the_event_and_the_legal_moves():
    with pytest.raises(IllegalMoveError) as caught:
        node_in(INIT).succeed()
    assert str(caught.value) == "node 4 is init: it cannot succeed; legal are start"
    with pytest.raises(IllegalMoveError) as caught:
        state_in(RUNNING).start()
    assert str(caught.value) == (
        "the run is running: it cannot start; legal are succeed, fail, timeout"
    )
    with pytest.raises(IllegalMoveError, match=r"legal are nothing$"):
        node_in(SUCCESS).fail("x")
    assert issubclass(IllegalMoveError, TreadleError)


def test_a_node_reads_the_clock_unless_it_is_given_a_time():
    node = RunNode()
    node.start()
    node.fail(ValueError("why"))
    assert node.created_at <= node.started_at <= node.ended_at
    assert node.error == "why"


def test_success_without_usage_keeps_the_recorded_usage():
    node = RunNode()
    node.usage = Usage(1, 2)
    node.start()
    node.succeed()
    assert node.usage == Usage(1, 2)


def test_a_new_state_is_empty_and_has_a_unique_id():
    state = RunState("bot")
    assert (state.status, state.iterations, state.current_node) == (INIT, 0, None)
    assert (state.agent_name, state.messages, state.total_usage) == ("bot", [], Usage())
    assert state.run_id != RunState("bot").run_id
    assert RunState(run_id="mine").run_id == "mine"
    assert RunState(run_id="").run_id == ""


def test_messages_are_added_and_returned_as_copies():
    state = RunState()
    given = {"role": "user", "content": "a"}
    state.add_message(given)
    state.add_messages([{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])
    state.messages[0]["content"] = "broken"
    state.messages.clear()
    given["content"] = "changed"
    assert [message["content"] for message in state.messages] == ["a", "b", "c"]


def test_usage_sums_over_all_calls_and_is_a_lower_bound_once_one_is_unknown():
    state = RunState()
    state.record_usage(Usage(1, 2))
    assert state.total_usage == Usage(1, 2)
    state.record_usage(None)
    state.record_usage(Usage(10, 20))
    assert state.total_usage == Usage(11, 22, is_lower_bound=True)


def test_an_error_is_stored_and_cleared_when_the_run_starts_again():
    state = RunState()
    state.start()
    state.fail(ValueError("why"))
    assert state.error == "why"
    state.start()
    assert state.error is None
    state.fail()
    assert state.error is None


def test_the_repr_has_the_id_the_status_and_the_iterations():
    state = RunState(run_id="r1")
    assert repr(state) == "RunState('r1', init, iterations=0)"


WORDS = st.sampled_from(["", "bot", "\u00e4\u4e2d", 'a "quoted" one'])
TIMES = st.sampled_from([None, 0.0, 1.5, 1.7e9])
USAGES = st.sampled_from(
    [Usage(), Usage(1, 2), Usage(1, 2, 9, 4, 5, is_lower_bound=True), Usage(1, 2, cost=0.1)]
)
METADATA = st.sampled_from([{}, {"tool_signature": "f00d"}, {"n": 1, "nested": {"list": [None]}}])


def nodes(inner):
    """Lists of nodes, that may have nodes and runs of nodes within them.

    Args:
        inner: makes the lists of those.
    """
    return st.lists(
        st.builds(
            RunNode,
            agent_name=WORDS,
            step_index=st.integers(0, 9),
            kind=st.sampled_from(["iteration", "tool"]),
            name=WORDS,
            group_id=st.none() | WORDS,
            status=st.sampled_from(RunNodeStatus),
            created_at=st.sampled_from([0.0, 1.7e9]),
            started_at=TIMES,
            ended_at=TIMES,
            tool_calls=inner,
            usage=st.none() | USAGES,
            error=st.none() | WORDS,
            metadata=METADATA.map(dict),
            run=st.none() | states(inner),
        ),
        max_size=2,
    )


def states(made):
    def make(name, run_id, status, nodes, usage, error, repairs):
        state = RunState(name, run_id)
        state.status, state.nodes, state.total_usage = status, nodes, usage
        state.error, state.repairs = error, tuple(repairs)
        return state

    statuses = st.sampled_from(RunNodeStatus)
    repairs = st.lists(WORDS, max_size=2)
    return st.builds(make, WORDS, WORDS, statuses, made, USAGES, st.none() | WORDS, repairs)


STATES = states(nodes(nodes(st.just(()).map(list))))


@settings(max_examples=60)
@given(STATES)
def test_a_state_with_nested_runs_survives_json(state):
    as_json = state.as_json()
    restored = RunState.from_json(json.loads(json.dumps(as_json)))
    assert restored.as_json() == as_json
    assert repr(restored) == repr(state)
    assert restored.total_usage == state.total_usage
    assert [one.status for one in restored.nodes] == [one.status for one in state.nodes]
    assert isinstance(restored.repairs, tuple)


class TestJSON:
    """`from_json` makes a state like any other, which shares nothing with the original."""

    @pytest.fixture
    def as_json(self):
        state = RunState("bot", "run-1")
        state.start()
        node = state.new_node(at=1.0)
        node.start(2.0)
        call = RunNode("bot", 0, "tool", "sub", "c1", created_at=2.5)
        call.start(3.0)
        call.run = RunState("sub", "run-1/c1")
        call.run.start()
        call.run.new_node(at=3.5).start(4.0)
        node.tool_calls.append(call)
        node.metadata["tool_signature"] = "f00d"
        return json.loads(json.dumps(state.as_json()))

    def test_a_restored_run_can_continue(self, as_json):
        state = RunState.from_json(as_json)
        assert (state.agent_name, state.run_id, state.is_running) == ("bot", "run-1", True)
        call = state.current_node.tool_calls[0]
        call.run.current_node.succeed(at=5.0)
        call.succeed(at=6.0)
        assert (call.duration, call.run.current_node.duration) == (3.0, 1.0)
        state.succeed()
        assert state.is_terminal

    def test_the_messages_are_not_included(self, as_json):
        assert "messages" not in as_json
        assert RunState.from_json(as_json).messages == []

    def test_a_restored_state_shares_nothing_with_its_json_form(self, as_json):
        state = RunState.from_json(as_json)
        state.current_node.tool_calls.clear()
        assert len(as_json["nodes"][0]["tool_calls"]) == 1

    def test_the_json_form_shares_no_lists_with_the_state(self):
        state = RunState()
        state.new_node(at=1.0).metadata["a"] = 1
        as_json = state.as_json()
        as_json["nodes"][0]["metadata"]["a"] = 2
        as_json["nodes"].clear()
        assert state.nodes[0].metadata == {"a": 1}


class UnspeakableError(Exception):
    def __str__(self):
        raise KeyError("no")


def test_an_error_whose_str_raises_is_stored():
    node, state = RunNode(), RunState()
    node.start()
    node.fail(UnspeakableError())
    state.start()
    state.fail(UnspeakableError())
    assert node.error == state.error
    assert "UnspeakableError" in node.error
