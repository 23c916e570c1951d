"""The state of a run: the legal moves in each status, and what it stores."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.messages import Usage
from treadle.run_state import IllegalMoveError, RunNode, RunNodeStatus, RunState

INIT, RUNNING = RunNodeStatus.INIT, RunNodeStatus.RUNNING
SUCCESS, FAILED, TIMEOUT = RunNodeStatus.SUCCESS, RunNodeStatus.FAILED, RunNodeStatus.TIMEOUT
EVENTS = ("start", "succeed", "fail", "timeout")
LEGAL_FOR_A_NODE = {
    (INIT, "start"): RUNNING,
    (RUNNING, "succeed"): SUCCESS,
    (RUNNING, "fail"): FAILED,
    (RUNNING, "timeout"): TIMEOUT,
}
ENDED = (SUCCESS, FAILED, TIMEOUT)
LEGAL_FOR_A_RUN = LEGAL_FOR_A_NODE | {(status, "start"): RUNNING for status in ENDED}


def machine_in(kind, status):
    """A node or a run in a status."""
    made = kind()
    made.status = status
    return made


def happen(thing, event):
    getattr(thing, event)(*(("why",) if event == "fail" else ()))


@pytest.mark.parametrize(
    ("kind", "legal"), [(RunNode, LEGAL_FOR_A_NODE), (RunState, LEGAL_FOR_A_RUN)]
)
@pytest.mark.parametrize(("status", "event"), list(itertools.product(RunNodeStatus, EVENTS)))
def test_the_moves_are_these_and_no_others(kind, legal, status, event):
    """A run may also be started again once it has ended."""
    thing = machine_in(kind, status)
    if (status, event) in legal:
        happen(thing, event)
    else:
        with pytest.raises(IllegalMoveError):
            happen(thing, event)
    assert thing.status is legal.get((status, event), status)


@pytest.mark.parametrize(
    ("kind", "status", "event", "text"),
    [
        (RunNode, INIT, "succeed", "node 0 is init: it cannot succeed"),
        (RunNode, SUCCESS, "fail", "node 0 is success: it cannot fail"),
        (RunState, RUNNING, "start", "the run is running: it cannot start"),
    ],
)
def test_an_illegal_move_names_the_status_and_the_event(kind, status, event, text):
    with pytest.raises(IllegalMoveError, match=f"^{text}$"):
        happen(machine_in(kind, status), event)


class UnspeakableError(Exception):
    def __str__(self):
        raise KeyError("no")


@pytest.mark.parametrize("error", [ValueError("why"), UnspeakableError()])
def test_a_node_reads_the_clock_unless_it_is_given_a_time_and_stores_its_error(error):
    node = RunNode()
    node.start()
    node.fail(error)
    assert node.created_at <= node.started_at <= node.ended_at
    assert ("why" if isinstance(error, ValueError) else "UnspeakableError") in node.error


def test_success_without_usage_keeps_the_recorded_usage():
    node = RunNode(usage=Usage(1, 2))
    node.start()
    node.succeed()
    assert node.usage == Usage(1, 2)


def test_a_new_state_is_empty_and_has_a_unique_id():
    state = RunState("bot")
    assert (state.status, state.iterations, state.current_node) == (INIT, 0, None)
    assert (state.agent_name, state.messages, state.total_usage) == ("bot", [], Usage())
    assert state.run_id != RunState("bot").run_id
    assert [RunState(run_id=given).run_id for given in ("mine", "")] == ["mine", ""]
    assert repr(RunState(run_id="r1")) == "RunState('r1', init, iterations=0)"


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
    for usage in (Usage(1, 2), None, Usage(10, 20)):
        state.record_usage(usage)
    assert state.total_usage == Usage(11, 22, is_lower_bound=True)


@pytest.mark.parametrize("error", [ValueError("why"), UnspeakableError()])
def test_an_error_is_stored_and_cleared_when_the_run_starts_again(error):
    state = RunState()
    state.start()
    state.fail(error)
    assert ("why" if isinstance(error, ValueError) else "UnspeakableError") in state.error
    state.start()
    assert state.error is None
    state.fail()
    assert state.error is None


WORDS = st.sampled_from(["", "bot", "\u00e4\u4e2d", 'a "quoted" one'])
TIMES = st.sampled_from([0.0, 1.5, 1.7e9])
USAGES = st.sampled_from(
    [Usage(), Usage(1, 2), Usage(1, 2, 9, 4, 5, is_lower_bound=True), Usage(1, 2, cost=0.1)]
)
METADATA = st.sampled_from([{}, {"tool_signature": "f00d"}, {"n": 1, "nested": {"list": [None]}}])
STATUSES = st.sampled_from(RunNodeStatus)


def nodes(inner):
    """Lists of nodes, that may have ``inner`` nodes and runs of these within them."""
    fields = {
        "agent_name": WORDS, "step_index": st.integers(0, 9), "name": WORDS, "status": STATUSES,
        "kind": st.sampled_from(["iteration", "tool"]), "group_id": st.none() | WORDS,
        "created_at": TIMES, "started_at": st.none() | TIMES, "ended_at": st.none() | TIMES,
        "tool_calls": inner, "usage": st.none() | USAGES, "error": st.none() | WORDS,
        "metadata": METADATA.map(dict), "run": st.none() | states(inner),
    }  # fmt: skip
    return st.lists(st.builds(RunNode, **fields), max_size=2)


def states(made):
    fields = {"nodes": made, "total_usage": USAGES, "error": st.none() | WORDS}
    repairs = st.lists(WORDS, max_size=2).map(tuple)
    return st.builds(RunState, WORDS, WORDS, STATUSES, repairs=repairs, **fields)


@settings(max_examples=60)
@given(states(nodes(nodes(st.just(()).map(list)))))
def test_a_state_with_nested_runs_survives_json_without_its_messages(state):
    state.add_message({"role": "user", "content": "a"})
    as_json = state.as_json()
    restored = RunState.from_json(json.loads(json.dumps(as_json)))
    assert restored.as_json() == as_json
    assert (repr(restored), restored.messages) == (repr(state), [])
    assert restored.total_usage == state.total_usage
    assert [one.status for one in restored.nodes] == [one.status for one in state.nodes]
    assert isinstance(restored.repairs, tuple)


def test_a_restored_run_can_continue_and_shares_nothing_with_its_json_form():
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
    node.metadata["a"] = 1
    as_json = state.as_json()
    as_json["nodes"][0]["metadata"]["a"] = 2
    assert node.metadata == {"a": 1}
    state = RunState.from_json(as_json)
    assert (state.agent_name, state.run_id, state.is_running) == ("bot", "run-1", True)
    call = state.current_node.tool_calls.pop()
    assert len(as_json["nodes"][0]["tool_calls"]) == 1
    call.run.current_node.succeed(at=5.0)
    call.succeed(at=6.0)
    assert (call.duration, call.run.current_node.duration) == (3.0, 1.0)
    state.succeed()
    assert state.is_terminal
