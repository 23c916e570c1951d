"""The plan of an iteration: its calls, the answers to calls that do not run, and its events."""

import dataclasses
import itertools

import pytest
from tests.learning import learn

from treadle import Loop, default_stages
from treadle.effects import drive_sync
from treadle.events import CallNotRun, CallsPlanned
from treadle.limits import Budget, Limits
from treadle.stages import parse_tool_calls, plan_calls, validate_calls
from treadle.stages._plan_calls import Planner
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import CircuitBreaker, NotRun, Plan, PlanReason, Tool

from .planning import shown


def make(name, **options):
    return Tool(name, fn=lambda **_: None, **options)


TOOLS = [
    make("p"),
    make("q"),
    make("s", parallel_safe=False),
    make("f", requires_fresh_input=True),
    make("once", max_uses=1),
]


@pytest.fixture
def ready(context, through):
    """A context as it enters the stage; calls of one name differ in a number, unless it is given."""

    def ready(names, numbers=itertools.count, **more):
        more.setdefault("tools", TOOLS)
        calls = [(name, {"n": n}) for name, n in zip(names.split(), numbers(), strict=False)]
        return through(context(*calls, **more), parse_tool_calls, validate_calls)

    return ready


def with_results(ctx, *places):
    """Cache results of some calls, which were repeated, with nothing new since."""
    answered = [(ctx.tool_calls[place].fingerprint, "known", False) for place in places]
    for iteration in (1, 2):
        learn(ctx.run.repeats, iteration, answered)
    return ctx


def same():
    return itertools.repeat(0)


LIMITS = {"max_tool_calls": 1}


def test_without_calls_there_is_no_plan_and_no_event(context):
    ctx, events = context(has_listeners=True), []
    assert drive_sync(plan_calls(ctx), events.append) is ctx
    assert (ctx.plan, ctx.plan.reason, events) == (Plan(), PlanReason.NO_CALLS, [])


def test_calls_that_have_a_result_are_not_planned(ready, through):
    ctx = ready("? p ?")
    answers = dict(ctx.tool_results)
    planned = through(ctx, plan_calls)
    assert (shown(planned.plan), planned.plan.reason) == ("c2", PlanReason.SINGLE_CALL)
    assert planned.tool_results == answers
    ctx = ready("? ?")
    assert through(ctx, plan_calls) is ctx


def test_a_suppressed_call_counts_as_repeated_and_a_deferred_call_does_not(ready, through):
    """The note on repeats counts calls of the model, but not deferred ones, which have to be made again."""
    ctx = with_results(ready("p q s q", same), 0)
    through(ctx, plan_calls)
    known, duplicate, deferred = (ctx.tool_calls[place].fingerprint for place in (0, 1, 2))
    counts = ctx.run.repeats.counts
    assert [counts.get(key, 0) for key in (known, duplicate, deferred)] == [1, 0, 0]
    again = ready("p p", same, repeats=ctx.run.repeats)
    through(again, plan_calls)
    assert counts[known] == 3


class TestASingleCall:
    """Most responses have one call; a fast path plans it with the same result."""

    def options(self):
        breaker = CircuitBreaker(1)
        breaker.record("p", "x", "E", 4e9)
        parent = Budget(Limits(max_tool_calls=0))
        return {
            "nothing": {},
            "its budget": {"limits": {"max_tool_calls": 0}},
            "the budget of the parent": {"budget": Budget(Limits(), parent)},
            "a breaker": {"breaker": breaker},
        }

    @pytest.mark.parametrize(
        ("concern", "runs"),
        [("nothing", True), ("its budget", False), ("the budget of the parent", False), ("a breaker", False)],
    )  # fmt: skip
    def test_budgets_and_breakers_apply_to_it(self, ready, through, concern, runs):
        ctx = through(ready("p", **self.options()[concern]), plan_calls)
        assert bool(ctx.plan.calls) is runs

    @pytest.mark.parametrize("name", ["p", "s", "f", "once", "x"])
    @pytest.mark.parametrize("known", [False, True])
    @pytest.mark.parametrize("dedupe", ["evidence", "strict", "off"])
    def test_the_plan_is_the_same_as_without_the_fast_path(
        self, ready, through, name, known, dedupe
    ):
        contexts = [ready(name, resolve_tool=lambda call: 1, tools=tools(name)) for _ in "ab"]
        if known:
            contexts = [with_results(ctx, 0) for ctx in contexts]
        short = through(contexts[0], plan_calls(dedupe=dedupe))
        contexts[1].run.repeats.mode = dedupe
        long = Planner(contexts[1], in_step=False)
        assert short.plan == long.plan(contexts[1].tool_calls, {})
        assert dict(short.tool_results) == long.results
        budgets = [(ctx.run.budget.tool_calls, ctx.run.budget.uses) for ctx in contexts]
        assert budgets[0] == budgets[1]


def tools(name):
    return [] if name == "x" else TOOLS


class TestEvents:
    """Events say what was planned, and what was suppressed or deferred."""

    @pytest.fixture
    def emitted(self, through):
        def emitted(ctx):
            events = []
            ctx = ctx.evolve(run=dataclasses.replace(ctx.run, has_listeners=True))
            through(ctx, plan_calls, emit=events.append)
            return events

        return emitted

    def test_a_plan_has_its_batches_and_each_call_that_does_not_run_is_reported_with_the_reason(
        self, emitted, ready
    ):
        ctx = with_results(ready("p q q once once p s", same, iteration=4, limits=LIMITS), 0)
        ctx.run.budget.uses["once"] = 1
        planned, *more = emitted(ctx)
        not_run = {
            "c1": NotRun.NO_NEW_EVIDENCE,
            "c3": NotRun.DUPLICATE_IN_BATCH,
            "c4": NotRun.MAX_USES,
            "c5": NotRun.MAX_USES,
            "c6": NotRun.NO_NEW_EVIDENCE,
            "c7": NotRun.OVER_BUDGET,
        }
        assert planned == CallsPlanned(
            iteration=4, reason=PlanReason.OVER_BUDGET, batches=(("c2",),), not_run=not_run
        )
        calls = {made.id: made for made in ctx.tool_calls}
        assert more == [
            CallNotRun(iteration=4, call=calls[key], reason=why) for key, why in not_run.items()
        ]

    @pytest.mark.parametrize(
        ("names", "reason", "batches"),
        [("? p", PlanReason.SINGLE_CALL, (("c2",),)), ("? ?", PlanReason.NO_CALLS, ())],
    )
    def test_a_call_that_was_answered_before_is_not_reported(
        self, emitted, ready, names, reason, batches
    ):
        assert emitted(ready(names, iteration=4)) == [
            CallsPlanned(iteration=4, reason=reason, batches=batches, not_run={})
        ]

    @pytest.mark.parametrize(
        ("before", "planned"),
        [("dispatch_tools", 2), ("inject_results", 1), ("budget_guard", 1)],
    )
    @pytest.mark.parametrize("calls_made", [1, 2])
    def test_a_stage_that_plans_again_emits_a_plan_unless_the_calls_are_over(
        self, before, planned, calls_made
    ):
        def again(ctx):
            yield from plan_calls(ctx)
            return ctx

        events = []
        script = calls(*[call("look", f"c{n}", at=5) for n in range(calls_made)]), "Done."
        stages = Loop().pipeline.insert_before(before, again)
        loop = Loop(tools=[Tool("look", fn=lambda at: at)], stages=stages, on_event=events.append)
        loop.run_sync("Hi", ScriptedLLM(*script))
        assert len([one for one in events if isinstance(one, CallsPlanned)]) == planned


def test_without_validation_calls_are_compared_by_their_text():
    """A custom list of stages may leave it out."""
    stages = [one for one in default_stages() if one.name != "validate_calls"]
    ran = []
    model = ScriptedLLM(
        calls(call("look", "a", at=1), call("look", "b", at=2)),
        calls(call("look", "c", at=3)),
        calls(call("look", "d", at=3)),
        calls(call("look", "e", at=3)),
        "done",
    )
    look = Tool("look", "", {"type": "object"})
    result = Loop.run_sync(
        [{"role": "user", "content": "x"}],
        model,
        tools=[look],
        stages=stages,
        resolve_tool=lambda given: ran.append(given.arguments) or "seen",
    )
    assert ran == ['{"at": 1}', '{"at": 2}', '{"at": 3}', '{"at": 3}']  # the fifth is skipped
    assert result.unwrap().content == "done"
