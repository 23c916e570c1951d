"""What planned calls reserve is given back once for each call that does not run, and for no other."""

import threading

import anyio
import pytest

from treadle import (
    BudgetExhausted,
    Context,
    Err,
    Loop,
    Paused,
    PendingCall,
    RunHandle,
    approve,
    tool,
)
from treadle.effects import Steps
from treadle.events import CallsPlanned, ToolFinished, ToolStarted
from treadle.stages import plan_calls, run_calls
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import Plan, Recipe, RecipeStep

from .conftest import answers


class Seen:
    """A stage that keeps the services of a run, and tools that note what ran; ``limited`` has 2 uses."""

    def __init__(self):
        self.ran = []
        self.run = None

        @tool
        def free(n: int):
            self.ran.append("free")

        @tool(max_uses=2)
        def limited(n: int):
            self.ran.append("limited")

        self.tools = [free, limited]

    def look(self, ctx):
        self.run = self.run or ctx.run
        return ctx

    def pipeline(self, **stages):
        """The default stages, with another one after each of those named, or in its place if it replaces it."""
        made = Loop(tools=self.tools).pipeline.insert_before("ask_model", self.look)
        for place, fn in stages.items():
            before, _, name = place.rpartition("after_")
            made = made.insert_after(name, fn) if _ else made.replace(name, fn)
            assert not before
        return made

    def check(self, result, most=9, **uses):
        """The budget agrees with what ran, which is within the limits."""
        budget = self.run.budget
        assert budget.tool_calls == result.tool_calls_count == len(self.ran) <= most
        ran = {name: self.ran.count(name) for name in {"limited", *uses}}
        assert {name: budget.uses.get(name, 0) for name in ran} == ran | uses
        assert self.ran.count("limited") <= 2


@pytest.fixture
def seen():
    return Seen()


def batches(name, count, size=1):
    """Responses with calls of a tool."""
    return [calls(*(call(name, n=10 * b + n) for n in range(size))) for b in range(count)]


def drop_in_vain(ctx):
    for one in ctx.tool_calls:
        ctx.drop(one, "it is not needed.")
    return ctx


def answer_in_vain(ctx):
    for one in ctx.tool_calls:
        ctx.answer(one, "known")
    return ctx


def edit_in_vain(ctx):
    for one in ctx.tool_calls:
        ctx.edit_call(one, {"n": "no number"})
    return ctx


def replace_in_vain(ctx):
    if ctx.tool_calls:
        ctx.with_response("I will answer.")
    return ctx


def add_in_vain(ctx):
    if ctx.tool_calls:
        ctx.add_call("limited", {"n": 99})
    return ctx


class TestDiscardedContexts:
    """Contexts are values: a stage may discard the one that a verb returned, and nothing has changed."""

    @pytest.mark.parametrize(
        "stage", [drop_in_vain, answer_in_vain, edit_in_vain, replace_in_vain, add_in_vain]
    )
    @pytest.mark.parametrize(("name", "most"), [("free", 3), ("limited", 2)])
    def test_after_the_plan(self, way, seen, stage, name, most):
        loop = Loop(tools=seen.tools, stages=seen.pipeline(after_plan_calls=stage))
        model = ScriptedLLM(*batches(name, 6), "done")
        result = way.run(loop, model, max_tool_calls=3)
        seen.check(result, most)
        assert len(seen.ran) == most

    @pytest.mark.parametrize(("name", "most"), [("free", 3), ("limited", 2)])
    def test_a_plan_that_a_stage_only_looks_at(self, way, seen, name, most):
        def look_ahead(ctx):
            yield from plan_calls(ctx)
            return ctx

        loop = Loop(tools=seen.tools, stages=seen.pipeline(after_loop_decision=look_ahead))
        result = way.run(loop, ScriptedLLM(*batches(name, 6), "done"), max_tool_calls=3)
        seen.check(result, most)
        assert len(seen.ran) == most

    @pytest.mark.parametrize("first", ["all", "one"])
    def test_one_of_two_plans(self, way, seen, first):
        def plan(ctx):
            every = Plan(tuple((one,) for one in ctx.tool_calls))
            plans = {"all": every, "one": Plan(every.batches[:1])}
            chosen = ctx.replace(plan=plans.pop(first))
            ctx.replace(plan=plans.popitem()[1])
            return chosen

        loop = Loop(tools=seen.tools, stages=seen.pipeline(plan_calls=plan))
        result = way.run(loop, ScriptedLLM(*batches("free", 5, 3), "done"), max_tool_calls=4)
        seen.check(result)
        assert len(seen.ran) == 4

    def test_before_a_pause(self, way, seen):
        def ask(ctx: Context) -> Context:
            if "q" in ctx.approvals or not ctx.tool_calls:
                return ctx
            drop_in_vain(add_in_vain(ctx))
            return ctx.pause((PendingCall("q", "ask", {}, "Go on?"),))

        loop = Loop(tools=seen.tools, stages=seen.pipeline(after_plan_calls=ask), max_tool_calls=2)
        paused = way.run(loop, ScriptedLLM(calls(call("free", n=1), call("limited", n=2))))
        assert isinstance(paused, Paused)
        assert (seen.run.budget.tool_calls, seen.run.budget.uses) == (2, {"limited": 1})
        seen.run = None
        result = way.resume(loop, paused, {"q": approve}, ScriptedLLM("done"))
        seen.check(result)
        assert sorted(seen.ran) == ["free", "limited"]


class TestCallsThatDoNotRun:
    def test_a_stage_fails_after_it_planned_calls(self, way, seen):
        def plan_and_fail(ctx: Context) -> Steps[Context]:
            yield from plan_calls(ctx)
            raise ValueError("no")

        loop = Loop(tools=seen.tools, stages=seen.pipeline(after_loop_decision=plan_and_fail))
        result = way.run(loop, ScriptedLLM(*batches("limited", 1, 2)))
        assert isinstance(result, Err)
        seen.check(result, 0)

    def test_the_run_is_cancelled_while_its_plan_is_reported(self, way, seen):
        handle = RunHandle()

        def cancel(event):
            if isinstance(event, CallsPlanned):
                handle.cancel()

        loop = Loop(tools=seen.tools, stages=seen.pipeline(), on_event=cancel)
        result = way.run(loop, ScriptedLLM(*batches("limited", 1, 2)), handle=handle)
        assert result.stop_reason == "cancelled"
        seen.check(result, 0)

    def test_a_dispatcher_leaves_calls_out(self, way, seen):
        """The calls that it left out leave room for others, also in an iteration that was over budget."""

        def dispatch_the_first(ctx):
            return (yield from run_calls(ctx, ctx.plan.calls[:1]))

        loop = Loop(tools=seen.tools, stages=seen.pipeline(dispatch_tools=dispatch_the_first))
        result = way.run(loop, ScriptedLLM(*batches("free", 6, 3)), max_tool_calls=4)
        assert result.reason == BudgetExhausted("max_tool_calls", 4, 4)
        seen.check(result)
        assert len(seen.ran) == 4

    def test_calls_that_wait_for_a_lock_are_cancelled_and_others_are_not_dispatched(
        self, way, seen
    ):
        handle = RunHandle()

        @tool(lock="key")
        async def slow(n: int):
            seen.ran.append("slow")
            await anyio.sleep(9)

        def dispatch_all_but_c(ctx):
            return (yield from run_calls(ctx, [one for one in ctx.plan.calls if one.id != "c"]))

        loop = Loop(
            tools=[slow, *seen.tools],
            stages=seen.pipeline(dispatch_tools=dispatch_all_but_c),
            on_event=cancelling(handle, ToolStarted),
        )
        batch = calls(call("slow", "a", n=1), call("slow", "b", n=2), call("limited", "c", n=3))
        result = way.run(loop, ScriptedLLM(batch, "done"), handle=handle)
        assert seen.ran == ["slow"]
        seen.check(result)

    def test_the_next_batch_is_cancelled_when_a_subagent_has_paused(self, way, seen):
        handle, ask = RunHandle(), tool(lambda: seen.ran.append("ask"), name="ask")
        ask = tool(ask, description="Ask.", requires_approval=True)
        kid = Loop(tools=[ask]).as_tool("kid", "A kid.", ScriptedLLM(calls(call("ask", "x")), "ok"))
        other = tool(seen.tools[0], name="alone", parallel_safe=False)

        def cancel_all(event):
            if isinstance(event, ToolFinished) and event.call.name == "kid":
                handle.cancel_all()

        loop = Loop(tools=[kid, other], stages=seen.pipeline(), sequential="in_step")
        batch = calls(call("kid", "k", task="Go."), call("alone", "z", n=1))
        paused = way.run(loop, ScriptedLLM(batch), handle=handle, on_event=cancel_all)
        assert answers(paused.messages)["z"].startswith("Cancelled")
        assert seen.run.budget.tool_calls == 2  # the subagent, and its call that waits


def cancelling(handle, kind):
    """A listener that cancels all calls soon after the first event of a kind."""

    timers = []

    def on_event(event):
        if isinstance(event, kind) and not timers:
            timers.append(threading.Timer(0.05, handle.cancel_all))
            timers[0].start()

    return on_event


class TestUses:
    """A use is given back only if the call was counted as one."""

    def test_a_tool_of_the_same_name_without_max_uses(self, way, seen):
        """The calls of the outer loop that are dropped give no use back to the subagents."""

        @tool(name="limited")
        def unlimited(n: int):
            """Has no limit."""

        def drop_calls(ctx):
            for one in ctx.tool_calls:
                ctx = ctx.drop(one, "no.") if one.name == "limited" else ctx
            return ctx

        inner = [*batches("limited", 4), "done", *batches("limited", 4), "done"]
        for number, batch in enumerate(inner):
            if isinstance(batch, dict):
                batch["tool_calls"][0]["function"]["arguments"] = f'{{"n": {number}}}'
        kid = Loop(tools=[seen.tools[1]]).as_tool("kid", "A kid.", ScriptedLLM(*inner))
        stages = Loop(tools=[kid]).pipeline.insert_after("plan_calls", drop_calls)
        turn = calls(call("kid", task="Go."))
        model = ScriptedLLM(turn, *batches("limited", 1, 2), turn, "done")
        way.run(Loop(tools=[kid, unlimited], stages=stages), model)
        assert seen.ran == ["limited", "limited"]

    def test_a_stage_replaces_the_tool_of_planned_calls(self, way, seen):
        limited = tool(seen.tools[1], name="free")

        def replace_tool(ctx):
            return ctx.with_tools(add=[limited])

        loop = Loop(tools=seen.tools, stages=seen.pipeline(after_plan_calls=replace_tool))
        result = way.run(loop, ScriptedLLM(*batches("free", 2, 3), "done"))
        assert seen.ran == ["limited", "limited"]
        assert (result.tool_calls_count, seen.run.budget.tool_calls) == (2, 2)
        assert seen.run.budget.uses == {"free": 2}

    def test_a_result_of_a_call_that_was_not_allowed_counts(self, way, seen):
        def run_all(ctx):
            for one in ctx.tool_calls:
                ctx = ctx.answer(one, ctx.tools[one.name].fn(**one.input))
            return ctx

        loop = Loop(tools=seen.tools, stages=seen.pipeline(dispatch_tools=run_all))
        result = way.run(loop, ScriptedLLM(*batches("limited", 1, 3)))
        assert result.stop_reason == "pipeline_failed"
        assert seen.run.budget.uses == {"limited": result.tool_calls_count} == {"limited": 3}

    def test_a_step_of_a_recipe_is_cancelled_while_it_waits_for_a_lock(self, way, seen):
        handle = RunHandle()

        @tool(lock="key")
        async def slow():
            await anyio.sleep(9)

        @tool(lock="key", max_uses=1)
        async def once(n: int):
            seen.ran.append("once")

        class Steps:
            def resolve(self, one):
                return "done"

            def dispatch_recipe(self, name):
                steps = [RecipeStep("slow", {}), RecipeStep("once", {"n": 1})]
                return (lambda _: Recipe(parallel=steps)) if name == "make" else None

        loop = Loop(
            tools=[slow, once, {"name": "make"}],
            resolve_tool=Steps(),
            on_event=cancelling(handle, ToolStarted),
        )
        model = ScriptedLLM(calls(call("make")), calls(call("once", n=2)), "done")
        way.run(loop, model, handle=handle)
        assert seen.ran == ["once"]
