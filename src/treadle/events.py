"""Events: what a run reports while it is in progress.

Events are frozen. Numbers, times and run ids are ignored in comparisons, so that two runs of one script can be
compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Self, TypeAlias, get_args

from treadle.codec import (
    JSONFormatError,
    plain_data,
    plain_form,
    restore,
    restore_fields,
    snake_case,
)
from treadle.context import Context
from treadle.errors import did_you_mean
from treadle.fast_dataclass import fast_dataclass_kw, set_state
from treadle.limits import Limits
from treadle.messages import (
    History,
    JSONDict,
    ModelCallStatus,
    Response,
    Timing,
    ToolCall,
    ToolResult,
    Usage,
    safe_str,
    short_json,
)
from treadle.results import Err, Ok, Paused, Reason, Result, RunError, StoppedByStage
from treadle.run_state import RunState
from treadle.tools import NotRun, PlanReason


class EventBase:
    """The base of all events, also of those of custom stages, which are dataclasses."""

    __slots__ = ("_seq",)

    _seq: int

    @property
    def seq(self) -> int:
        """The number of the event in its run, from 1 and without gaps, in the order in which observers get them.

        A resumed run continues the numbers. 0 if no observer has received the event. The event within a
        `SubagentEvent` has its number among the events of the subagent, if that has observers.
        """
        try:
            return self._seq
        except AttributeError:  # to set it in each constructor is slow
            return 0

    __setstate__ = set_state  # of a custom class, which may be frozen

    def __deepcopy__(self, _memo: Any) -> Self:
        return self  # it cannot be changed, and its context has services that cannot be copied

    @property
    def path(self) -> tuple[str, ...]:
        """The ids of the calls that lead to its subagent, the outermost first; empty for the run itself."""
        path: tuple[str, ...] = ()
        event: Any = self
        while isinstance(event, SubagentEvent):
            path, event = (*path, event.call_id), event.event
        return path

    @property
    def innermost(self) -> Event:
        """The event without the `SubagentEvent` objects around it."""
        event: Any = self
        while isinstance(event, SubagentEvent):
            event = event.event
        return event

    def to_json(self) -> JSONDict:
        """The event as JSON data: docs/guide-events.md describes the form, `event_from_json` restores the event.

        Values that JSON cannot represent become text. Objects that are not data are reduced: a result has no
        messages, a context is its status, an exception is its type and its text.
        """
        event: Any = self.innermost
        facts = {spec.name: getattr(event, spec.name) for spec in dataclasses.fields(event)}
        if isinstance(event, RunStarted):
            facts["state"] = None
        name = snake_case(event.__class__.__name__)
        return plain_data({"type": name, "seq": self.seq, "path": self.path, **facts})


number: Callable[[EventBase, int], None] = vars(EventBase)["_seq"].__set__
"""Set the number of an event, although events are frozen; raises TypeError for any other object."""


@fast_dataclass_kw
class RunStarted(EventBase):
    """A run started.

    Args:
        agent_name: the name of the agent.
        run_id: the id of the run.
        at: seconds since the epoch.
        resumed: it continues after a pause, under the same id.
        limits: the limits of the run.
        tools: the tools of the run, in OpenAI's form; with tool search, those that are offered from the start.
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
class IterationEvent(EventBase):
    """An event in an iteration (a pass through the stages); ``iteration`` is its number, from 1."""

    iteration: int


@fast_dataclass_kw
class TimedEvent(IterationEvent):
    """An event in an iteration that has a time; ``at`` is in seconds since the epoch."""

    at: float = field(compare=False)


@fast_dataclass_kw
class HistoryRepaired(EventBase):
    """Messages were repaired that a provider would have rejected.

    ``repairs`` has a line for each; ``stage`` is the one whose edit was repaired, None if they were the caller's.
    """

    repairs: tuple[str, ...]
    stage: str | None = None


@fast_dataclass_kw
class IterationStarted(TimedEvent):
    """An iteration (a pass through the stages) started."""


@fast_dataclass_kw
class ModelRequested(TimedEvent):
    """A request is about to be sent to the model.

    Args:
        messages: the conversation as it is sent, without instructions and guidance.
        instructions: the system message of the request.
        guidance: a text for the model in this request only.
    """

    messages: Sequence[JSONDict] = field(default=(), compare=False, repr=False)
    instructions: str | None = field(default=None, compare=False, repr=False)
    guidance: str | None = None


@fast_dataclass_kw
class FirstChunk(TimedEvent):
    """The first piece of a streamed response arrived."""


@fast_dataclass_kw
class TextDelta(IterationEvent):
    """A piece of the text of a streamed response."""

    text: str


@fast_dataclass_kw
class ReasoningDelta(IterationEvent):
    """A piece of the reasoning of a streamed response, if the model shows it."""

    text: str


@fast_dataclass_kw
class ToolCallDelta(IterationEvent):
    """A piece of a call in a streamed response. It may still change: `ToolStarted` has the call that runs.

    Args:
        index: the index of the call in the response.
        id: the call's id as the model gave it; empty in pieces that repeat none.
        name: a piece of the tool's name.
        arguments: a piece of the arguments, which are JSON text.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@fast_dataclass_kw
class PartialOutput(IterationEvent):
    """The output of a run with ``output=``, as far as the model has streamed it.

    It is JSON data, in which fields may still be missing; texts may end early. It is not validated.
    """

    output: Any


@fast_dataclass_kw
class ModelRetried(TimedEvent):
    """A request to a model failed and is sent again. What was streamed so far in this iteration is void.

    Args:
        attempt: the number of the attempt that failed, from 1.
        error: the text of the error.
        error_type: the class of the exception.
        delay: seconds until the next attempt.
        model: the model that failed, if another one is asked; see `treadle.providers.middleware.Fallback`.
        next_model: the model that is asked in its place; None means the same one.
        status: always ``error``.
        timing: the times of the request that failed; None if none was sent.
    """

    attempt: int
    error: str
    error_type: str
    delay: float = field(compare=False)
    model: str | None = None
    next_model: str | None = None
    status: ModelCallStatus = ModelCallStatus.ERROR
    timing: Timing | None = field(default=None, compare=False)


@fast_dataclass_kw
class ModelResponded(TimedEvent):
    """The model responded.

    Args:
        response: the response, with its tokens, their cost, and the times of the request that was answered.
        duration: seconds, including retries.
        status: the status of the response.
    """

    response: Response
    duration: float = field(compare=False)
    status: ModelCallStatus = ModelCallStatus.SUCCESS


@fast_dataclass_kw
class ModelFailed(TimedEvent):
    """A request to the model failed and is not retried, or was cancelled; the run ends.

    Args:
        error: the text of the error; for a cancelled request, why the run ended.
        error_type: the class of the exception; for a cancelled request, the stop reason of the run.
        status: ``error`` or ``cancelled``.
        timing: the times of the request that failed; None if none was sent.
    """

    error: str
    error_type: str
    status: ModelCallStatus = ModelCallStatus.ERROR
    timing: Timing | None = field(default=None, compare=False)


@fast_dataclass_kw
class CallsPlanned(IterationEvent):
    """The plan of an iteration: which calls of the response run.

    Args:
        reason: the reason for the plan.
        batches: the ids of the calls that run, batch by batch.
        not_run: why the other calls do not run, by id.
    """

    reason: PlanReason
    batches: tuple[tuple[str, ...], ...]
    not_run: Mapping[str, NotRun]


@fast_dataclass_kw
class CallNotRun(IterationEvent):
    """A valid call does not run: the plan, a budget, a circuit breaker or a stage prevents it.

    A call has one such event, with the first reason. Calls that are invalid, denied or cancelled have none,
    nor have those that the run no longer reaches.
    """

    call: ToolCall
    reason: NotRun


@fast_dataclass_kw
class BreakerChanged(IterationEvent):
    """The state of a shared circuit breaker changed for a tool: closed, open or half_open."""

    tool: str
    before: str
    after: str


@fast_dataclass_kw
class ToolStarted(TimedEvent):
    """A tool is about to run.

    ``within`` is the id of the call whose recipe has ``call`` as a step; None for a call of the model.
    """

    call: ToolCall
    within: str | None = None


@fast_dataclass_kw
class ToolProgress(TimedEvent):
    """A tool reported its progress, with `ToolContext.report` or by yielding a value. The model does not see it.

    Args:
        call: the call.
        message: what the tool is doing; of a yielded value, its text.
        progress: how much is done, from 0 to 1; None if the tool did not say.
        data: what the tool reported besides; a yielded value that is not a text.
    """

    call: ToolCall
    message: str
    progress: float | None = None
    data: Any = None


@fast_dataclass_kw
class ToolRetried(TimedEvent):
    """An attempt to run a tool failed, and another follows.

    Args:
        call: the call.
        attempt: the number of the attempt that failed, from 1.
        error: the text of the error.
        error_type: the class of the exception, or ``timeout``.
        delay: seconds until the next attempt.
        exception: what the tool raised, with its traceback; None after a timeout.
    """

    call: ToolCall
    attempt: int
    error: str
    error_type: str
    delay: float = field(compare=False)
    exception: BaseException | None = field(default=None, compare=False, repr=False)


@fast_dataclass_kw
class ToolFinished(TimedEvent):
    """A call has run and has its result.

    Args:
        call: the call.
        result: its result.
        duration: seconds, including retries.
        exception: what the last attempt raised, with its traceback, or an exception that the tool returned as
            ``Err(exception)``; None if there is none, as after a timeout.
    """

    call: ToolCall
    result: ToolResult
    duration: float = field(compare=False)
    exception: BaseException | None = field(default=None, compare=False, repr=False)


@fast_dataclass_kw
class RepeatWarned(IterationEvent):
    """A result has a note, because the same call was made ``count`` times in this turn."""

    call: ToolCall
    count: int


@fast_dataclass_kw
class UserMessageAdded(IterationEvent):
    """User messages arrived through the handle; the next request has them."""

    messages: tuple[JSONDict, ...]


@fast_dataclass_kw
class HistoryCompacted(IterationEvent):
    """From this request on, the model sees less of the history, which itself stays as it is.

    Args:
        tokens_before: the tokens that the request would have had, as far as they are known; else an estimate.
        tokens_after: an estimate of the tokens that it has.
        messages_before: the number of messages that the request would have had.
        messages_after: the number of messages that it has.
        is_summarized: whether a summary was written; else old results were replaced and repetitions left out.
    """

    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    is_summarized: bool = True


@fast_dataclass_kw
class CompactionFailed(IterationEvent):
    """A history that is too long was not summarised; the request has all of it.

    ``problem`` says why: the summary failed, or did not make the request shorter. After ``gives_up``, no further
    summary is tried in this run.
    """

    problem: str
    gives_up: bool = False


@fast_dataclass_kw
class LimitReached(IterationEvent):
    """A limit or a guard ends the run; with ``on_limit="finish"`` the model is asked for a last answer first."""

    reason: Reason


@fast_dataclass_kw
class IterationFinished(TimedEvent):
    """An iteration ended; ``context`` is that of the last stage, with the calls and results in the history."""

    context: Context = field(compare=False, repr=False)


@fast_dataclass_kw
class RunFinished(EventBase):
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
class RunSummary:
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
    def of(cls, started: RunStarted, finished: RunFinished) -> RunSummary:
        """The completion of a run, from its first and its last event."""
        of_both = cls.__dataclass_fields__.keys() & finished.__dataclass_fields__.keys()
        facts = {name: getattr(finished, name) for name in of_both}
        facts |= {"agent_name": started.agent_name, "run_id": started.run_id}
        return cls(duration=finished.at - started.at, **facts)


@fast_dataclass_kw
class SubagentEvent(EventBase):
    """An event of a subagent.

    ``call_id`` is the id of the call that runs it. Of a subagent of a subagent, ``event`` is a `SubagentEvent`.
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
    | ReasoningDelta
    | ToolCallDelta
    | PartialOutput
    | ModelRetried
    | ModelResponded
    | ModelFailed
    | UserMessageAdded
    | CallsPlanned
    | CallNotRun
    | BreakerChanged
    | ToolStarted
    | ToolProgress
    | ToolRetried
    | ToolFinished
    | RepeatWarned
    | HistoryCompacted
    | CompactionFailed
    | LimitReached
    | IterationFinished
    | RunFinished
    | SubagentEvent
)
"""Any event of a run."""
EVENT_TYPES: Mapping[str, type] = {
    snake_case(kind.__name__): kind for kind in get_args(Event) if kind is not SubagentEvent
}
"""The classes of events by their names in JSON. `SubagentEvent` has none: it is the ``path`` of an event."""


def event_from_json(data: Mapping[str, Any]) -> Event:
    """Restore an event from its JSON form; keys that this version does not know are ignored.

    Args:
        data: what `EventBase.to_json` returned.

    Raises:
        JSONFormatError: an unknown type, such as one of a later version, a missing field, or a wrong value.
    """
    name = restore(dict[str, Any], data).get("type")
    kind = EVENT_TYPES.get(str(name))
    if kind is None:
        hint = did_you_mean(name, EVENT_TYPES)
        raise JSONFormatError(f"type: {short_json(name)} is no type of event{hint}")
    try:
        seq, path = restore(int, data.get("seq", 0)), restore(tuple[str, ...], data.get("path", []))
        event = restore(kind, data)
    except JSONFormatError as error:
        raise JSONFormatError(f"{name}: {error}") from None
    for call_id in reversed(path):
        event = SubagentEvent(call_id=call_id, event=event)
    number(event, seq)
    return event


# Objects in events that are more than data are reduced to it.

_REASONS: Mapping[str, Any] = {kind.stop_reason: kind for kind in get_args(Reason)}
_RESULTS: Mapping[str, Any] = {"ok": Ok, "error": Err, "paused": Paused}
_IN_CONTEXT = ("iteration", "decision", "error", "trace")


def _reason_as_json(reason: Any) -> JSONDict:
    names = getattr(reason, "__dataclass_fields__", ())
    facts = {name: getattr(reason, name) for name in names if name != "cause"}
    return {"kind": reason.stop_reason, "text": safe_str(reason), "fields": facts}


def _reason_from_json(data: Any) -> Any:
    """A reason from its fields; one of an unknown class is a `StoppedByStage` with its text."""
    kind = _REASONS.get(str(restore(dict[str, Any], data).get("kind")))
    if kind is None:
        return StoppedByStage("", str(data.get("text", "")))
    return restore_fields(kind, data.get("fields"))


def _result_as_json(result: Any) -> JSONDict:
    response = getattr(result, "response", None)
    return {
        "status": next(name for name, kind in _RESULTS.items() if isinstance(result, kind)),
        "stop_reason": result.stop_reason,
        "text": getattr(response, "text", response),
        "output": result.output,
        "reason": getattr(result, "reason", None),
        "limit": getattr(result, "limit", None),
        "pending": getattr(result, "pending", ()),
    }


def _result_from_json(data: Any) -> Result:
    """A result without its messages and its state."""
    status = restore(dict[str, Any], data).get("status")
    kind = _RESULTS.get(str(status))
    if kind is None:
        raise JSONFormatError(f"status: expected ok, error or paused, got {short_json(status)}")
    answer = {"response": Response(data.get("text"))} if kind is Ok else {}
    return restore_fields(kind, data, **answer)


plain_form(RunError, _reason_as_json, _reason_from_json)
for _kind in _RESULTS.values():
    plain_form(_kind, _result_as_json, _result_from_json)
plain_form(
    Context,
    lambda context: {name: getattr(context, name) for name in _IN_CONTEXT},
    lambda data: restore_fields(Context, data, messages=History()),
)
