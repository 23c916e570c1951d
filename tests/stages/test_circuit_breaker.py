"""A tool that fails with the same error in several iterations in a row ends the run."""

import dataclasses
import time

import anyio
import pytest
from tests.learning import learn

from treadle import Loop, RunHandle, approve
from treadle.effects import drive_sync
from treadle.events import BreakerChanged
from treadle.messages import ToolCall, ToolResult
from treadle.results import CircuitBroken, RunCancelled
from treadle.run_state import RunState
from treadle.stages import circuit_breaker, plan_calls
from treadle.stages._circuit_breaker import refused_calls, report_calls
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import BreakerState, CircuitBreaker, NotRun, Repeats, Tool, deny, fingerprint

from .dispatching import STAGES


@pytest.fixture
def iterate(context):
    """Step iterations through the breaker: each a list of ``(tool, error or None[, status])``."""

    def iterate(*iterations, **options):
        stage, ctx = circuit_breaker(**options) if options else circuit_breaker, context()
        for number, outcomes in enumerate(iterations, 1):
            calls, results = [], {}
            for place, (name, error, *status) in enumerate(outcomes):
                call = ToolCall(f"{number}/{place}", name)
                calls.append(call)
                results[call.id] = ToolResult(call.id, error or "ok", error is not None, *status)
            ctx = stage(ctx.replace(tool_calls=tuple(calls), tool_results=results))
            if ctx.decision is not None:
                return number, ctx.error
        return None

    return iterate


F, G = [("f", "E")], [("g", "E")]
OK = [("f", None)]
OTHER = [("f", "other")]
IDLE = [*sorted({*NotRun} - {NotRun.INVALID, NotRun.BREAKER_OPEN}), "retry", "unknown"]
"""The statuses of results that are neither a success nor a failure of the tool."""


@pytest.mark.parametrize(
    ("iterations", "broken_at"),
    [
        ([F, F, F], 3),
        ([F, F], None),
        ([F, F, OK, F, F], None),
        ([F, F, OK, F, F, F], 6),
        ([F, F, OTHER, F, F], None),
        ([F, OTHER, OTHER, OTHER], 4),
        ([F, F, [("g", None)], F], 4),
        ([F, F, [], F], 4),
        ([F, G, F, G, F], 5),
        ([[*F, ("g", None)]] * 3, 3),
        ([F + OK, F + OK, F + OK], None),
        ([F + OK, F, F], None),
        *(([F, F, [("f", "E", status)], F], 4) for status in IDLE),
        *(([[("f", "E", status)]] * 4, None) for status in IDLE),
        ([[("f", "E", "timeout")]] * 3, 3),
        ([[("f", "E", "invalid")]] * 3, 3),
        ([[("f", "E", "breaker_open")]] * 3, 3),
        ([F + F, F], None),
    ],
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_the_run_ends_if_a_tool_fails_with_the_same_error_often_enough(
    iterate, iterations, broken_at
):
    """The success of other tools changes nothing; its own success, or another error, starts the count again."""
    ended = iterate(*iterations)
    assert (ended[0] if ended else None) == broken_at


def test_the_reason_has_the_exception_of_the_first_failed_call_of_the_tool(context):
    """Also if another call of the tool, or another tool, failed with the same text."""
    calls = tuple(ToolCall(key, name) for key, name in (("a", "g"), ("b", "f"), ("c", "f")))
    results = {call.id: ToolResult(call.id, "E", True) for call in calls}
    ctx = context().replace(tool_calls=calls[1:], tool_results=results)
    errors = {call.id: ValueError(call.id) for call in calls}
    for key, error in errors.items():
        ctx.run.ledger.failures[key] = error
    assert circuit_breaker(threshold=1)(ctx).error.cause is errors["b"]


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_the_threshold_is_an_option_and_the_reason_has_the_count(iterate, threshold):
    reason = CircuitBroken("f", "E", threshold)
    assert iterate(*[F] * 9, threshold=threshold) == (threshold, reason)


def test_a_call_without_a_result_is_ignored(context):
    ctx = context().replace(tool_calls=(ToolCall("a", "f"),))
    assert circuit_breaker(ctx).decision is None


# The shared breaker in the stages: checked before calls are planned, updated with their results.


CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


class Flaky:
    """A tool that works or does not, and notes its calls."""

    def __init__(self):
        self.works, self.made = False, []

    def __call__(self, n):
        self.made.append(n)
        if not self.works:
            raise ValueError("no route")
        return "ok"


@pytest.fixture
def flaky():
    return Flaky()


@pytest.fixture
def answer(context, through, flaky):
    """Apply the stages to a response with some calls, in a run that has a breaker."""
    names = iter(range(1, 100))

    def answer(breaker, *calls, run="run-1", emit=None, **more):
        tools = [Tool("flaky", fn=flaky), Tool("w", fn=lambda n: "ok", parallel_safe=False)]
        ctx = context(
            *[call if isinstance(call, tuple) else (call, {"n": next(names)}) for call in calls],
            tools=more.pop("tools", tools),
            breaker=breaker,
            has_listeners=emit is not None,
            **more,
        )
        state = RunState("bot", run)
        ctx = ctx.evolve(run=dataclasses.replace(ctx.run, state=state))
        ctx.state.new_node(at=0.0).start(0.0)
        return through(ctx, *STAGES, emit=emit)

    return answer


def test_a_call_of_a_tool_with_an_open_breaker_is_answered_and_not_run(answer, flaky):
    breaker = CircuitBreaker(threshold=2)
    for _ in range(2):
        answer(breaker, "flaky")
    ctx = answer(breaker, "flaky", "w")
    assert flaky.made == [1, 2]
    assert ctx.tool_results["c1"].status == "breaker_open"
    assert "'flaky' is unavailable" in ctx.tool_results["c1"].content
    assert "It kept failing with: Error: ValueError: no route" in ctx.tool_results["c1"].content
    assert ctx.tool_results["c2"].content == "ok"


def test_the_failures_of_all_runs_that_share_it_add_up(answer):
    breaker = CircuitBreaker(threshold=3)
    for run in ("one", "two", "three"):
        answer(breaker, "flaky", run=run)
    assert breaker.states == {"flaky": OPEN}


def test_a_successful_probe_of_one_run_closes_it_for_all(answer, flaky):
    breaker = CircuitBreaker(threshold=1, cool_down=0)
    answer(breaker, "flaky", run="one")
    flaky.works = True
    assert answer(breaker, "flaky", run="two").tool_results["c1"].content == "ok"
    assert breaker.states == {}


def test_of_several_calls_in_one_response_one_is_the_probe(answer, flaky):
    breaker = CircuitBreaker(threshold=1, cool_down=60)
    breaker.record("flaky", "x", "E", 0.0)
    flaky.works = True
    ctx = answer(breaker, "flaky", "flaky", "flaky")
    assert flaky.made == [1]
    assert list(ctx.plan.not_run.values()) == [NotRun.BREAKER_OPEN] * 2


def test_a_call_of_the_same_id_in_another_run_is_not_the_probe(context):
    breaker = CircuitBreaker(threshold=1, cool_down=60)
    breaker.record("flaky", "x", "E", 0.0)
    calls = [ToolCall("c1", "flaky")]
    ctx = context(breaker=breaker)
    assert drive_sync(refused_calls(ctx, calls)) == {}
    other = context(breaker=breaker, tool_results={"c1": ToolResult("c1", "ok")})
    state = RunState("bot", "run-2")
    other = other.evolve(run=dataclasses.replace(other.run, state=state))
    drive_sync(report_calls(other, calls))
    drive_sync(report_calls(other.evolve(tool_results={}), calls))
    assert breaker.states == {"flaky": HALF_OPEN}
    drive_sync(report_calls(ctx.replace(tool_results=other.tool_results), calls))
    assert breaker.states == {}


class TestAProbeThatDoesNotRun:
    """It is released, so that the next call becomes the probe."""

    @pytest.fixture
    def breaker(self):
        breaker = CircuitBreaker(threshold=1, cool_down=60)
        breaker.record("flaky", "x", "E", 0.0)
        return breaker

    @pytest.mark.parametrize(
        ("calls", "options", "status"),
        [
            (["w", "flaky"], {}, "deferred"),
            (["flaky"], {"limits": {"max_tool_calls": 0}}, "over_budget"),
            ([("flaky", {"n": 5})], {"known": True}, "no_new_evidence"),
            (["flaky"], {"approvals": {"c1": deny("no")}, "asks": True}, "denied"),
        ],
        ids=["deferred", "over budget", "suppressed", "denied"],
    )
    def test_the_next_call_is_the_probe(self, answer, breaker, flaky, calls, options, status):
        options, repeats = dict(options), Repeats()
        for iteration in (1, 2) if options.pop("known", False) else ():
            learn(repeats, iteration, [(fingerprint("flaky", {"n": 5}), "answered", False)])
        if options.pop("asks", False):
            options["tools"] = [Tool("flaky", fn=flaky, requires_approval=True)]
        ctx = answer(breaker, *calls, repeats=repeats, **options)
        assert ctx.tool_results[ctx.tool_calls[-1].id].status == status
        assert breaker.states == {"flaky": OPEN}
        flaky.works = True
        assert answer(breaker, "flaky").tool_results["c1"].content == "ok"


def test_a_run_that_is_cancelled_reports_the_calls_that_ended_and_releases_the_others(flaky):
    breaker, handle = CircuitBreaker(threshold=1, cool_down=60), RunHandle()
    breaker.record("cancel", "x", "E", 0.0)

    async def cancel():
        handle.cancel()
        await anyio.sleep(60)

    tools = [Tool("flaky", fn=flaky, parallel_safe=False), Tool("cancel", fn=cancel)]
    loop = Loop(tools=tools, breaker=breaker, stages=[plan_calls(sequential="in_step"), ...])
    model = ScriptedLLM(calls(call("flaky", n=1), call("cancel")))
    assert loop.run_sync("Hi", model, handle=handle).reason == RunCancelled()
    assert breaker.states == {"flaky": OPEN, "cancel": OPEN}
    assert breaker.admit("cancel", "next", time.time()).after is HALF_OPEN  # a probe


def test_a_run_that_pauses_reports_the_calls_that_ended_and_not_again_when_it_is_resumed(flaky):
    breaker = CircuitBreaker(threshold=2)
    wipe = Tool("wipe", fn=lambda: "wiped", requires_approval=True)
    loop = Loop(tools=[Tool("flaky", fn=flaky), wipe], breaker=breaker)
    asking = calls(call("flaky", n=1), call("wipe"))
    model = ScriptedLLM(asking, "Done.", asking)
    paused = loop.run_sync("Hi", model)
    assert breaker.states == {"flaky": CLOSED}
    loop.resume_sync(paused, {one.id: approve for one in paused.pending}, model)
    assert breaker.states == {"flaky": CLOSED}
    loop.run_sync("Hi", model)
    assert breaker.states == {"flaky": OPEN}


def test_a_resumed_run_reports_the_calls_that_end_after_the_pause():
    breaker = CircuitBreaker(threshold=1)
    wipe = Tool("wipe", fn=lambda: 1 / 0, requires_approval=True)
    loop = Loop(tools=[wipe], breaker=breaker)
    model = ScriptedLLM(calls(call("wipe")), "Done.")
    paused = loop.run_sync("Hi", model)
    assert breaker.states == {}
    loop.resume_sync(paused, {one.id: approve for one in paused.pending}, model)
    assert breaker.states == {"wipe": OPEN}


def test_a_call_whose_id_was_in_an_exchange_that_a_stage_removed_is_reported(flaky):
    breaker = CircuitBreaker(threshold=2)

    def forget(ctx):
        return ctx.replace(messages=ctx.messages[:1])

    loop = Loop(tools=[Tool("flaky", fn=flaky)], breaker=breaker, stages=[forget, ...])
    model = ScriptedLLM(*[calls(call("flaky", "same id", n=1))] * 2, "Done.")
    loop.run_sync("Hi", model)
    assert (flaky.made, breaker.states) == ([1, 1], {"flaky": OPEN})


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("done", OPEN),
        ("timeout", OPEN),
        ("invalid", None),
        ("cancelled", None),
        ("locked", None),
        ("denied", None),
    ],
)
def test_only_calls_that_ran_to_an_end_change_the_breaker(context, status, state):
    breaker = CircuitBreaker(threshold=1)
    ctx = context(breaker=breaker)
    ctx = ctx.replace(tool_results={"c1": ToolResult("c1", "E", True, status)})
    drive_sync(report_calls(ctx, [ToolCall("c1", "t"), ToolCall("c2", "t")]))
    assert breaker.states.get("t") is state


def changes(events):
    return [(e.iteration, e.tool, e.before, e.after) for e in events if type(e) is BreakerChanged]


def test_an_event_is_emitted_when_it_changes_and_only_then(answer, flaky):
    breaker, events = CircuitBreaker(threshold=2, cool_down=0), []
    for iteration in (1, 2, 3):
        answer(breaker, "flaky", emit=events.append, iteration=iteration)
    flaky.works = True
    answer(breaker, "flaky", emit=events.append, iteration=4)
    answer(breaker, "flaky", emit=events.append, iteration=5)
    assert changes(events) == [
        (2, "flaky", "closed", "open"),
        (3, "flaky", "open", "half_open"),
        (3, "flaky", "half_open", "open"),
        (4, "flaky", "open", "half_open"),
        (4, "flaky", "half_open", "closed"),
    ]


def test_only_the_release_of_the_probe_is_reported(answer):
    breaker, events = CircuitBreaker(threshold=1, cool_down=0), []
    breaker.record("flaky", "x", "E", 0.0)
    answer(breaker, "w", "flaky", "w", emit=events.append, iteration=4)
    assert changes(events) == [
        (4, "flaky", "open", "half_open"),
        (4, "flaky", "half_open", "open"),
    ]


def test_its_changes_are_emitted_without_listeners_too(context):
    """They are logged."""
    breaker, events = CircuitBreaker(threshold=1, cool_down=0), []
    breaker.record("t", "x", "E", 0.0)
    ctx, calls = context(breaker=breaker), [ToolCall("c1", "t")]
    for steps in (refused_calls(ctx, calls), report_calls(ctx, calls)):
        drive_sync(steps, events.append)
    assert breaker.states == {"t": OPEN}
    assert [event.after for event in events] == ["half_open", "open"]
