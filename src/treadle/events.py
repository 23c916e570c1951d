"""Events: what a run tells while it goes on. Frozen, and equal where the same thing happened.

Times do not count for equality, so that two runs of one script can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from treadle.fast_dataclass import fast_dataclass_kw
from treadle.limits import Limits
from treadle.messages import JSONDict, Response, ToolCall, ToolResult, Usage
from treadle.tools import NotRunReason, PlanReason

if TYPE_CHECKING:
    from treadle.context import Context
    from treadle.results import Reason, Result
    from treadle.run_state import RunState


@fast_dataclass_kw
class CallsPlanned:
    """It is decided which calls of an answer run.

    Args:
        iteration: the number of the iteration.
        reason: why the plan is as it is.
        batches: the ids of those that run, batch by batch.
        not_run: why the others do not run, by id.
    """

    iteration: int
    reason: PlanReason
    batches: tuple[tuple[str, ...], ...]
    not_run: Mapping[str, NotRunReason]


@fast_dataclass_kw
class CallSuppressed:
    """A call does not run, because it was answered before, or is made twice in one batch."""

    iteration: int
    call: ToolCall
    reason: NotRunReason


@fast_dataclass_kw
class CallDeferred:
    """A call does not run now; the model may ask for it again."""

    iteration: int
    call: ToolCall
    reason: NotRunReason


@fast_dataclass_kw
class CallRefused:
    """A call does not run, because a budget is spent, or its tool is out of order."""

    iteration: int
    call: ToolCall
    reason: NotRunReason


@fast_dataclass_kw
class BreakerChanged:
    """A circuit breaker that is shared by several runs changed for a tool: closed, open or half_open."""

    iteration: int
    tool: str
    before: str
    after: str


@fast_dataclass_kw
class ToolStarted:
    """A tool is about to run.

    Args:
        iteration: the number of the iteration.
        call: the call.
        at: seconds since the epoch.
        within: the id of the call whose recipe it is a step of; None of one that the model made.
    """

    iteration: int
    call: ToolCall
    at: float = field(compare=False)
    within: str | None = None


@fast_dataclass_kw
class ToolRetried:
    """A try to run a tool failed, and another follows.

    Args:
        iteration: the number of the iteration.
        call: the call.
        attempt: the number of the try that failed, from 1.
        error: what went wrong.
        error_type: the class of what was raised, or ``timeout``.
        delay: seconds until the next try.
        at: seconds since the epoch.
    """

    iteration: int
    call: ToolCall
    attempt: int
    error: str
    error_type: str
    delay: float = field(compare=False)
    at: float = field(compare=False)


@fast_dataclass_kw
class ToolFinished:
    """A call that ran has its result, after ``duration`` seconds, retries included."""

    iteration: int
    call: ToolCall
    result: ToolResult
    at: float = field(compare=False)
    duration: float = field(compare=False)


@fast_dataclass_kw
class RepeatWarned:
    """A result carries a note, because the same call was made ``count`` times in this turn."""

    iteration: int
    call: ToolCall
    count: int


@fast_dataclass_kw
class RunStarted:
    """A run began.

    Args:
        agent_name: whose run it is.
        run_id: its id.
        at: seconds since the epoch.
        resumed: it goes on after a pause, under the id that it had.
        limits: how much it may take.
        tools: the tools that the model may call, in OpenAI's form.
        available: the names of all tools there are, those that only the resolver knows among them.
        model: the model that is asked for, where that can be seen.
        provider: who serves it, in OpenTelemetry's words, where that can be seen.
        request: options of every request that say how the model shall answer, such as ``temperature``, where
            they can be seen.
        state: the record of the run, which goes on while it runs.
    """

    agent_name: str
    run_id: str = field(compare=False)
    at: float = field(compare=False)
    resumed: bool = False
    limits: Limits = field(default_factory=Limits)
    tools: Sequence[JSONDict] = field(default=(), repr=False)
    available: tuple[str, ...] = ()
    model: str | None = None
    provider: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict[str, Any])
    state: RunState | None = field(default=None, compare=False, repr=False)


@fast_dataclass_kw
class HistoryRepaired:
    """The messages that came in could not have been sent as they were; each repair is told."""

    repairs: tuple[str, ...]


@fast_dataclass_kw
class IterationStarted:
    """The model is about to be asked.

    Args:
        iteration: the number of the iteration, from 1.
        at: seconds since the epoch.
        messages: the conversation as it is sent, without the guidance.
        guidance: what the model is told in this request only.
    """

    iteration: int
    at: float = field(compare=False)
    messages: Sequence[JSONDict] = field(default=(), compare=False, repr=False)
    guidance: str | None = None


@fast_dataclass_kw
class FirstChunk:
    """The first piece of a streamed answer is there. ``at`` is in seconds since the epoch."""

    iteration: int
    at: float = field(compare=False)


@fast_dataclass_kw
class TextDelta:
    """A piece of the text of a streamed answer."""

    iteration: int
    text: str


@fast_dataclass_kw
class ModelRetried:
    """A try to ask the model failed, and another follows. Text told so far in this iteration is void.

    Args:
        iteration: the number of the iteration.
        attempt: the number of the try that failed, from 1.
        error: what went wrong.
        error_type: the class of what was raised.
        delay: seconds until the next try.
        at: seconds since the epoch.
    """

    iteration: int
    attempt: int
    error: str
    error_type: str
    delay: float = field(compare=False)
    at: float = field(compare=False)


@fast_dataclass_kw
class ModelResponded:
    """The model answered, after ``duration`` seconds, retries included."""

    iteration: int
    response: Response
    at: float = field(compare=False)
    duration: float = field(compare=False)


@fast_dataclass_kw
class ModelFailed:
    """The model could not be asked; the run ends."""

    iteration: int
    error: str
    error_type: str
    at: float = field(compare=False)


@fast_dataclass_kw
class UserMessageAdded:
    """User messages came in while the run went on; the next request has them."""

    iteration: int
    messages: tuple[JSONDict, ...]


@fast_dataclass_kw
class LimitReached:
    """A limit or a guard ends the run; where it is to be finished, it is asked for a last answer first."""

    iteration: int
    reason: Reason


@fast_dataclass_kw
class IterationFinished:
    """An iteration is over; ``context`` is as it came out of the pipeline."""

    iteration: int
    context: Context = field(compare=False, repr=False)
    at: float = field(compare=False)


@fast_dataclass_kw
class RunFinished:
    """A run is over, on every exit; the last event.

    Args:
        stop_reason: why, in one word.
        total_iterations: the model calls it made.
        tool_calls_count: the tool calls that ran.
        result: what `run` returns, a `Paused` too; None where it was cancelled and returns nothing.
        at: seconds since the epoch.
        usage: the tokens it took, those of runs within it too.
        error: why there is no answer; None where there is one, or the run is paused.
    """

    stop_reason: str
    total_iterations: int
    tool_calls_count: int
    result: Result | None
    at: float = field(compare=False)
    usage: Usage = field(default_factory=Usage)
    error: str | None = None


@fast_dataclass_kw
class Completion:
    """What a run came to: the completion event as data, for those who do without OpenTelemetry.

    Args:
        agent_name: whose run it was.
        run_id: its id.
        stop_reason: why it ended, in one word.
        total_iterations: the model calls it made.
        tool_calls_count: the tool calls that ran.
        usage: the tokens it took, those of runs within it too.
        duration: seconds from its start, or from where it was gone on with, to its end.
        error: why there is no answer; None where there is one, or the run is paused.
    """

    name: ClassVar[str] = "treadle.loop.complete"
    agent_name: str
    run_id: str = field(compare=False)
    stop_reason: str
    total_iterations: int
    tool_calls_count: int
    usage: Usage
    duration: float = field(compare=False)
    error: str | None = None

    @classmethod
    def of(cls, started: RunStarted, finished: RunFinished) -> Completion:
        """What a run came to, by its first and its last event."""
        return cls(
            agent_name=started.agent_name,
            run_id=started.run_id,
            stop_reason=finished.stop_reason,
            total_iterations=finished.total_iterations,
            tool_calls_count=finished.tool_calls_count,
            usage=finished.usage,
            duration=finished.at - started.at,
            error=finished.error,
        )


@fast_dataclass_kw
class SubagentEvent:
    """Something happened in a loop that a call of this run is made of.

    Args:
        call_id: the id of the call.
        event: what happened; of a child's child, another `SubagentEvent`.
    """

    call_id: str
    event: Event


Event: TypeAlias = (
    RunStarted
    | HistoryRepaired
    | IterationStarted
    | FirstChunk
    | TextDelta
    | ModelRetried
    | ModelResponded
    | ModelFailed
    | UserMessageAdded
    | CallsPlanned
    | CallSuppressed
    | CallDeferred
    | CallRefused
    | BreakerChanged
    | ToolStarted
    | ToolRetried
    | ToolFinished
    | RepeatWarned
    | LimitReached
    | IterationFinished
    | RunFinished
    | SubagentEvent
)
