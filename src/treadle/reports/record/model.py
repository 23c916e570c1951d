"""Recorded runs as data: what `treadle.reports.read_record` returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from treadle.messages import JSONDict, Usage


@dataclass(slots=True)
class Change:
    """Messages that came into a conversation.

    Args:
        start: the place of the first of them; what was there before and behind it is no longer part.
        messages: the messages.
        dropped: how many were there before and are no longer: not 0 where the history was rewritten.
    """

    start: int
    messages: list[JSONDict]
    dropped: int = 0


@dataclass(slots=True)
class Retry:
    """A try that failed, and that another followed.

    Args:
        attempt: the number of the try, from 1.
        error: what went wrong.
        error_type: the class of what was raised, or ``timeout``.
        delay: seconds until the next try.
        at: seconds since the epoch.
    """

    attempt: int
    error: str
    error_type: str
    delay: float
    at: float | None


@dataclass(slots=True)
class Guard:
    """Something that held a run back.

    Args:
        kind: ``suppressed``, ``deferred``, ``refused`` (over a budget, or its tool is out of order), ``invalid``,
            ``nudged``, ``breaker`` or ``limit``.
        iteration: the number of the iteration.
        detail: more of it: the reason in one word, ``closed to open``, a count, or a text.
        call_id: the call that it is about; None where it is about none.
        tool: the tool that it is about; empty where it is about none.
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
        name: the tool, as the model wrote it.
        arguments: JSON text, as the model wrote it; it may be malformed.
        iteration: the number of the iteration.
        within: the id of the call whose recipe it is a step of; None of one that the model made.
        status: that of its result (``done``, ``invalid``, ``suppressed``, ``deferred``, ``over_budget``,
            ``denied``, ``broken``, ``skipped``, ``cancelled``, ``timeout``); ``waiting`` where a person has to
            decide; ``running`` or ``asked`` where the record ends before there is one.
        is_error: it failed, or was not made.
        content: what the model was told; None where there is no result.
        started_at: seconds since the epoch; None where it did not run.
        ended_at: seconds since the epoch; None where it did not run, or not to its end.
        duration: seconds that it took, retries included; None as above.
        held: why it did not run, in one word; empty where it did.
        problems: what was wrong with its arguments.
        nudges: how often the same call was made, where its result says so; 0 elsewhere.
        retries: its tries that failed.
        runs: the runs that it was made of, one for each try.
    """

    id: str
    name: str
    arguments: str = ""
    iteration: int = 0
    within: str | None = None
    status: str = "asked"
    is_error: bool = False
    content: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    duration: float | None = None
    held: str = ""
    problems: tuple[str, ...] = ()
    nudges: int = 0
    retries: list[Retry] = field(default_factory=list[Retry])
    runs: list[Run] = field(default_factory=list["Run"])


@dataclass(slots=True)
class Iteration:
    """One model call and its tools.

    Args:
        number: from 1.
        started_at: seconds since the epoch; None where the record begins later.
        first_piece_at: when a streamed answer began, in seconds since the epoch; None of others.
        answered_at: when the model had answered, in seconds since the epoch; None where it did not.
        ended_at: seconds since the epoch; None where it did not end.
        model_seconds: what the model took, retries included; None where it did not answer.
        response: the answer, with the fields of `treadle.Response`; None where there is none.
        usage: its tokens; None where nobody told.
        streamed: the text that came in pieces before an answer that never was whole.
        retries: tries to ask the model that failed.
        failure: why the model could not be asked; empty where it could.
        guidance: what the model was told in this request only.
        plan: why the calls were planned as they were, in one word.
        calls: in the order of the request; those that are steps of recipes behind them.
        guards: what held the run back here.
        steered: what the user said before it.
        sent: the messages that came before the model was asked.
        added: the messages that came by the end of it.
        status: ``continue``, ``ok``, ``error`` or ``paused``; empty where it did not end.
        stages: the stages that it entered.
    """

    number: int
    started_at: float | None = None
    first_piece_at: float | None = None
    answered_at: float | None = None
    ended_at: float | None = None
    model_seconds: float | None = None
    response: JSONDict | None = None
    usage: Usage | None = None
    streamed: str = ""
    retries: list[Retry] = field(default_factory=list[Retry])
    failure: str = ""
    guidance: str | None = None
    plan: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    guards: list[Guard] = field(default_factory=list[Guard])
    steered: list[JSONDict] = field(default_factory=list[JSONDict])
    sent: Change | None = None
    added: Change | None = None
    status: str = ""
    stages: tuple[str, ...] = ()


@dataclass(slots=True)
class Run:
    """One run, or a run that a call is made of.

    Args:
        run_id: its id.
        agent_name: whose run it is.
        started_at: seconds since the epoch; None where the record does not say.
        ended_at: seconds since the epoch; None where it did not end.
        last_at: the last time that the record tells of, in seconds since the epoch.
        status: ``ok``, ``error``, ``paused``, ``cancelled``, or ``did not end``: the record stops before the end.
        stop_reason: why it ended, in one word; empty where it did not.
        reason: why there is no answer, in a sentence; empty where there is one.
        limit: the limit at which it was asked for a last answer; empty elsewhere.
        output: the arguments of the terminal tool that ended it, as JSON.
        pending: the calls that wait, where it is paused.
        usage: the tokens it took, those of runs within it too; where it did not end, those that were told.
        total_iterations: the model calls it made.
        tool_calls_count: the tool calls that ran.
        limits: how much it may take, with the fields of `treadle.Limits`.
        tools: the tools that the model may call, in OpenAI's form.
        model: the model that was asked for; empty where nobody told.
        provider: who serves it; empty where nobody told.
        request: options of every request, such as ``temperature``.
        iterations: in order.
        messages: the conversation as it is in the end.
        ending: the messages that came with the end.
        repairs: what was mended in the messages that came in.
        guards: all that held it back, in order.
        pauses: when it was paused and gone on with, in seconds since the epoch.
        others: events of kinds that are not treadle's.
    """

    run_id: str
    agent_name: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    last_at: float | None = None
    status: str = "did not end"
    stop_reason: str = ""
    reason: str = ""
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

    @property
    def calls(self) -> Iterator[Call]:
        """All tool calls, in order."""
        return (call for iteration in self.iterations for call in iteration.calls)

    @property
    def children(self) -> Iterator[Run]:
        """The runs that its calls are made of."""
        return (run for call in self.calls for run in call.runs)

    @property
    def duration(self) -> float | None:
        """Seconds from its start to its end, or to the last that is told; without the time that it was paused."""
        end = self.last_at if self.ended_at is None else self.ended_at
        if self.started_at is None or end is None:
            return None
        return end - self.started_at - sum(later - before for before, later in self.pauses)


@dataclass(slots=True)
class Record:
    """What a file of recorded runs has.

    Args:
        runs: in the order in which they began.
        problems: what could be read around, such as a torn last line; each names the file and the line.
    """

    runs: list[Run] = field(default_factory=list[Run])
    problems: list[str] = field(default_factory=list[str])
