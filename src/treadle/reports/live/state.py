"""How a run stands, as its events tell it: plain numbers and names, made to be drawn while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.events import (
    BreakerChanged,
    CallDeferred,
    CallRefused,
    CallSuppressed,
    Event,
    FirstChunk,
    HistoryRepaired,
    IterationFinished,
    IterationStarted,
    LimitReached,
    ModelFailed,
    ModelResponded,
    ModelRetried,
    RepeatWarned,
    RunFinished,
    RunStarted,
    SubagentEvent,
    TextDelta,
    ToolFinished,
    ToolRetried,
    ToolStarted,
    UserMessageAdded,
)
from treadle.limits import Limits
from treadle.messages import Usage
from treadle.reports.live.parts import Ending, Flight, Phase, Retry
from treadle.run_state import RunState

Clock = Callable[[], float]
"""Seconds that never go back."""


class RunProgress:
    """How one run stands.

    What runs within it have used counts for it too, as it does for its limits. Where an iteration ends, the
    numbers are those that the run itself has.

    Args:
        clock: tells the time.

    Attributes:
        name: whose run it is; empty where the loop has no name.
        run_id: its id.
        limits: how much it may take.
        state: the record of the run, while it goes on; it tells which run this is.
        since: the clock's time at which it began, earlier by what it had taken before a pause.
        iteration: the number of the iteration.
        phase: what it is at.
        phase_since: the clock's time at which that began.
        characters: of the streamed text of this answer so far.
        retry: what the model waits for; None where it is not to be asked again.
        flights: the calls in flight, by id.
        children: the runs that calls in flight are made of, by the id of the call.
        model_calls: iterations that were begun, of all runs within it too.
        own_calls: tool calls of its own that were begun.
        tool_calls: the same of all runs within it too.
        usage: the tokens so far, of all runs within it too.
        counts: how often guards and other things took effect, by what one calls it.
        breakers: the tools whose breaker is not closed, with how it is.
        limit: the stop reason of the limit or guard that ends it.
        ending: how it ended; None while it goes on.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.name, self.run_id = "", ""
        self.limits = Limits()
        self.state: RunState | None = None
        self.since = self.phase_since = clock()
        self.iteration = self.characters = 0
        self.phase = Phase.STARTING
        self.retry: Retry | None = None
        self.flights: dict[str, Flight] = {}
        self.children: dict[str, RunProgress] = {}
        self.model_calls = self.own_calls = self.tool_calls = 0
        self.usage = Usage()
        self.counts: dict[str, int] = {}
        self.breakers: dict[str, str] = {}
        self.limit: str | None = None
        self.ending: Ending | None = None
        self._started_at: float | None = None
        self._is_resumed = False

    def take(self, event: Event) -> None:
        """Take in an event; one of an unknown kind tells nothing."""
        fold = _FOLDS.get(event.__class__)
        if fold is not None:
            fold(self, event)

    def waits(self, phase: Phase) -> None:
        """Enter a phase now."""
        self.phase, self.phase_since, self.retry = phase, self._clock(), None

    def count(self, what: str, number: int = 1) -> None:
        """Count something that took effect."""
        self.counts[what] = self.counts.get(what, 0) + number

    def run_started(self, event: RunStarted) -> None:
        """Begin, or go on after a pause with what was used before."""
        self.name, self.run_id, self.limits = event.agent_name, event.run_id, event.limits
        self.state, self._started_at, self._is_resumed = event.state, event.at, event.resumed
        if event.state is None or not event.resumed:
            return
        nodes = event.state.nodes
        self.iteration = self.model_calls = len(nodes)
        self.usage = event.state.total_usage
        self.own_calls = self.tool_calls = sum(
            call.started_at is not None for node in nodes for call in node.tool_calls
        )

    def iteration_started(self, event: IterationStarted) -> None:
        """The model is asked."""
        self.iteration = event.iteration
        self.model_calls += 1
        self.characters = 0
        self.waits(Phase.ASKING)

    def text_came(self, event: TextDelta) -> None:
        """A piece of an answer came."""
        self.characters += len(event.text)

    def model_retried(self, event: ModelRetried) -> None:
        """What came of the answer is void; after a while the model is asked again."""
        self.characters = 0
        self.waits(Phase.RETRYING)
        self.retry = Retry(event.attempt + 1, event.error_type, self._clock() + event.delay)
        self.count("retried")

    def model_ended(self, event: ModelResponded | ModelFailed) -> None:
        """There is an answer, or there will be none."""
        self.waits(Phase.WORKING)
        self.spend(event)

    def tool_started(self, event: ToolStarted) -> None:
        """A call is in flight; the steps of a recipe are part of one."""
        self.flights[event.call.id] = Flight(event.call, self._clock(), event.within)
        if event.within is None:
            self.own_calls += 1
        self.spend(event)

    def tool_retried(self, event: ToolRetried) -> None:
        """A call waits for another try."""
        flight = self.flights.get(event.call.id)
        if flight is not None:
            until = self._clock() + event.delay
            flight.retry = Retry(event.attempt + 1, event.error_type, until)
        self.count("retried")

    def tool_finished(self, event: ToolFinished) -> None:
        """A call has landed; what ran within it is over."""
        self.flights.pop(event.call.id, None)
        self.children.pop(event.call.id, None)
        if event.result.is_error:
            self.count("failed")

    def breaker_changed(self, event: BreakerChanged) -> None:
        """Keep the breakers that are not closed."""
        if event.after == "closed":
            self.breakers.pop(event.tool, None)
        else:
            self.breakers[event.tool] = event.after

    def iteration_finished(self, event: IterationFinished) -> None:
        """Nothing is in flight between iterations; the run's own numbers are there."""
        context = event.context
        self.own_calls = context.tool_calls_count
        self.model_calls, self.tool_calls = context.budget.iterations, context.budget.tool_calls
        self.usage = context.budget.usage
        if self._is_resumed and self._started_at is not None:
            # Only here one learns what it had taken before it was put aside.
            self.since -= self._started_at - context.budget.started_at
            self._is_resumed = False
        self.flights.clear()
        self.children.clear()
        self.waits(Phase.WORKING)

    def run_finished(self, event: RunFinished) -> None:
        """End; all that is left is one line."""
        self.iteration, self.own_calls = event.total_iterations, event.tool_calls_count
        self.usage = event.usage
        started = self._started_at
        seconds = self._clock() - self.since if started is None else event.at - started
        self.ending = Ending(event.stop_reason, event.error is not None, seconds)
        self.state = self.retry = None
        self.flights.clear()
        self.children.clear()

    def subagent_event(self, event: SubagentEvent) -> None:
        """Something happened in a run within a call."""
        child = self.children.get(event.call_id)
        if child is None:
            child = self.children[event.call_id] = RunProgress(self._clock)
        child.take(event.event)
        inner = innermost(event)
        if isinstance(inner, _SPENDING):
            self.spend(inner)

    def spend(self, event: Any) -> None:
        """Count what is used, by this run or by one within it."""
        kind = event.__class__
        if kind is ModelResponded:
            self.usage = self.usage.plus(event.response.usage)
        elif kind is ModelFailed:
            self.usage = self.usage.plus(None)
        elif kind is ToolStarted:
            self.tool_calls += event.within is None
        else:
            self.model_calls += 1


def innermost(event: Event) -> Event:
    """What happened in the run that is deepest within others."""
    while isinstance(event, SubagentEvent):
        event = event.event
    return event


_SPENDING = (ModelResponded, ModelFailed, ToolStarted, IterationStarted)

_FOLDS: Mapping[type, Callable[[RunProgress, Any], None]] = {
    RunStarted: RunProgress.run_started,
    HistoryRepaired: lambda run, event: run.count("repaired", len(event.repairs)),
    IterationStarted: RunProgress.iteration_started,
    FirstChunk: lambda run, _: run.waits(Phase.ANSWERING),
    TextDelta: RunProgress.text_came,
    ModelRetried: RunProgress.model_retried,
    ModelResponded: RunProgress.model_ended,
    ModelFailed: RunProgress.model_ended,
    UserMessageAdded: lambda run, event: run.count("steered", len(event.messages)),
    CallSuppressed: lambda run, _: run.count("suppressed"),
    CallDeferred: lambda run, _: run.count("deferred"),
    CallRefused: lambda run, _: run.count("refused"),
    BreakerChanged: RunProgress.breaker_changed,
    ToolStarted: RunProgress.tool_started,
    ToolRetried: RunProgress.tool_retried,
    ToolFinished: RunProgress.tool_finished,
    RepeatWarned: lambda run, _: run.count("nudged"),
    LimitReached: lambda run, event: setattr(run, "limit", event.reason.stop_reason),
    IterationFinished: RunProgress.iteration_finished,
    RunFinished: RunProgress.run_finished,
    SubagentEvent: RunProgress.subagent_event,
}
