"""Approvals: what runs before a person has decided, what does not, and what becomes of a decision."""

import pytest

from treadle import (
    Err,
    Loop,
    Ok,
    OptionError,
    Paused,
    PendingCall,
    RunPausedError,
    Usage,
    approve,
    deny,
    edit,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, USER, answers, stored

BATCH = calls(call("note", "a", n=1), call("wipe", "b", path="/"), call("note", "c", n=3))


def paused_at(desk, *script, way=SYNC, **options):
    """Run until a call waits; return the loop, the model and the pause."""
    loop, model = desk.loop(**options), ScriptedLLM(*script, "done")
    return loop, model, way.run(loop, model)


class TestPausing:
    """A call that needs approval puts the run aside."""

    def test_what_stands_before_it_has_run_and_the_rest_has_not(self, desk, way):
        _, model, paused = paused_at(desk, BATCH, way=way)
        assert isinstance(paused, Paused)
        assert desk.done == ["note 1"]
        assert paused.pending == (PendingCall("b", "wipe", {"path": "/"}, "'wipe' needs approval"),)
        assert len(model.sent) == 1

    def test_it_tells_how_the_run_stands(self, desk):
        _, _, paused = paused_at(desk, BATCH)
        assert (paused.stop_reason, paused.output) == ("paused", None)
        assert (paused.iterations, paused.tool_calls_count) == (1, 1)
        assert paused.usage == Usage(is_lower_bound=True)
        assert paused.run.is_running
        assert [node.status for node in paused.run.nodes] == ["running"]

    def test_its_messages_are_a_valid_history_that_says_what_waits(self, desk):
        _, _, paused = paused_at(desk, BATCH)
        assert answers(paused.messages) == {
            "a": "noted 1",
            "b": "Not run yet: the run waits for somebody's approval.",
            "c": "Not run yet: the run waits for somebody's approval.",
        }
        assert paused.run.messages == paused.messages

    def test_there_is_no_answer_to_unwrap(self, desk):
        _, _, paused = paused_at(desk, BATCH)
        with pytest.raises(RunPausedError, match=r"waits for approval of wipe \(b\)$"):
            paused.unwrap()

    def test_a_rule_looks_at_the_arguments(self, desk):
        _, _, paused = paused_at(
            desk, calls(call("pay", amount=100), call("pay", "b", amount=101), call("note", n=1))
        )
        assert desk.done == ["pay 100"]
        assert paused.pending == (PendingCall("b", "pay", {"amount": 101}, "pay 101?"),)

    def test_a_rule_that_raises_lets_a_person_look(self, desk):
        @tool(requires_approval=lambda given: given["nothing"])
        def odd(n: int): ...

        desk.tools.append(odd)
        _, _, paused = paused_at(desk, calls(call("odd", n=1)))
        assert paused.pending[0].question == "the rule for approvals raised KeyError: 'nothing'"

    def test_a_call_that_makes_no_sense_is_not_asked_about(self, desk):
        _, model, result = paused_at(desk, calls(call("wipe", "a", path=5)))
        assert isinstance(result, Ok)
        assert "expected string" in answers(model.sent[1].messages)["a"]

    def test_a_call_that_is_over_budget_is_not_asked_about(self, desk):
        _, _, result = paused_at(desk, calls(call("wipe", "a", path="/")), max_tool_calls=0)
        assert result.stop_reason == "budget_exhausted"

    def test_a_terminal_call_ends_the_run_before_anybody_is_asked(self, desk):
        @tool
        def end(): ...

        desk.tools.append(end)
        script = calls(call("wipe", path="/"), call("end"))
        _, _, result = paused_at(desk, script, output="end")
        assert (result.stop_reason, desk.done) == ("output", [])

    def test_the_same_call_twice_waits_once_and_is_answered_twice(self, desk):
        twice = calls(call("wipe", "a", path="/"), call("wipe", "b", path="/"))
        loop, model, paused = paused_at(desk, twice)
        assert [one.id for one in paused.pending] == ["a"]
        result = SYNC.resume(loop, paused, {"a": approve}, model)
        assert desk.done == ["wipe /"]
        assert answers(result.messages)["b"].endswith("Its result:\nwiped /")

    def test_calls_that_run_one_after_another_stop_at_it_too(self, desk, way):
        loop, model, paused = paused_at(
            desk, BATCH, way=way, sequential="in_step", max_parallel_calls=1
        )
        assert desk.done == ["note 1"]
        way.resume(loop, paused, {"b": approve}, model)
        assert desk.done == ["note 1", "wipe /", "note 3"]


class TestDeciding:
    """What was decided happens, and the model is told of it."""

    def test_approved_it_runs_and_then_the_rest(self, desk, way):
        loop, model, paused = paused_at(desk, BATCH, way=way)
        result = way.resume(loop, stored(paused), {"b": approve}, model)
        assert isinstance(result, Ok)
        assert desk.did == ["note 1", "note 3", "wipe /"]
        assert answers(result.messages) == {"a": "noted 1", "b": "wiped /", "c": "noted 3"}
        assert model.sent[1].messages == result.messages[:-1]
        assert (result.iterations, result.tool_calls_count, model.left) == (2, 3, 0)
        assert result.run.nodes[0].status == "success"
        assert [node.group_id for node in result.run.nodes[0].tool_calls] == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("reason", "told"),
        [
            ("not on a Friday", "Not run: a person did not approve this call: not on a Friday. "),
            ("", "Not run: a person did not approve this call. "),
        ],
    )
    def test_denied_it_does_not_run_and_the_rest_does(self, desk, way, reason, told):
        loop, model, paused = paused_at(desk, BATCH, way=way)
        result = way.resume(loop, paused, {"b": deny(reason)}, model)
        assert desk.did == ["note 1", "note 3"]
        assert answers(model.sent[1].messages)["b"] == f"{told}Do without it, or ask."
        assert (result.tool_calls_count, result.iterations) == (2, 2)
        assert [node.group_id for node in result.run.nodes[0].tool_calls] == ["a", "c"]

    def test_edited_it_runs_with_other_arguments_and_the_model_is_told(self, desk, way):
        loop, model, paused = paused_at(desk, BATCH, way=way)
        result = way.resume(loop, paused, {"b": edit({"path": "/tmp"})}, model)  # noqa: S108
        assert desk.did == ["note 1", "note 3", "wipe /tmp"]
        told = answers(model.sent[1].messages)
        assert told["b"] == (
            "wiped /tmp\n\n[note: a person changed the arguments of this call before it ran, "
            'to: {"path": "/tmp"}]'
        )
        assert (told["a"], told["c"]) == ("noted 1", "noted 3")
        made = result.messages[1]["tool_calls"][1]["function"]
        assert made["arguments"] == '{"path": "/"}'

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"path": 5}, "path: expected string, got integer 5"),
            ({}, "missing required field 'path'"),
            ({"path": "x", "force": True}, "unknown field 'force'"),
        ],
    )
    def test_an_edit_that_the_tool_does_not_take_is_refused(self, desk, arguments, text):
        loop, model, paused = paused_at(desk, BATCH)
        with pytest.raises(OptionError, match=rf"^decisions\['b'\]: edit: .*{text}"):
            loop.resume_sync(paused, {"b": edit(arguments)}, model)
        assert desk.done == ["note 1"]
        SYNC.resume(loop, paused, {"b": approve}, model)  # nothing was used up by that
        assert desk.did[1:] == ["note 3", "wipe /"]

    def test_an_edit_is_the_editors_copy(self, desk):
        given = {"path": "/a"}
        decision = edit(given)
        given["path"] = "/"
        loop, model, paused = paused_at(desk, BATCH)
        SYNC.resume(loop, paused, {"b": decision}, model)
        assert "wipe /a" in desk.done

    def test_a_call_that_a_resolver_runs_can_be_edited_too(self):
        """Its tool is known by name alone, so that any arguments will do."""
        seen = []
        rules = {"name": "act", "input_schema": {"type": "object"}}
        act = tool(rules, requires_approval=True)
        loop = Loop(tools=[act], resolve_tool=lambda made: seen.append(dict(made.input)) or "ok")
        model = ScriptedLLM(calls(call("act", "a", x=1)), "done")
        paused = SYNC.run(loop, model)
        SYNC.resume(loop, stored(paused), {"a": edit({"y": [2]})}, model)
        assert seen == [{"y": [2]}]

    def test_a_call_that_was_denied_may_be_made_again_and_asked_about_again(self, desk):
        again = calls(call("wipe", "b2", path="/"))
        loop, model, paused = paused_at(desk, BATCH, again)
        paused = SYNC.resume(loop, paused, {"b": deny()}, model)
        assert [one.id for one in paused.pending] == ["b2"]
        SYNC.resume(loop, paused, {"b2": approve}, model)
        assert desk.did == ["note 1", "note 3", "wipe /"]

    def test_an_approved_call_that_fails_is_an_ordinary_error(self, desk):
        @tool(requires_approval=True)
        def fail():
            raise ValueError("no")

        desk.tools.append(fail)
        loop, model, paused = paused_at(desk, calls(call("fail", "a")))
        result = SYNC.resume(loop, paused, {"a": approve}, model)
        assert answers(result.messages) == {"a": "Error: ValueError: no"}


class TestSomeDecisions:
    """Where a decision is missing the run is put aside again when it comes to that call."""

    FIVE = calls(
        call("note", "a", n=1),
        call("wipe", "b", path="/b"),
        call("note", "c", n=3),
        call("pay", "d", amount=500),
        call("note", "e", n=5),
    )

    def test_it_goes_on_to_the_next_that_waits(self, desk, way):
        loop, model, paused = paused_at(desk, self.FIVE, way=way)
        assert [one.id for one in paused.pending] == ["b", "d"]
        again = way.resume(loop, stored(paused), {"b": approve}, model)
        assert [one.id for one in again.pending] == ["d"]
        assert desk.did == ["note 1", "note 3", "wipe /b"]
        assert (again.tool_calls_count, again.iterations) == (3, 1)
        assert answers(again.messages)["e"].startswith("Not run yet")
        result = way.resume(loop, stored(again), {"d": deny()}, model)
        assert desk.did == ["note 1", "note 3", "note 5", "wipe /b"]
        assert (result.tool_calls_count, result.iterations, model.left) == (4, 2, 0)

    def test_a_decision_on_a_later_call_is_kept_until_its_turn(self, desk):
        loop, model, paused = paused_at(desk, self.FIVE)
        again = SYNC.resume(loop, stored(paused), {"d": edit({"amount": 7})}, model)
        assert desk.done == ["note 1"]
        assert [one.id for one in again.pending] == ["b"]
        result = SYNC.resume(loop, stored(again), {"b": deny("no")}, model)
        assert desk.did == ["note 1", "note 3", "note 5", "pay 7"]
        assert '{"amount": 7}' in answers(result.messages)["d"]
        assert "did not approve this call: no" in answers(result.messages)["b"]

    def test_no_decision_at_all_changes_nothing(self, desk):
        loop, model, paused = paused_at(desk, self.FIVE)
        again = SYNC.resume(loop, stored(paused), {}, model)
        assert again.pending == paused.pending
        assert desk.done == ["note 1"]
        assert again.state["pause_id"] != paused.state["pause_id"]

    def test_each_iteration_may_pause(self, desk, way):
        more = [calls(call("wipe", f"w{n}", path=f"/{n}")) for n in range(3)]
        loop, model, result = paused_at(desk, *more, way=way)
        for n in range(3):
            result = way.resume(loop, stored(result), {f"w{n}": approve}, model)
        assert isinstance(result, Ok)
        assert desk.done == ["wipe /0", "wipe /1", "wipe /2"]
        assert (result.iterations, result.tool_calls_count) == (4, 3)
        assert len(result.run.nodes) == 4


class TestMistakes:
    """Decisions that cannot be meant are told before anything runs."""

    @pytest.mark.parametrize(
        ("decisions", "text"),
        [
            ({"bb": approve}, r"no call 'bb' waits; did you mean 'b'\?.*those that do are b"),
            ({"a": approve}, "no call 'a' waits"),
            ({"zzz": approve}, "no call 'zzz' waits.*those that do are b"),
            ({"b": approve, "c": approve}, "no call 'c' waits"),
            ({"b": True}, r"^decisions\['b'\]: expected approve, deny\(.*\) or edit.* got bool"),
            ({"b": deny}, r"^decisions\['b'\]: expected approve.* got function"),
            ({"b": "approve"}, r"^decisions\['b'\]: expected approve.* got str"),
            (None, "^decisions: expected .*got NoneType"),
            ([approve], "^decisions: expected .*got list"),
        ],
    )
    def test_they_are_refused_and_use_nothing_up(self, desk, decisions, text):
        loop, model, paused = paused_at(desk, BATCH)
        for use in (loop.resume_sync, loop.resume, loop.resume_stream):
            with pytest.raises(OptionError, match=text):
                use(paused, decisions, model)
        assert desk.done == ["note 1"]
        assert isinstance(SYNC.resume(loop, paused, {"b": approve}, model), Ok)

    def test_a_paused_run_has_a_record_of_its_own(self, desk):
        loop, model, paused = paused_at(desk, BATCH)
        with pytest.raises(OptionError, match="^state: a paused run has a record of its own"):
            loop.resume_sync(paused, {"b": approve}, model, state=paused.run)

    @pytest.mark.parametrize("option", [{"max_iteration": 1}, {"max_iterations": 0}])
    def test_options_are_looked_at_as_for_any_run(self, desk, option):
        loop, model, paused = paused_at(desk, BATCH)
        with pytest.raises(OptionError):
            loop.resume_sync(paused, {"b": approve}, model, **option)


def test_it_works_on_the_class_with_the_tools_as_options(desk):
    model = ScriptedLLM(BATCH, "done")
    paused = Loop.run_sync(USER, model, tools=desk.tools)
    assert isinstance(
        Loop.resume_sync(paused, {"b": approve}, model, tools=desk.tools), (Ok, Err)
    )
    assert desk.did == ["note 1", "note 3", "wipe /"]


def test_the_name_the_id_and_the_nodes_of_the_run_go_on(desk):
    loop, model, paused = paused_at(desk, calls(call("note", n=0)), BATCH, name="bot")
    result = SYNC.resume(loop, stored(paused), {"b": approve}, model)
    assert (result.run.agent_name, result.run.run_id) == ("bot", paused.run.run_id)
    assert [node.step_index for node in result.run.nodes] == [0, 1, 2]
    assert [node.status for node in result.run.nodes] == ["success"] * 3
