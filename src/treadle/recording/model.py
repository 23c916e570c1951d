"""Recorded runs as data, as `treadle.reports.read_recording` returns them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from treadle.messages import JSONDict, Timing, Usage, is_list


@dataclass(slots=True)
class Change:
    """A change of a conversation: some messages replace its end.

    Args:
        start: the index of the first of them. Earlier messages at and after this index are removed.
        messages: the messages.
        dropped: the number of messages that were removed; not 0 if the history was rewritten.
    """

    start: int
    messages: list[JSONDict]
    dropped: int = 0


@dataclass(slots=True)
class Retry:
    """A failed attempt that was followed by another.

    Args:
        attempt: the number of the attempt, from 1.
        error: the text of the error.
        error_type: the class of the exception, or ``timeout``.
        delay: seconds until the next attempt.
        at: seconds since the epoch.
        traceback: of the exception of a tool; None if there is none.
    """

    attempt: int
    error: str
    error_type: str
    delay: float
    at: float | None
    traceback: str | None = None


@dataclass(slots=True)
class Guard:
    """A guard that took effect.

    Args:
        kind: ``not_run``, ``invalid``, ``nudged``, ``breaker``, ``repaired``, ``compacted``, ``not compacted`` or
            ``limit``.
        iteration: the number of the iteration.
        detail: the reason in one word, ``closed to open``, a count, or a text.
        call_id: the call that it affects; None if it affects none.
        tool: the tool that it affects; empty if it affects none.
    """

    kind: str
    iteration: int
    detail: str
    call_id: str | None = None
    tool: str = ""


@dataclass(slots=True)
class Call:
    """A tool call.

    Args:
        id: its id.
        name: the tool, as the model wrote it. A run that a stage made, such as one that summarises, is in a call
            with the name of its agent, which has no times.
        arguments: JSON text, as the model wrote it; it may be malformed.
        iteration: the number of the iteration.
        within: the id of the call whose recipe has this step; None for a call that the model made.
        status: the status of its result (``done``, ``invalid``, ``suppressed``, ``recalled``, ``deferred``,
            ``over_budget``, ``denied``, ``broken``, ``skipped``, ``cancelled``, ``timeout``); ``waiting`` for an
            approval; ``running`` or ``asked`` if the recording ends before there is a result.
        is_error: it failed, or it did not run.
        content: the text of the result; None if there is none.
        traceback: of the exception that the tool raised; None if there is none.
        started_at: seconds since the epoch; None if it did not run.
        ended_at: seconds since the epoch; None if it did not run or did not end.
        duration: seconds, retries included; None if it did not run or did not end.
        not_run: why it did not run, in one word; empty if it ran.
        problems: the problems of its arguments.
        nudges: how often the same call was made, if its result has a note about it; else 0.
        progress: the latest message with which its tool reported progress; empty if there is none.
        retries: its failed attempts.
        runs: the runs of the subagent that it called, one for each attempt.
    """

    id: str
    name: str
    arguments: str = ""
    iteration: int = 0
    within: str | None = None
    status: str = "asked"
    is_error: bool = False
    content: str | None = None
    traceback: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    duration: float | None = None
    not_run: str = ""
    problems: tuple[str, ...] = ()
    nudges: int = 0
    progress: str = ""
    retries: list[Retry] = field(default_factory=list[Retry])
    runs: list[Run] = field(default_factory=list["Run"])


@dataclass(slots=True)
class Iteration:
    """One iteration: a model call and its tool calls.

    Args:
        number: from 1.
        started_at: seconds since the epoch; None if the recording begins later.
        asked_at: when the model was called, in seconds since the epoch; None if it was not.
        first_chunk_at: when a streamed response began, in seconds since the epoch; None if it was not streamed.
        answered_at: when the response was complete, in seconds since the epoch; None if there is none.
        ended_at: seconds since the epoch; None if it did not end.
        model_seconds: duration of the model call, retries included; None if there is no response.
        response: the response, with the fields of `treadle.Response`; None if there is none.
        usage: its tokens; None if the model did not report them.
        streamed: the text of a streamed response that was never completed.
        retries: failed attempts to call the model.
        failure: why the model call failed; empty if it did not.
        failed_at: when it failed, in seconds since the epoch; None if it did not.
        guidance: advice that was part of this request only.
        instructions: the system message of the request, which is not in the history; None if there is none.
        plan: the reason of the plan, in one word.
        calls: in the order of the response, followed by the steps of recipes.
        guards: the guards that took effect here.
        steered: user messages that were added before it.
        sent: the change of the conversation before the model was called.
        view: the messages of the request, if stages sent something other than the conversation; else None.
        added: the change of the conversation by its end.
        status: ``continue``, ``ok``, ``error`` or ``paused``; empty if it did not end.
        stages: the stages that ran.
    """

    number: int
    started_at: float | None = None
    asked_at: float | None = None
    first_chunk_at: float | None = None
    answered_at: float | None = None
    ended_at: float | None = None
    model_seconds: float | None = None
    response: JSONDict | None = None
    usage: Usage | None = None
    streamed: str = ""
    retries: list[Retry] = field(default_factory=list[Retry])
    failure: str = ""
    failed_at: float | None = None
    guidance: str | None = None
    instructions: str | None = None
    plan: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    guards: list[Guard] = field(default_factory=list[Guard])
    steered: list[JSONDict] = field(default_factory=list[JSONDict])
    sent: Change | None = None
    view: list[JSONDict] | None = None
    added: Change | None = None
    status: str = ""
    stages: tuple[str, ...] = ()

    @property
    def timing(self) -> Timing | None:
        """The times of the request that was answered; None if they are not recorded."""
        times = None if self.response is None else self.response.get("times")
        return Timing(*times) if is_list(times) and len(times) in _TIMES else None

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds to the first piece of a streamed response; None if unknown, or it was not streamed."""
        timing = self.timing
        return None if timing is None else timing.time_to_first_token

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens per second; None if unknown."""
        timing = self.timing
        return None if timing is None else timing.tokens_per_second(self.usage)


_TIMES = (2, 3)
"""How many times a response has: those of a stream are three."""


@dataclass(slots=True)
class Segment:
    """What a replay needs of a run, from its start or a pause to its end or the next pause.

    Args:
        start: what it starts from, as `treadle.recording.run_start.start_of` returns it.
        log: what became of its effects, in order, as JSON data of `treadle.recording.log.Entry`.
        problem: why it cannot be replayed to its end; empty if it can.
    """

    start: JSONDict
    log: list[JSONDict] = field(default_factory=list[JSONDict])
    problem: str = ""


@dataclass(slots=True)
class Run:
    """One run, of a loop or of a subagent.

    Args:
        run_id: its id.
        agent_name: the name of the loop.
        started_at: seconds since the epoch; None if it is not recorded.
        ended_at: seconds since the epoch; None if it did not end.
        last_at: the last recorded time, in seconds since the epoch.
        status: ``ok``, ``error``, ``paused``, ``cancelled``, or ``did not end``: the recording ends earlier.
        stop_reason: why it ended, in one word; empty if it did not.
        reason: why there is no answer, in a sentence; empty if there is one.
        traceback: of the exception that is the cause of the reason; None if there is none.
        limit: the limit after which the model was asked for a last answer; empty if there was none.
        output: the arguments of the terminal tool that ended it, as JSON.
        pending: the calls that wait for approval, if it is paused.
        usage: its tokens, those of subagents included; if it did not end, the tokens recorded so far.
        total_iterations: the number of iterations.
        tool_calls_count: the number of tool calls that ran.
        limits: its limits, with the fields of `treadle.Limits`.
        tools: the tools offered to the model, in OpenAI's format.
        model: the requested model; empty if unknown.
        provider: the provider; empty if unknown.
        request: options of every request, such as ``temperature``.
        iterations: in order.
        messages: the conversation at the end.
        ending: the change of the conversation at the end.
        repairs: the repairs of the caller's messages.
        guards: all guards that took effect, in order.
        pauses: when it was paused and when it was resumed, in seconds since the epoch.
        others: custom events.
        segments: what a replay needs of it; empty for a subagent, and if its log was not recorded.
    """

    run_id: str
    agent_name: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    last_at: float | None = None
    status: str = "did not end"
    stop_reason: str = ""
    reason: str = ""
    traceback: str | None = None
    limit: str = ""
    output: Any = None
    pending: list[JSONDict] = field(default_factory=list[JSONDict])
    usage: Usage = field(default_factory=Usage)
    total_iterations: int = 0
    tool_calls_count: int = 0
    limits: JSONDict = field(default_factory=dict[str, Any])
    tools: list[JSONDict] = field(default_factory=list[JSONDict])
    model: str = ""
    provider: str = ""
    request: JSONDict = field(default_factory=dict[str, Any])
    iterations: list[Iteration] = field(default_factory=list[Iteration])
    messages: list[JSONDict] = field(default_factory=list[JSONDict])
    ending: Change | None = None
    repairs: tuple[str, ...] = ()
    guards: list[Guard] = field(default_factory=list[Guard])
    pauses: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    others: list[JSONDict] = field(default_factory=list[JSONDict])
    segments: list[Segment] = field(default_factory=list[Segment])

    @property
    def calls(self) -> Iterator[Call]:
        """All tool calls, in order."""
        return (call for iteration in self.iterations for call in iteration.calls)

    @property
    def duration(self) -> float | None:
        """Seconds from its start to its end or to the last recorded time, without pauses."""
        end = self.last_at if self.ended_at is None else self.ended_at
        if self.started_at is None or end is None:
            return None
        return end - self.started_at - sum(later - before for before, later in self.pauses)


@dataclass(slots=True)
class Recording:
    """The content of a recording.

    Args:
        runs: in the order in which they started.
        problems: lines that were skipped, such as a torn one, and runs that lack lines; each names the file.
    """

    runs: list[Run] = field(default_factory=list[Run])
    problems: list[str] = field(default_factory=list[str])
