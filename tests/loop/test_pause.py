"""Approvals: which calls run before a decision, which do not, and which are pending."""

import pytest
from tests.deciding import on, unbound

from treadle import (
    Ok,
    OptionError,
    Paused,
    PendingCall,
    RunPausedError,
    Usage,
    approve,
    deny,
    tool,
)
from treadle.loop.pause import WAITING
from treadle.testing import call, calls

from .conftest import BATCH, SYNC, answers, paused_at, stored


class TestPausing:
    """A call that needs approval pauses the run."""

    def test_the_calls_before_it_have_run_and_the_rest_has_not(self, recorded, way):
        _, model, paused = paused_at(recorded, BATCH, way=way)
        assert isinstance(paused, Paused)
        assert recorded.done == ["note 1"]
        assert unbound(paused) == (
            PendingCall("b", "wipe", {"path": "/"}, "'wipe' needs approval"),
        )
        assert len(model.sent) == 1

    def test_it_has_the_progress_of_the_run(self, recorded):
        _, _, paused = paused_at(recorded, BATCH)
        assert (paused.stop_reason, paused.output) == ("paused", None)
        assert (paused.iterations, paused.tool_calls_count) == (1, 1)
        assert paused.usage == Usage(is_lower_bound=True)
        assert paused.run.is_running
        assert [node.status for node in paused.run.nodes] == ["running"]

    def test_its_messages_are_a_valid_history_that_marks_the_calls_that_wait(self, recorded):
        _, _, paused = paused_at(recorded, BATCH)
        assert answers(paused.messages) == {
            "a": "noted 1",
            "b": WAITING,
            "c": WAITING,
        }
        assert paused.run.messages == paused.messages

    def test_there_is_no_answer_to_unwrap(self, recorded):
        _, _, paused = paused_at(recorded, BATCH)
        with pytest.raises(RunPausedError, match=r"waits for approval of wipe \(b@\w{16}\)$"):
            paused.unwrap()

    def test_a_rule_may_depend_on_the_arguments(self, recorded):
        _, _, paused = paused_at(
            recorded,
            calls(call("pay", amount=100), call("pay", "b", amount=101), call("note", n=1)),
        )
        assert recorded.done == ["pay 100"]
        assert unbound(paused) == (PendingCall("b", "pay", {"amount": 101}, "pay 101?"),)

    def test_an_invalid_call_is_not_pending(self, recorded):
        _, model, result = paused_at(recorded, calls(call("wipe", "a", path=5)))
        assert isinstance(result, Ok)
        assert "expected string" in answers(model.sent[1].messages)["a"]

    def test_a_call_that_is_over_budget_is_not_pending(self, recorded):
        _, _, result = paused_at(recorded, calls(call("wipe", "a", path="/")), max_tool_calls=0)
        assert result.stop_reason == "budget_exhausted"

    def test_a_terminal_call_ends_the_run_before_an_approval_is_requested(self, recorded):
        @tool
        def end(): ...

        recorded.tools.append(end)
        script = calls(call("wipe", path="/"), call("end"))
        _, _, result = paused_at(recorded, script, output="end")
        assert (result.stop_reason, recorded.done) == ("output", [])

    def test_the_same_call_twice_waits_once_and_is_answered_twice(self, recorded):
        twice = calls(call("wipe", "a", path="/"), call("wipe", "b", path="/"))
        loop, model, paused = paused_at(recorded, twice)
        assert [one.call_id for one in paused.pending] == ["a"]
        result = SYNC.resume(loop, paused, {"a": approve}, model)
        assert recorded.done == ["wipe /"]
        assert answers(result.messages)["b"].endswith("Its result:\nwiped /")


class TestInvalidDecisions:
    """Invalid decisions are refused before anything runs."""

    @pytest.mark.parametrize(
        ("decisions", "text"),
        [
            ({"zzz": approve}, "no call 'zzz' waits.*waiting calls: b@"),
            ({"a": approve}, "no call 'a' waits"),
            ({"b": approve, "c": approve}, "no call 'c' waits"),
            (
                {"b": True},
                r"^decisions\['b@\w+'\]: expected approve, deny\(.*\) or edit.* got bool",
            ),
            ({"b": deny}, r"^decisions\['b@\w+'\]: expected approve.* got function"),
            ({"b": "approve"}, r"^decisions\['b@\w+'\]: expected approve.* got str"),
            (None, "^decisions: expected .*got NoneType"),
            ([approve], "^decisions: expected .*got list"),
        ],
    )
    def test_they_are_refused_and_the_pause_can_still_be_resumed(self, recorded, decisions, text):
        loop, model, paused = paused_at(recorded, BATCH)
        given = on(paused, decisions) if isinstance(decisions, dict) else decisions
        for use in (loop.resume_sync, loop.resume, loop.resume_stream):
            with pytest.raises(OptionError, match=text):
                use(paused, given, model)
        assert recorded.done == ["note 1"]
        assert isinstance(SYNC.resume(loop, paused, {"b": approve}, model), Ok)

    def test_the_option_state_is_refused(self, recorded):
        loop, model, paused = paused_at(recorded, BATCH)
        with pytest.raises(OptionError, match=r"^state: a paused run continues in its own state"):
            loop.resume_sync(paused, on(paused, {"b": approve}), model, state=paused.run)

    @pytest.mark.parametrize("option", [{"max_iteration": 1}, {"max_iterations": 0}])
    def test_options_are_checked_as_for_any_run(self, recorded, option):
        loop, model, paused = paused_at(recorded, BATCH)
        with pytest.raises(OptionError):
            loop.resume_sync(paused, on(paused, {"b": approve}), model, **option)


def test_the_name_the_id_and_the_nodes_of_the_run_are_kept(recorded):
    loop, model, paused = paused_at(recorded, calls(call("note", n=0)), BATCH, name="bot")
    result = SYNC.resume(loop, stored(paused), {"b": approve}, model)
    assert (result.run.agent_name, result.run.run_id) == ("bot", paused.run.run_id)
    assert [node.step_index for node in result.run.nodes] == [0, 1, 2]
    assert [node.status for node in result.run.nodes] == ["success"] * 3
