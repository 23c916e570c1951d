"""Events: what a run reports while it is in progress.

Events are frozen. Times and run ids are ignored in comparisons, so that two runs of one script can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, TypeAlias

from treadle.context import Context
from treadle.fast_dataclass import fast_dataclass_kw
from treadle.limits import Limits
from treadle.messages import JSONDict, Response, ToolCall, ToolResult, Usage
from treadle.results import Reason, Result
from treadle.run_state import RunState
from treadle.tools import NotRunReason, PlanReason


@fast_dataclass_kw
class RunStarted:
    """A run started.

    Args:
        agent_name: the name of the agent.
        run_id: the id of the run.
        at: seconds since the epoch.
        resumed: it continues after a pause, under the same id.
        limits: the limits of the run.
        tools: the tools of the run, in OpenAI's form.
        available: the names of all tools, including those that only the resolver has.
        model: the name of the model, if known.
        provider: the provider, by OpenTelemetry's names, if known.
        request: options of every request that affect the response, such as ``temperature``, if known.
        state: the status of the run; it changes while the run is in progress.
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
    """Messages were repaired that a provider would have rejected.

    Args:
        repairs: one line for each repair.
        stage: the stage whose edit was repaired; None if the messages were the caller's.
    """

    repairs: tuple[str, ...]
    stage: str | None = None


@fast_dataclass_kw
class IterationStarted:
    """An iteration (a pass through the stages) started. ``at`` is in seconds since the epoch."""

    iteration: int
    at: float = field(compare=False)


@fast_dataclass_kw
class ModelRequested:
    """A request is about to be sent to the model.

    Args:
        iteration: the number of the iteration, from 1.
        at: seconds since the epoch.
        messages: the conversation as it is sent, without instructions and guidance.
        instructions: the system message of the request.
        guidance: a text for the model in this request only.
    """

    iteration: int
    at: float = field(compare=False)
    messages: Sequence[JSONDict] = field(default=(), compare=False, repr=False)
    instructions: str | None = field(default=None, compare=False, repr=False)
    guidance: str | None = None


@fast_dataclass_kw
class FirstChunk:
    """The first piece of a streamed response arrived. ``at`` is in seconds since the epoch."""

    iteration: int
    at: float = field(compare=False)


@fast_dataclass_kw
class TextDelta:
    """A piece of the text of a streamed response."""

    iteration: int
    text: str


@fast_dataclass_kw
class ModelRetried:
    """A request to the model failed and is sent again. Text streamed so far in this iteration is void.

    Args:
        iteration: the number of the iteration.
        attempt: the number of the attempt that failed, from 1.
        error: the text of the error.
        error_type: the class of the exception.
        delay: seconds until the next attempt.
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
    """The model responded, after ``duration`` seconds, including retries."""

    iteration: int
    response: Response
    at: float = field(compare=False)
    duration: float = field(compare=False)


@fast_dataclass_kw
class ModelFailed:
    """A request to the model failed and is not retried; the run ends."""

    iteration: int
    error: str
    error_type: str
    at: float = field(compare=False)


@fast_dataclass_kw
class CallsPlanned:
    """The plan of an iteration: which calls of the response run.

    Args:
        iteration: the number of the iteration.
        reason: the reason for the plan.
        batches: the ids of the calls that run, batch by batch.
        not_run: why the other calls do not run, by id.
    """

    iteration: int
    reason: PlanReason
    batches: tuple[tuple[str, ...], ...]
    not_run: Mapping[str, NotRunReason]


@fast_dataclass_kw
class CallSuppressed:
    """A call is skipped: it was answered before, or another call of its batch is the same."""

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
    """A call does not run: a budget is spent, its circuit breaker is open, or a stage removed it."""

    iteration: int
    call: ToolCall
    reason: NotRunReason


@fast_dataclass_kw
class BreakerChanged:
    """The state of a shared circuit breaker changed for a tool: closed, open or half_open."""

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
        within: the id of the call whose recipe has this as a step; None for a call of the model.
    """

    iteration: int
    call: ToolCall
    at: float = field(compare=False)
    within: str | None = None


@fast_dataclass_kw
class ToolRetried:
    """An attempt to run a tool failed, and another follows.

    Args:
        iteration: the number of the iteration.
        call: the call.
        attempt: the number of the attempt that failed, from 1.
        error: the text of the error.
        error_type: the class of the exception, or ``timeout``.
        delay: seconds until the next attempt.
        at: seconds since the epoch.
        exception: what the tool raised, with its traceback; None after a timeout.
    """

    iteration: int
    call: ToolCall
    attempt: int
    error: str
    error_type: str
    delay: float = field(compare=False)
    at: float = field(compare=False)
    exception: BaseException | None = field(default=None, compare=False, repr=False)


@fast_dataclass_kw
class ToolFinished:
    """A call has run and has its result.

    Args:
        iteration: the number of the iteration.
        call: the call.
        result: its result.
        at: seconds since the epoch.
        duration: seconds, including retries.
        exception: what the last attempt raised, with its traceback, or an exception that the tool returned as
            ``Err(exception)``; None if there is none, as after a timeout.
    """

    iteration: int
    call: ToolCall
    result: ToolResult
    at: float = field(compare=False)
    duration: float = field(compare=False)
    exception: BaseException | None = field(default=None, compare=False, repr=False)


@fast_dataclass_kw
class RepeatWarned:
    """A result has a note, because the same call was made ``count`` times in this turn."""

    iteration: int
    call: ToolCall
    count: int


@fast_dataclass_kw
class UserMessageAdded:
    """User messages arrived through the handle; the next request has them."""

    iteration: int
    messages: tuple[JSONDict, ...]


@fast_dataclass_kw
class LimitReached:
    """A limit or a guard ends the run; with ``on_limit="finish"`` the model is asked for a last answer first."""

    iteration: int
    reason: Reason


@fast_dataclass_kw
class IterationFinished:
    """An iteration ended; ``context`` is the context that the last stage returned."""

    iteration: int
    context: Context = field(compare=False, repr=False)
    at: float = field(compare=False)


@fast_dataclass_kw
class RunFinished:
    """A run ended; the last event, on every exit.

    Args:
        stop_reason: why it ended, in one word.
        total_iterations: the number of its iterations.
        tool_calls_count: the number of tool calls that ran.
        result: what `run` returns, including a `Paused`; None if it was cancelled and returns nothing.
        at: seconds since the epoch.
        usage: the tokens it used, including those of subagents.
        error: why there is no answer; None if there is one, or the run is paused.
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
    """The completion event of a run as data, for programs without OpenTelemetry.

    Args:
        agent_name: the name of the agent.
        run_id: the id of the run.
        stop_reason: why it ended, in one word.
        total_iterations: the number of its iterations.
        tool_calls_count: the number of tool calls that ran.
        usage: the tokens it used, including those of subagents.
        duration: seconds from its start, or from when it was resumed, to its end.
        error: why there is no answer; None if there is one, or the run is paused.
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
        """The completion of a run, from its first and its last event."""
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
    """An event of a subagent.

    Args:
        call_id: the id of the call that runs the subagent.
        event: the event; for a subagent of a subagent, another `SubagentEvent`.
    """

    call_id: str
    event: Event


Event: TypeAlias = (
    RunStarted
    | HistoryRepaired
    | IterationStarted
    | ModelRequested
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
"""Any event of a run."""
