"""Events: what a run tells while it goes on. Frozen, and equal where the same thing happened.

Times do not count for equality, so that two runs of one script can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from treadle.types.call_events import (
    BreakerChanged,
    CallDeferred,
    CallRefused,
    CallsPlanned,
    CallSuppressed,
    ToolFinished,
    ToolNudged,
    ToolRetried,
    ToolStarted,
)
from treadle.types.calls import nothing
from treadle.types.limits import Limits
from treadle.types.messages import JSONDict
from treadle.types.record import keyword_record
from treadle.types.response import Response, Usage

if TYPE_CHECKING:
    from treadle.types.context import Context
    from treadle.types.reasons import Reason
    from treadle.types.results import Result
    from treadle.types.run_state import RunState


@keyword_record
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
    request: Mapping[str, Any] = field(default_factory=nothing)
    state: RunState | None = field(default=None, compare=False, repr=False)


@keyword_record
class HistoryRepaired:
    """The messages that came in could not have been sent as they were; each repair is told."""

    repairs: tuple[str, ...]


@keyword_record
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


@keyword_record
class StreamStarted:
    """The first piece of a streamed answer is there. ``at`` is in seconds since the epoch."""

    iteration: int
    at: float = field(compare=False)


@keyword_record
class TextDelta:
    """A piece of the text of a streamed answer."""

    iteration: int
    text: str


@keyword_record
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


@keyword_record
class ModelResponded:
    """The model answered, after ``duration`` seconds, retries included."""

    iteration: int
    response: Response
    at: float = field(compare=False)
    duration: float = field(compare=False)


@keyword_record
class ModelFailed:
    """The model could not be asked; the run ends."""

    iteration: int
    error: str
    error_type: str
    at: float = field(compare=False)


@keyword_record
class UserSteered:
    """User messages came in while the run went on; the next request has them."""

    iteration: int
    messages: tuple[JSONDict, ...]


@keyword_record
class LimitReached:
    """A limit or a guard ends the run; where it is to be finished, it is asked for a last answer first."""

    iteration: int
    reason: Reason


@keyword_record
class IterationFinished:
    """An iteration is over; ``context`` is as it came out of the pipeline."""

    iteration: int
    context: Context = field(compare=False, repr=False)
    at: float = field(compare=False)


@keyword_record
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


@keyword_record
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


@keyword_record
class ChildEvent:
    """Something happened in a loop that a call of this run is made of.

    Args:
        call_id: the id of the call.
        event: what happened; of a child's child, another `ChildEvent`.
    """

    call_id: str
    event: Event


Event: TypeAlias = (
    RunStarted
    | HistoryRepaired
    | IterationStarted
    | StreamStarted
    | TextDelta
    | ModelRetried
    | ModelResponded
    | ModelFailed
    | UserSteered
    | CallsPlanned
    | CallSuppressed
    | CallDeferred
    | CallRefused
    | BreakerChanged
    | ToolStarted
    | ToolRetried
    | ToolFinished
    | ToolNudged
    | LimitReached
    | IterationFinished
    | RunFinished
    | ChildEvent
)
