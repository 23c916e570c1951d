"""A call of a subagent that needs approval pauses its parent, at any depth."""

import json

import pytest
from tests.deciding import on, unbound

from treadle import (
    BudgetExhausted,
    Limits,
    Loop,
    Ok,
    OptionError,
    Paused,
    PendingCall,
    RunFinished,
    RunStarted,
    SubagentEvent,
    ToolFinished,
    ToolStarted,
    Usage,
    approve,
    default_stages,
    deny,
    edit,
    stage,
    tool,
)
from treadle.loop.subagent import TASK_SCHEMA
from treadle.stages import dispatch_tools
from treadle.testing import ScriptedLLM, call, calls, check_history

from .children import asked_each, nested, wipe
from .conftest import SYNC, after_model, answers, asking, of, refused, stored


@stage
def asking_later(ctx):
    """A custom stage that requests an approval, from the second iteration on."""
    return asking.fn(ctx) if ctx.iteration > 1 else ctx


class TestPausing:
    """The call of the subagent is pending, so that the parent is paused."""

    def test_the_parent_is_paused_with_the_call_of_the_subagent(self, family, recorded, way):
        loop = family(calls(call("note", "n", n=1), wipe("w")))
        paused = way.run(loop, ScriptedLLM(asked_each()))
        assert isinstance(paused, Paused)
        assert unbound(paused) == (
            PendingCall("k/w", "wipe", {"path": "/"}, "'wipe' needs approval"),
        )
        assert recorded.done == ["note 1"]
        assert (paused.iterations, paused.tool_calls_count) == (1, 0)
        assert answers(paused.messages)["k"].startswith("No result yet: the run waits")

    def test_its_state_is_running_and_its_history_valid(self, family):
        paused = SYNC.run(
            family(calls(call("note", "n", n=1), wipe("w"))), ScriptedLLM(asked_each())
        )
        node = paused.run.nodes[0].tool_calls[0]
        assert (node.status, node.run.status) == ("running", "running")
        check_history(node.run.messages)
        assert answers(node.run.messages)["n"] == "noted 1"

    def test_the_tokens_so_far_are_reported(self, family):
        usage = {"prompt_tokens": 5, "completion_tokens": 5}
        loop = family({"choices": [{"message": calls(wipe("w"))}], "usage": usage})
        outer = {"choices": [{"message": asked_each()}], "usage": usage}
        assert SYNC.run(loop, ScriptedLLM(outer)).usage == Usage(10, 10)

    def test_the_events_of_both_runs_report_the_pause(self, family, way):
        events = []
        loop = family(calls(wipe("w")), on_event=events.append)
        way.run(loop, ScriptedLLM(asked_each()))
        inner = [event.event for event in of(events, SubagentEvent)]
        assert of(inner, RunFinished)[0].stop_reason == "paused"
        assert of(events, RunFinished)[0].stop_reason == "paused"
        (finished,) = of(events, ToolFinished)
        assert (finished.result.status, finished.result.is_error) == ("waiting", False)

    def test_calls_next_to_it_run_and_those_that_need_approval_are_pending_too(
        self, family, recorded
    ):
        """The siblings of a subagent do not wait for it, and a batch has one pause."""
        batch = asked_each("k", more=[call("note", "n", n=5), wipe("w2", "/2"), call("note", n=6)])
        paused = SYNC.run(family(calls(wipe("w"))), ScriptedLLM(batch))
        assert [one.call_id for one in paused.pending] == ["k/w", "w2"]
        assert recorded.done == ["note 5"]
        assert paused.tool_calls_count == 1

    def test_calls_after_it_in_steps_do_not_run(self, family, recorded):
        loop = family(
            calls(wipe("w")), "in", sequential="in_step", limits=Limits(max_parallel_calls=1)
        )
        model = ScriptedLLM(asked_each("k", more=[call("note", "n", n=5)]), "outer")
        paused = SYNC.run(loop, model)
        assert recorded.done == []
        result = SYNC.resume(loop, stored(paused), {"k/w": approve}, model)
        assert recorded.done == ["wipe /", "note 5"]
        assert answers(result.messages) == {"k": "in", "n": "noted 5"}


class TestDeciding:
    """A decision is applied to its call."""

    @pytest.mark.parametrize(
        ("decision", "done", "text"),
        [
            (approve, ["wipe /"], "wiped /"),
            (deny("no"), [], "Not run: a person did not approve this call: no. "),
            (edit({"path": "/x"}), ["wipe /x"], "wiped /x\n\n[note: a person changed"),
        ],
        ids=["approve", "deny", "edit"],
    )
    def test_it_continues_with_the_decision(self, family, recorded, way, decision, done, text):
        loop = family(calls(wipe("w")), "in")
        model = ScriptedLLM(asked_each(), "outer")
        paused = way.run(loop, model)
        result = way.resume(loop, json.dumps(paused.state), {"k/w": decision}, model)
        assert recorded.done == done
        assert answers(result.messages) == {"k": "in"}
        assert (result.iterations, result.tool_calls_count) == (2, 1)
        node = result.run.nodes[0].tool_calls[0]
        assert answers(node.run.messages)["w"].startswith(text)
        assert (node.status, node.run.status) == ("success", "success")
        assert [one.status for one in node.run.nodes] == ["success", "success"]
        assert node.run.run_id == f"{result.run.run_id}/k"

    def test_a_subagent_may_pause_repeatedly(self, family, recorded, way):
        loop = family(*(calls(wipe(f"w{n}", f"/{n}")) for n in range(4)), "in")
        model = ScriptedLLM(asked_each(), "outer")
        result = way.run(loop, model)
        for n in range(4):
            assert [one.call_id for one in result.pending] == [f"k/w{n}"]
            result = way.resume(loop, stored(result), {f"k/w{n}": approve}, model)
        assert answers(result.messages) == {"k": "in"}
        assert recorded.done == ["wipe /0", "wipe /1", "wipe /2", "wipe /3"]

    def test_one_of_several_decisions_in_one_subagent(self, family, recorded, way):
        loop = family(calls(wipe("x", "/x"), call("note", "n", n=1), wipe("y", "/y")), "in")
        model = ScriptedLLM(asked_each(), "outer")
        paused = way.run(loop, model)
        assert [one.call_id for one in paused.pending] == ["k/x", "k/y"]
        paused = way.resume(loop, stored(paused), {"k/x": approve}, model)
        assert [one.call_id for one in paused.pending] == ["k/y"]
        assert recorded.did == ["note 1", "wipe /x"]
        result = way.resume(loop, stored(paused), {"k/y": deny()}, model)
        assert answers(result.messages) == {"k": "in"}
        assert recorded.did == ["note 1", "wipe /x"]

    @pytest.mark.parametrize(("first", "waits"), [("k/w", ["l/w"]), ("l/w", ["k/w"])])
    def test_a_decision_for_one_of_two_subagents(self, family, recorded, first, waits):
        """In the order of the calls: the second waits for the first, and its decision is kept."""
        script = [calls(wipe("w", "/1")), calls(wipe("w", "/2")), "in", "in"]
        loop, model = (
            family(*script, limits=Limits(max_parallel_calls=1)),
            ScriptedLLM(asked_each("k", "l"), "outer"),
        )
        paused = SYNC.run(loop, model, sequential="in_step", limits=Limits(max_parallel_calls=8))
        assert [one.call_id for one in paused.pending] == ["k/w", "l/w"]
        paused = SYNC.resume(loop, stored(paused), {first: approve}, model)
        assert [one.call_id for one in paused.pending] == waits
        result = SYNC.resume(loop, stored(paused), {waits[0]: approve}, model)
        assert answers(result.messages) == {"k": "in", "l": "in"}
        assert recorded.did == ["wipe /1", "wipe /2"]

    def test_a_subagent_without_a_decision_does_not_continue(self, family, recorded):
        """Its events are not repeated, and later calls keep waiting."""
        events = []
        loop = family(calls(wipe("w")), "in", on_event=events.append)
        batch = asked_each("k", more=[wipe("w2", "/2"), call("note", "n", n=1)])
        model = ScriptedLLM(batch, "outer")
        paused = SYNC.run(loop, model)
        events.clear()
        again = SYNC.resume(loop, stored(paused), {"w2": approve}, model)
        assert [one.call_id for one in again.pending] == ["k/w"]
        assert of(events, SubagentEvent) == []
        assert recorded.done == []
        SYNC.resume(loop, stored(again), {"k/w": approve}, model)
        assert recorded.did == ["note 1", "wipe /", "wipe /2"]

    def test_a_pause_of_a_subagent_that_a_stage_ignored_does_not_affect_a_later_one(self, family):
        def ignoring(ctx):
            yield from dispatch_tools.fn(ctx)
            return ctx

        edit = stage(ignoring, provides=dispatch_tools.provides)
        stages = after_model(asking_later)
        stages = [edit if one.name == "dispatch_tools" else one for one in stages]
        loop, model = family(calls(wipe("w")), stages=stages), ScriptedLLM(asked_each(), "outer")
        paused = SYNC.run(loop, model)
        assert [one.call_id for one in paused.pending] == ["q"]
        result = SYNC.resume(loop, stored(paused), {"q": approve}, model)
        assert result.unwrap().content == "outer"

    def test_the_call_of_the_subagent_itself_may_need_approval(self, family, recorded, way):
        loop = family(calls(wipe("w")), "in", behaviour={"requires_approval": True})
        model = ScriptedLLM(asked_each(), "outer")
        paused = way.run(loop, model)
        assert [one.call_id for one in paused.pending] == ["k"]
        paused = way.resume(loop, stored(paused), {"k": edit({"task": "other"})}, model)
        assert [one.call_id for one in paused.pending] == ["k/w"]
        result = way.resume(loop, stored(paused), {"k/w": approve}, model)
        assert answers(result.messages)["k"].startswith("in\n\n[note: a person changed")
        run = result.run.nodes[0].tool_calls[0].run
        assert run.messages[0] == {"role": "user", "content": "other"}

    def test_a_denied_subagent_does_not_start(self, family, way):
        loop = family(behaviour={"requires_approval": True})
        model = ScriptedLLM(asked_each(), "outer")
        result = way.resume(loop, way.run(loop, model), {"k": deny("alone")}, model)
        assert "did not approve this call: alone" in answers(result.messages)["k"]
        assert result.run.nodes[0].tool_calls == []

    def test_the_events_of_a_resumed_subagent_are_nested(self, family, way):
        events = []
        loop = family(calls(wipe("w")), "in", on_event=events.append)
        model = ScriptedLLM(asked_each(), "outer")
        paused = way.run(loop, model)
        events.clear()
        way.resume(loop, stored(paused), {"k/w": approve}, model)
        inner = [event.event for event in of(events, SubagentEvent)]
        assert [event.resumed for event in of(inner, RunStarted)] == [True]
        assert of(inner, RunStarted)[0].agent_name == "kid"
        assert [event.call.id for event in of(inner, ToolStarted)] == ["w"]
        (finished,) = of(events, ToolFinished)
        assert (finished.result.content, finished.result.status) == ("in", "done")


# Approvals within nested subagents, and invalid decisions.


class TestInvalidDecisions:
    """Decisions on calls of a subagent are checked before anything continues."""

    @pytest.mark.parametrize(
        ("decisions", "text"),
        [
            ({"w": approve}, "no call 'w' waits.*waiting calls: k/w@"),
            ({"k": approve}, "no call 'k' waits.*waiting calls: k/w@"),
            ({"k/x": approve}, "no call 'k/x' waits"),
            ({"k/w": 5}, r"decisions\['k/w@\w+'\]: expected approve"),
            ({"k/w": edit({"path": 5})}, "edit: path: expected string, got integer 5"),
        ],
    )
    def test_they_are_refused(self, family, recorded, decisions, text):
        loop = family(calls(wipe("w")), "in")
        model = ScriptedLLM(asked_each(), "outer")
        paused = SYNC.run(loop, model)
        with pytest.raises(OptionError, match=text):
            loop.resume_sync(paused, on(paused, decisions), model)
        assert isinstance(SYNC.resume(loop, paused, {"k/w": approve}, model), Ok)
        assert recorded.done == ["wipe /"]

    def test_a_subagent_that_was_replaced_by_a_function_is_refused(self, family, recorded):
        """A function cannot continue the paused run."""
        paused = SYNC.run(family(calls(wipe("w"))), ScriptedLLM(asked_each()))
        plain = tool({"name": "helper", "input_schema": TASK_SCHEMA})
        loop = Loop(tools=[*recorded.tools, plain], resolve_tool=lambda made: "x")
        refused(loop, paused, text="helper", decisions={"k/w": approve})


class TestDeep:
    """Subagents of subagents."""

    def test_ids_have_the_ids_of_all_outer_calls(self, recorded, way):
        loop, model = nested(recorded.loop(), 3, calls(wipe("w")), calls(wipe("v", "/v")), "three")
        paused = way.run(loop, model)
        assert [one.call_id for one in paused.pending] == ["k0/k1/k2/w"]
        paused = way.resume(loop, json.dumps(paused.state), {"k0/k1/k2/w": approve}, model)
        assert [one.call_id for one in paused.pending] == ["k0/k1/k2/v"]
        result = way.resume(
            loop, json.dumps(paused.state), {"k0/k1/k2/v": edit({"path": "/u"})}, model
        )
        assert answers(result.messages) == {"k0": "answer 1"}
        assert recorded.done == ["wipe /", "wipe /u"]

    def test_limits_apply_at_every_level(self, recorded):
        script = [calls(wipe(f"w{n}", f"/{n}")) for n in range(9)]
        loop, model = nested(recorded.loop(), 2, *script)
        result = SYNC.run(loop, model, limits=Limits(max_requests=6))
        while isinstance(result, Paused):
            decisions = {one.id: approve for one in result.pending}
            result = SYNC.resume(
                loop, stored(result), decisions, model, limits=Limits(max_requests=6)
            )
        assert result.reason == BudgetExhausted("max_requests", 6, 6)
        assert recorded.done == ["wipe /0", "wipe /1", "wipe /2", "wipe /3"]


def test_ids_of_the_model_that_look_like_those_of_a_subagent_are_distinguished(recorded):
    """A model chooses the ids of its calls: `k/w` may be a call of the parent, too."""
    inner = ScriptedLLM(calls(wipe("w", "/inner")), "in")
    subagent = recorded.loop().as_tool("helper", "Helps.", inner)
    loop = Loop(tools=[*recorded.tools, subagent])
    model = ScriptedLLM(asked_each("k", more=[wipe("k/w", "/outer")]), "outer")
    paused = SYNC.run(loop, model)
    ids = [one.id for one in paused.pending]
    assert len(set(ids)) == 2
    by_path = {one.arguments["path"]: one.id for one in paused.pending}
    decisions = {by_path["/inner"]: deny(), by_path["/outer"]: approve}
    result = SYNC.resume(loop, paused, decisions, model)
    assert isinstance(result, Ok)
    assert recorded.done == ["wipe /outer"]


def test_a_step_of_a_recipe_that_needs_approval_is_an_error_of_that_step(recorded):
    """A recipe cannot pause: the step, a subagent, fails, and its result says why."""

    class Resolver:
        def resolve(self, made):
            return "resolved"

        def dispatch_recipe(self, name):
            return (
                (lambda given: {"serial": [("helper", {"task": "t"})]}) if name == "both" else None
            )

    subagent = recorded.loop().as_tool("helper", "Helps.", ScriptedLLM(calls(wipe("w"))))
    loop = Loop(tools=[subagent, {"name": "both"}], resolve_tool=Resolver())
    result = SYNC.run(loop, ScriptedLLM(calls(call("both", "b")), "outer"))
    assert isinstance(result, Ok)
    assert (
        "needs approval, which cannot be requested within a recipe" in answers(result.messages)["b"]
    )
    assert "## Errors" in answers(result.messages)["b"]
    assert recorded.done == []


def test_a_subagent_may_pause_with_nothing_to_decide(recorded, way):
    """A custom stage of the subagent pauses it."""

    def rest(ctx):
        if ctx.memo.get("rested") == ctx.iteration:
            return ctx
        return ctx.remember("rested", ctx.iteration).pause(())

    inner = Loop(tools=recorded.tools, stages=[rest, *default_stages()])
    model = ScriptedLLM(calls(call("note", "n", n=1)), "in")
    loop = Loop(tools=[inner.as_tool("helper", "Helps.", model)])
    outer = ScriptedLLM(asked_each(), "outer")
    result = way.run(loop, outer)
    for _ in range(2):
        assert (result.stop_reason, result.pending) == ("paused", ())
        result = way.resume(loop, stored(result), {}, outer)
    assert answers(result.messages) == {"k": "in"}
    assert recorded.done == ["note 1"]
