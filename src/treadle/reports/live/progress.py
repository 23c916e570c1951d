"""The progress of a run, updated by its events, as numbers and names for the live view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
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
    ModelRequested,
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
from treadle.messages import ToolCall, Usage
from treadle.run_state import RunState

Clock = Callable[[], float]
"""Returns monotonic seconds."""


class Phase(Enum):
    """What a run is doing."""

    STARTING = "starting"
    ASKING = "calling the model"
    ANSWERING = "streaming the response"
    RETRYING = "waiting to retry"
    WORKING = "working"


@dataclass(slots=True)
class Retry:
    """A wait before another attempt.

    Args:
        attempt: the number of the next attempt, from 2.
        error_type: the class of the exception.
        until: the clock's time of the next attempt.
    """

    attempt: int
    error_type: str
    until: float


@dataclass(slots=True)
class RunningCall:
    """A tool call that is running.

    Args:
        call: the call.
        since: the clock's time at which it started.
        within: the id of the call whose recipe has this step; None for a call that the model made.
        retry: the retry that it waits for; None while it runs.
    """

    call: ToolCall
    since: float
    within: str | None = None
    retry: Retry | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended.

    Args:
        stop_reason: why, in one word.
        is_error: there is no answer, and the run is not paused.
        seconds: the time since its start, or since it was resumed.
    """

    stop_reason: str
    is_error: bool
    seconds: float


class RunProgress:
    """The progress of one run.

    Usage of subagents counts for the run, as it does for its limits. At the end of each iteration the numbers are
    replaced by the run's own.

    Args:
        clock: returns the time.

    Attributes:
        name: the name of the loop; empty if it has none.
        run_id: its id.
        limits: its limits.
        state: its run state while it runs; this identifies the run.
        since: the clock's time at which it started, minus the time it ran before a pause.
        iteration: the number of the iteration.
        phase: what it is doing.
        phase_since: the clock's time at which the phase started.
        characters: the length of the text streamed so far in this response.
        retry: the retry of the model call that it waits for; None if there is none.
        running_calls: the calls that are running, by id.
        children: the runs of subagents that are running, by the id of the call.
        model_calls: the number of model calls, subagents included.
        own_calls: the number of tool calls that were started, without subagents.
        tool_calls: the number of tool calls that were started, subagents included.
        usage: the tokens so far, subagents included.
        counts: how often guards, retries and repairs took effect, by name.
        breakers: the state of each circuit breaker that is not closed, by tool.
        limit: the stop reason of the limit or guard that ends it.
        repaired_after: the stages whose edits of the history were repaired.
        ending: how it ended; None while it runs.
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
        self.running_calls: dict[str, RunningCall] = {}
        self.children: dict[str, RunProgress] = {}
        self.model_calls = self.own_calls = self.tool_calls = 0
        self.usage = Usage()
        self.counts: dict[str, int] = {}
        self.breakers: dict[str, str] = {}
        self.limit: str | None = None
        self.repaired_after: list[str] = []
        self.ending: Ending | None = None
        self._started_at: float | None = None
        self._is_resumed = False

    def update(self, event: Event) -> None:
        """Update the progress. Events of an unknown kind are ignored."""
        handle = _HANDLERS.get(event.__class__)
        if handle is not None:
            handle(self, event)

    def enter(self, phase: Phase) -> None:
        """Enter a phase."""
        self.phase, self.phase_since, self.retry = phase, self._clock(), None

    def count(self, what: str, number: int = 1) -> None:
        """Count a guard, a retry or a repair."""
        self.counts[what] = self.counts.get(what, 0) + number

    def run_started(self, event: RunStarted) -> None:
        """Start, or resume with the usage before the pause."""
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
        """Start an iteration."""
        self.iteration = event.iteration
        self.enter(Phase.WORKING)

    def model_requested(self, event: ModelRequested) -> None:
        """Call the model."""
        self.characters = 0
        self.enter(Phase.ASKING)
        self.spend(event)

    def history_repaired(self, event: HistoryRepaired) -> None:
        """Count repairs, and note the stage that made them necessary."""
        self.count("repaired", len(event.repairs))
        stage = event.stage
        if stage is not None and stage not in self.repaired_after:
            self.repaired_after.append(stage)

    def text_came(self, event: TextDelta) -> None:
        """Count streamed text."""
        self.characters += len(event.text)

    def model_retried(self, event: ModelRetried) -> None:
        """Discard the streamed text and wait for the retry."""
        self.characters = 0
        self.enter(Phase.RETRYING)
        self.retry = Retry(event.attempt + 1, event.error_type, self._clock() + event.delay)
        self.count("retried")

    def model_ended(self, event: ModelResponded | ModelFailed) -> None:
        """The model responded, or failed for good."""
        self.enter(Phase.WORKING)
        self.spend(event)

    def tool_started(self, event: ToolStarted) -> None:
        """A call or a step of a recipe has started."""
        self.running_calls[event.call.id] = RunningCall(event.call, self._clock(), event.within)
        if event.within is None:
            self.own_calls += 1
        self.spend(event)

    def tool_retried(self, event: ToolRetried) -> None:
        """A call waits for a retry."""
        running = self.running_calls.get(event.call.id)
        if running is not None:
            until = self._clock() + event.delay
            running.retry = Retry(event.attempt + 1, event.error_type, until)
        self.count("retried")

    def tool_finished(self, event: ToolFinished) -> None:
        """A call has finished, and with it its subagent."""
        self.running_calls.pop(event.call.id, None)
        self.children.pop(event.call.id, None)
        if event.result.is_error:
            self.count("failed")

    def breaker_changed(self, event: BreakerChanged) -> None:
        """Keep the state of breakers that are not closed."""
        if event.after == "closed":
            self.breakers.pop(event.tool, None)
        else:
            self.breakers[event.tool] = event.after

    def iteration_finished(self, event: IterationFinished) -> None:
        """No call runs between iterations; take over the run's own numbers."""
        context = event.context
        self.own_calls = context.tool_calls_count
        self.model_calls, self.tool_calls = (
            context.run.budget.iterations,
            context.run.budget.tool_calls,
        )
        self.usage = context.run.budget.usage
        if self._is_resumed and self._started_at is not None:
            # The time before the pause is not known earlier.
            self.since -= self._started_at - context.run.budget.started_at
            self._is_resumed = False
        self.running_calls.clear()
        self.children.clear()
        self.enter(Phase.WORKING)

    def run_finished(self, event: RunFinished) -> None:
        """End the run."""
        self.iteration, self.own_calls = event.total_iterations, event.tool_calls_count
        self.usage = event.usage
        started = self._started_at
        seconds = self._clock() - self.since if started is None else event.at - started
        self.ending = Ending(event.stop_reason, event.error is not None, seconds)
        self.state = self.retry = None
        self.running_calls.clear()
        self.children.clear()

    def subagent_event(self, event: SubagentEvent) -> None:
        """Update the progress of a subagent."""
        child = self.children.get(event.call_id)
        if child is None:
            child = self.children[event.call_id] = RunProgress(self._clock)
        child.update(event.event)
        inner = innermost(event)
        if isinstance(inner, _SPENDING):
            self.spend(inner)

    def spend(self, event: Any) -> None:
        """Count usage of this run or of a subagent."""
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
    """The event of the innermost subagent."""
    while isinstance(event, SubagentEvent):
        event = event.event
    return event


_SPENDING = (ModelRequested, ModelResponded, ModelFailed, ToolStarted)

_HANDLERS: Mapping[type, Callable[[RunProgress, Any], None]] = {
    RunStarted: RunProgress.run_started,
    HistoryRepaired: RunProgress.history_repaired,
    IterationStarted: RunProgress.iteration_started,
    ModelRequested: RunProgress.model_requested,
    FirstChunk: lambda run, _: run.enter(Phase.ANSWERING),
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
