"""The progress of a run, updated by its events, as numbers and names for the live view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from treadle import events
from treadle.events import Event, SubagentEvent
from treadle.limits import Limits
from treadle.messages import ToolCall, Usage
from treadle.recording.lines import EVENT_NAMES
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
    """A wait for the next attempt: its number, the class of the exception, and the clock's time."""

    attempt: int
    error_type: str
    until: float


@dataclass(slots=True)
class RunningCall:
    """A tool call that is running since a time of the clock.

    Args:
        within: the id of the call whose recipe has this step; None for a call that the model made.
        retry: the retry that it waits for; None while it runs.
        message: the latest message with which its tool reported progress, and how much is done in percent.
    """

    call: ToolCall
    since: float
    within: str | None = None
    retry: Retry | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, and the seconds since its start, or since it was resumed. A pause is no error."""

    stop_reason: str
    is_error: bool
    seconds: float


class RunProgress:
    """The progress of one run.

    Usage of subagents counts for the run, as it does for its limits. At the end of each iteration the numbers are
    replaced by the run's own.

    Attributes:
        name: the name of the loop; empty if it has none.
        run_id: its id.
        limits: its limits.
        state: its run state while it runs; this identifies the run.
        since: the clock's time at which it started, minus the time it ran before a pause.
        iteration: the number of the iteration.
        phase: what it is doing.
        phase_since: the clock's time at which the phase started.
        characters: the length of what was streamed so far in this response: text, reasoning, arguments.
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
        match event.innermost if isinstance(event, SubagentEvent) else event:
            case events.ModelRequested():
                self.model_calls += 1
            case events.ModelResponded(response=response):
                self.usage = self.usage.plus(response.usage)
            case events.ModelRetried() | events.ModelFailed():
                self.usage = self.usage.plus(None)
            case events.ToolStarted(within=None):
                self.tool_calls += 1
            case _:
                pass
        name = EVENT_NAMES.get(type(event))
        if name in _PHASES:
            self.phase, self.phase_since, self.retry = _PHASES[name], self._clock(), None
        if isinstance(event, SubagentEvent):
            child = self.children.get(event.call_id)
            if child is None:
                child = self.children[event.call_id] = RunProgress(self._clock)
            child.update(event.event)
        elif name in _COUNTED:
            self._count(_COUNTED[name])
        elif name in _HANDLERS:
            _HANDLERS[name](self, event)

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def _call_not_run(self, event: events.CallNotRun) -> None:
        self._count(event.reason.replace("_", " "))

    def _retry(self, event: events.ModelRetried | events.ToolRetried) -> Retry:
        self._count("retried")
        return Retry(event.attempt + 1, event.error_type, self._clock() + event.delay)

    # The handlers of events, by the names of the events.

    def _run_started(self, event: events.RunStarted) -> None:
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

    def _iteration_started(self, event: events.IterationStarted) -> None:
        self.iteration = event.iteration

    def _model_requested(self, _: events.ModelRequested) -> None:
        self.characters = 0

    def _history_repaired(self, event: events.HistoryRepaired) -> None:
        self._count("repaired", len(event.repairs))
        stage = event.stage
        if stage is not None and stage not in self.repaired_after:
            self.repaired_after.append(stage)

    def _text_delta(self, event: events.TextDelta | events.ReasoningDelta) -> None:
        self.characters += len(event.text)

    _reasoning_delta = _text_delta

    def _tool_call_delta(self, event: events.ToolCallDelta) -> None:
        self.characters += len(event.arguments)

    def _model_retried(self, event: events.ModelRetried) -> None:
        """Discard the streamed text and wait for the retry."""
        self.characters = 0
        self.retry = self._retry(event)

    def _user_message_added(self, event: events.UserMessageAdded) -> None:
        self._count("steered", len(event.messages))

    def _tool_started(self, event: events.ToolStarted) -> None:
        self.running_calls[event.call.id] = RunningCall(event.call, self._clock(), event.within)
        self.own_calls += event.within is None

    def _tool_progress(self, event: events.ToolProgress) -> None:
        running = self.running_calls.get(event.call.id)
        if running is not None:
            share = "" if event.progress is None else f"{event.progress:.0%} "
            running.message = f"{share}{event.message}".strip()

    def _tool_retried(self, event: events.ToolRetried) -> None:
        retry, running = self._retry(event), self.running_calls.get(event.call.id)
        if running is not None:
            running.retry, running.message = retry, ""

    def _tool_finished(self, event: events.ToolFinished) -> None:
        self.running_calls.pop(event.call.id, None)
        self.children.pop(event.call.id, None)
        if event.result.is_error:
            self._count("failed")

    def _breaker_changed(self, event: events.BreakerChanged) -> None:
        if event.after == "closed":
            self.breakers.pop(event.tool, None)
        else:
            self.breakers[event.tool] = event.after

    def _limit_reached(self, event: events.LimitReached) -> None:
        self.limit = event.reason.stop_reason

    def _iteration_finished(self, event: events.IterationFinished) -> None:
        """No call runs between iterations; take over the run's own numbers."""
        budget = event.context.run.budget
        self.own_calls = event.context.tool_calls_count
        self.model_calls, self.tool_calls = budget.requests, budget.tool_calls
        self.usage = budget.usage
        if self._is_resumed and self._started_at is not None:
            # The time before the pause is not known earlier.
            self.since -= budget.elapsed(self._started_at)
            self._is_resumed = False
        self.running_calls, self.children = {}, {}

    def _run_finished(self, event: events.RunFinished) -> None:
        self.iteration, self.own_calls = event.total_iterations, event.tool_calls_count
        self.usage = event.usage
        started = self._started_at
        seconds = self._clock() - self.since if started is None else event.at - started
        self.ending = Ending(event.stop_reason, event.error is not None, seconds)
        self.state = self.retry = None
        self.running_calls, self.children = {}, {}


_PHASES = {
    "iteration_started": Phase.WORKING,
    "model_requested": Phase.ASKING,
    "first_chunk": Phase.ANSWERING,
    "model_retried": Phase.RETRYING,
    "model_responded": Phase.WORKING,
    "model_failed": Phase.WORKING,
    "iteration_finished": Phase.WORKING,
}
"""The phase that an event begins, by the name of the event."""
_COUNTED = {
    "repeat_warned": "nudged",
    "history_compacted": "compacted",
    "compaction_failed": "not compacted",
}
"""The name under which an event is counted, by the name of the event."""
_METHODS = vars(RunProgress)
_HANDLERS = {name: _METHODS[f"_{name}"] for name in EVENT_NAMES.values() if f"_{name}" in _METHODS}
"""The handler of an event, by the name of the event."""
