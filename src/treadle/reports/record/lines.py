"""The lines of a record: what each kind of event says, as JSON fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias, get_args

from treadle.context import Context
from treadle.events import (
    Event,
    IterationFinished,
    IterationStarted,
    LimitReached,
    RunFinished,
    RunStarted,
    SubagentEvent,
    ToolFinished,
    ToolStarted,
)
from treadle.messages import JSONDict, safe_str
from treadle.results import Err, Ok, Paused, Reason

Fields: TypeAlias = dict[str, Any]


def event_name(kind: type) -> str:
    """The name of a kind of event in a record: ``ToolFinished`` is ``tool_finished``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


EVENT_NAMES: Mapping[type, str] = {
    kind: event_name(kind) for kind in get_args(Event) if kind is not SubagentEvent
}
"""The kinds of events that have lines of their own, and their names; of a run within a run, these again."""

OTHER = "other"
"""The name of what a stage tells that is none of treadle's events."""


class Lines:
    """Makes the fields of one run's events; of a run within it, there is another.

    It remembers which messages were written already, so that each is written once.
    """

    def __init__(self) -> None:
        self._written: list[JSONDict] = []
        self._last: Sequence[JSONDict] | None = None
        self._started: RunStarted | None = None
        self._told: set[str] = set()
        self._results: set[str] = set()

    def fields_of(self, event: Event) -> Fields:
        """What a line says of an event, besides which event it is and whose."""
        if type(event) not in EVENT_NAMES:
            return {"kind": type(event).__name__, "told": event}
        facts = _all_of(event, without=_NOT_WRITTEN.get(type(event), ()))
        return facts | self._more(event)

    def _more(self, event: Event) -> Fields:
        """What is not written as the event has it."""
        match event:
            case RunStarted():
                self._started, self._written, self._last = event, [], None
            case IterationStarted():
                self._told, self._results = set(), set()
                return self._new(event.messages)
            case IterationFinished(context=context):
                return self._outcome(context) | self._new(context.messages)
            case LimitReached(reason=reason):
                return {"reason": reason_as_json(reason)}
            case RunFinished():
                return self._summary(event)
            case ToolStarted(call=call, within=within):
                self._told.add(call.id)
                # A line has a `within` of its own: the runs around this one.
                return {"of": within}
            case ToolFinished(call=call):
                self._results.add(call.id)
            case _:
                pass
        return {}

    def _new(self, messages: Sequence[JSONDict]) -> Fields:
        """The messages that are not as they were written before, and the place of the first of them."""
        if messages is self._last:  # as at the end of one iteration and the start of the next
            start, new = len(messages), []
        else:
            start = common(self._written, messages)
            new = list(messages[start:])
            self._written[start:] = new
            self._last = messages
        return {"messages_from": start, "messages": new}

    def _outcome(self, context: Context) -> Fields:
        """How an iteration ended: the calls that no other line tells of, and what the next is told."""
        results = context.tool_results
        return {
            "status": context.status,
            "calls": [call.id for call in context.tool_calls],
            "not_started": [call for call in context.tool_calls if call.id not in self._told],
            "results": [results[key] for key in results if key not in self._results],
            "invalid": context.validation_errors,
            "guidance": context.guidance,
            "error": reason_as_json(context.error),
            "stages": context.trace,
        }

    def _summary(self, event: RunFinished) -> Fields:
        result, started = event.result, self._started
        facts: Fields = {"status": "cancelled", "reason": None, "limit": None, "output": None}
        facts["pending"] = ()
        if result is None:
            # Nothing is returned, but the record of the run has what was done.
            state = None if started is None else started.state
            messages: Sequence[JSONDict] = self._written if state is None else state.history
            return facts | self._new(messages)
        facts["output"] = result.output
        match result:
            case Ok(limit=limit):
                facts |= {"status": "ok", "limit": reason_as_json(limit)}
            case Err(reason=reason):
                facts |= {"status": "error", "reason": reason_as_json(reason)}
            case Paused(pending=pending):
                facts |= {"status": "paused", "pending": pending}
        return facts | self._new(result.messages)


_NOT_WRITTEN: Mapping[type, tuple[str, ...]] = {
    RunStarted: ("run_id", "state"),
    IterationStarted: ("messages",),
    IterationFinished: ("context",),
    ToolStarted: ("within",),
    LimitReached: ("reason",),
    RunFinished: ("result",),
}
"""What events have that lines do not have, or have in other words."""


def reason_as_json(reason: Any) -> Fields | None:
    """A reason to end: its kind, in one word, and its text."""
    if reason is None:
        return None
    kind = reason.stop_reason if isinstance(reason, Reason) else "error"
    return {"kind": kind, "text": safe_str(reason)}


def common(before: list[JSONDict], now: Sequence[JSONDict]) -> int:
    """How many messages at the start are the same.

    A history grows at its end, so that they are nearly always the very same dicts. To compare lists of those
    takes some nanoseconds a message; it is still less than the rest at ten thousand messages.
    """
    least = min(len(before), len(now))
    if _are_alike(before if least == len(before) else before[:least], now[:least]):
        return least
    for place in range(least):
        if not _are_alike(before[place], now[place]):
            return place
    return least


def _are_alike(before: Any, now: Any) -> bool:
    try:
        return before == now
    except Exception:  # noqa: BLE001 - a value of somebody else's that cannot be compared
        return False


def _all_of(event: Any, *, without: tuple[str, ...] = ()) -> Fields:
    """The fields of an event, in their order; what is in them is made JSON when the line is written."""
    return {
        spec.name: getattr(event, spec.name) for spec in fields(event) if spec.name not in without
    }
