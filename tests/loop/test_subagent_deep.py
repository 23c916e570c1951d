"""Approvals within nested subagents, and invalid decisions."""

import json

import pytest
from tests.deciding import on

from treadle import (
    BudgetExhausted,
    Limits,
    Loop,
    Ok,
    OptionError,
    Paused,
    approve,
    default_stages,
    deny,
    edit,
    tool,
)
from treadle.loop.subagent import TASK_SCHEMA
from treadle.testing import ScriptedLLM, call, calls

from .children import asked_each, wipe
from .conftest import SYNC, answers, refused, stored


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

    def nest(self, recorded, depth, *script):
        loop, model = recorded.loop(), ScriptedLLM(*script)
        for level in reversed(range(depth)):
            made = loop.as_tool("helper", "Helps.", model)
            loop = Loop(tools=[made], name=f"level{level}")
            model = ScriptedLLM(asked_each(f"k{level}"), f"answer {level}")
        return loop, model

    def test_ids_have_the_ids_of_all_outer_calls(self, recorded, way):
        loop, model = self.nest(recorded, 3, calls(wipe("w")), calls(wipe("v", "/v")), "three")
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
        loop, model = self.nest(recorded, 2, *script)
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
