"""How a run stands, folded event by event; at its end, the numbers of its result."""

import pytest
from tests.clocks import SetClock

from treadle import Loop, Paused, approve
from treadle.context import Context, RunServices
from treadle.events import (
    BreakerChanged,
    IterationFinished,
    RunFinished,
    RunStarted,
    ToolStarted,
)
from treadle.limits import Budget, Limits
from treadle.messages import History, Response, ToolCall, Usage
from treadle.reports.live.progress import Phase, RunProgress
from treadle.testing import ScriptedLLM, call, calls
from treadle.testing.chaos import ChaosLLM, ChaosTools
from treadle.tools import CircuitBreaker

from .samples import EVENTS, buy

GO = [{"role": "user", "content": "Go."}]
CALL = ToolCall("a", "search", '{"words": "tea"}', {"words": "tea"})
STARTED = RunStarted(agent_name="shop", run_id="r1", at=100.0, limits=Limits(max_seconds=60))


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def run(clock):
    """A run that has begun."""
    progress = RunProgress(clock)
    progress.update(STARTED)
    return progress


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_any_event_may_come_first(event, clock):
    """Whoever begins to watch in the midst of a run sees what there is to see from there on."""
    progress = RunProgress(clock)
    progress.update(event)
    assert (progress.ending is not None) is isinstance(event, RunFinished)


def test_what_takes_effect_is_counted(run):
    for event in EVENTS:
        if not isinstance(event, (RunStarted, RunFinished)):
            run.update(event)
            run.update(event)
    assert run.counts == {
        "repaired": 4,
        "retried": 4,
        "steered": 2,
        "no new evidence": 2,
        "recalled": 2,
        "parallel cap": 2,
        "over budget": 2,
        "nudged": 2,
        "compacted": 2,
        "not compacted": 2,
    }
    assert run.limit == "budget_exhausted"


def test_breakers_are_told_while_they_are_not_closed(run):
    def changed(after):
        return BreakerChanged(iteration=1, tool="search", before="", after=after)

    run.update(changed("open"))
    assert run.breakers == {"search": "open"}
    run.update(changed("half_open"))
    assert run.breakers == {"search": "half_open"}
    run.update(changed("closed"))
    run.update(changed("closed"))
    assert run.breakers == {}


def test_between_iterations_nothing_is_in_flight(run):
    """A call may be left without an end where it was cancelled."""
    run.update(ToolStarted(iteration=1, call=CALL, at=0.0))
    run.update(next(event for event in EVENTS if isinstance(event, IterationFinished)))
    assert (run.running_calls, run.children, run.phase) == ({}, {}, Phase.WORKING)


def test_a_run_goes_on_after_a_pause_with_what_it_had_used(clock):
    """Its time too: that before the pause counts, that of the pause does not."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    asks = {"choices": [{"message": calls(call("buy", what="tea"))}], "usage": usage}
    loop = Loop(tools=[buy], name="shop")
    first, second = RunProgress(clock), RunProgress(clock)

    paused = loop.run_sync(GO, ScriptedLLM(asks), on_event=first.update)
    assert isinstance(paused, Paused)
    assert (first.ending.stop_reason, first.ending.is_error) == ("paused", False)

    seen = []

    def observe(event):
        second.update(event)
        seen.append((type(event), second.iteration, second.model_calls, second.usage))

    decisions = {pending.id: approve for pending in paused.pending}
    result = loop.resume_sync(paused.state, decisions, ScriptedLLM("Done."), on_event=observe)
    assert seen[0] == (RunStarted, 1, 1, Usage(10, 5))
    assert (second.iteration, second.own_calls) == (result.iterations, 1)
    assert second.run_id == first.run_id


def test_the_time_before_a_pause_counts(clock):
    """The run learns of it with the end of its first iteration."""
    clock.now = 50.0
    progress = RunProgress(clock)
    progress.update(RunStarted(agent_name="", run_id="", at=1_000.0, resumed=True))
    assert progress.since == 50.0

    budget = Budget(Limits())
    budget.started_at = 970.0
    context = Context(History(), {}, Response("x"), RunServices(budget=budget))
    finished = IterationFinished(iteration=1, context=context, at=1_001.0)
    progress.update(finished)
    progress.update(finished)
    assert progress.since == 20.0


class Followed:
    """An observer that compares a run as it is followed with the run itself, iteration by iteration."""

    def __init__(self):
        self.progress = RunProgress(lambda: 0.0)
        self.pairs = []

    def __call__(self, event):
        """Note both; what an observer raises would be caught."""
        run = self.progress
        if isinstance(event, IterationFinished):
            budget, own = event.context.run.budget, event.context.tool_calls_count
            followed = (run.iteration, run.own_calls, run.model_calls, run.tool_calls, run.usage)
            had = (event.iteration, own, budget.requests, budget.tool_calls, budget.usage)
            self.pairs.append((followed, had))
        run.update(event)

    def check(self, result):
        run = self.progress
        for followed, had in self.pairs:
            assert followed == had
        assert run.iteration == result.iterations
        assert run.own_calls == result.tool_calls_count
        assert run.usage == result.usage
        assert run.ending.stop_reason == result.stop_reason
        assert run.ending.is_error is not result_is_fine(result)


def result_is_fine(result):
    return result.stop_reason in {"answered", "output", "finished", "paused"}


@pytest.mark.parametrize("block", range(4))
def test_what_is_followed_is_what_happens_whatever_a_model_does(block):
    """Chaotic models, tools and runs within runs: no number drifts, and the end is that of the result."""
    compared = 0
    for seed in range(block * 15, block * 15 + 15):
        inner = Loop(tools=ChaosTools(seed + 1_000), retry_delay=0, max_retries=0, max_iterations=3)
        child = inner.as_tool("delegate", "Give it away.", ChaosLLM(seed + 1, longest=200))
        loop = Loop(
            tools=[*ChaosTools(seed), child],
            retry_delay=0,
            max_retries=1,
            max_iterations=6,
            max_tool_calls=30,
            breaker=CircuitBreaker(),
            limits=Limits(on_limit="finish" if seed % 2 else "stop"),
        )
        followed = Followed()
        try:
            result = loop.run_sync(
                GO, ChaosLLM(seed, longest=200, most_calls=20), on_event=followed
            )
            followed.check(result)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        compared += len(followed.pairs)
    assert compared
