"""The JSON fields of each kind of event in a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from treadle.context import Context
from treadle.events import (
    EVENT_TYPES,
    Event,
    IterationFinished,
    IterationStarted,
    ModelRequested,
    RunFinished,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from treadle.messages import JSONDict, ToolResult
from treadle.results import Err, Ok, Paused, Result
from treadle.tracebacks import format_traceback

Fields: TypeAlias = dict[str, Any]


EVENT_NAMES: Mapping[type, str] = {kind: name for name, kind in EVENT_TYPES.items()}
"""The name of each kind of event: ``ToolFinished`` is ``tool_finished``. Those of subagents have the same."""

DELTAS = frozenset({"text_delta", "reasoning_delta", "tool_call_delta", "partial_output"})
"""The names of the pieces of a streamed response."""

OTHER = "other"
"""The name of every event that a custom stage emits."""


class Lines:
    """Makes the fields of the events of one run. A subagent's run has its own instance.

    It remembers which messages were written, so that each message is written once.
    """

    def __init__(self) -> None:
        self._written: list[JSONDict] = []
        self._last: Sequence[JSONDict] | None = None
        self._started: RunStarted | None = None
        self._started_calls: set[str] = set()
        self._finished_calls: set[str] = set()

    def fields_of(self, event: Event) -> Fields:
        """The fields of an event, without those that every line has. They become JSON when they are written."""
        if type(event) not in EVENT_NAMES:
            return {"kind": type(event).__name__, "data": event}
        facts = _facts_of(event)
        match event:
            case RunStarted():
                del facts["run_id"], facts["state"]
                self._started, self._written, self._last = event, [], None
            case IterationStarted():
                self._started_calls, self._finished_calls = set(), set()
            case ModelRequested():
                facts |= self._request(facts.pop("messages"))
            case ToolStarted(call=call):
                self._started_calls.add(call.id)
                # Every line may have `within`: the path of the run that it belongs to.
                facts["of"] = facts.pop("within")
            case ToolFinished(call=call, result=result):
                self._finished_calls.add(call.id)
                facts["result"] = _result_of(result)
            case IterationFinished(context=context):
                del facts["context"]
                facts |= self._outcome(context) | self._change(context.messages)
            case RunFinished():
                facts |= self._summary(facts.pop("result"))
            case _:
                pass
        return facts

    def _request(self, messages: Sequence[JSONDict]) -> Fields:
        """The messages of a request: the conversation, or a view that stages made of it."""
        start, state = len(self._written), self._started and self._started.state
        if not start and state:
            self._change(state.history)
        view = None
        if messages is self._last or common_prefix(self._written, messages) == len(self._written):
            self._change(messages)
        else:
            view = view_of(self._written, messages)
        return {"messages_from": start, "messages": self._written[start:], "view": view}

    def _change(self, messages: Sequence[JSONDict]) -> Fields:
        """The messages that differ from those written before, and the index of the first of them."""
        if messages is self._last:  # as at the end of one iteration and the start of the next
            start, new = len(messages), []
        else:
            start = common_prefix(self._written, messages)
            new = list(messages[start:])
            self._written[start:] = new
            self._last = messages
        return {"messages_from": start, "messages": new}

    def _outcome(self, context: Context) -> Fields:
        """How an iteration ended: calls and results without events, and guidance for the next."""
        calls, results = context.tool_calls, context.tool_results.items()
        return {
            "status": context.status,
            "calls": [call.id for call in calls],
            "not_started": [call for call in calls if call.id not in self._started_calls],
            "results": [_result_of(one) for key, one in results if key not in self._finished_calls],
            "invalid": context.validation_errors,
            "guidance": context.guidance,
            "error": context.error,
            "stages": context.trace,
        }

    def _summary(self, result: Result | None) -> Fields:
        facts: Fields = {"status": "cancelled", "reason": None, "limit": None, "output": None}
        facts |= {"pending": (), "traceback": None}
        if result is None:
            # Nothing is returned, but the run state has the history.
            state = self._started and self._started.state
            return facts | self._change(state.history if state else self._written)
        match result:
            case Ok(limit=limit):
                output = result.output if result.has_data else None  # the text is in the messages
                facts |= {"status": "ok", "limit": limit, "output": output}
            case Err(reason=reason):
                facts |= {"status": "error", "reason": reason}
                facts["traceback"] = _traceback_of(getattr(reason, "cause", None))
            case Paused(pending=pending):
                facts |= {"status": "paused", "pending": pending}
        return facts | self._change(result.messages)


def _facts_of(event: Event) -> Fields:
    facts = {spec.name: getattr(event, spec.name) for spec in fields(event)}
    if "exception" in facts:
        facts["traceback"] = _traceback_of(facts.pop("exception"))
    return facts


def _result_of(result: ToolResult) -> Fields:
    """The fields of a result without its content parts, which the messages have."""
    return {
        name: getattr(result, name) for name in ("tool_call_id", "content", "is_error", "status")
    }


def _traceback_of(error: BaseException | None) -> str | None:
    return None if error is None else format_traceback(error)


def view_of(history: Sequence[JSONDict], sent: Sequence[JSONDict]) -> list[JSONDict | list[int]]:
    """A request as new messages and as ranges ``[start, end]`` of the history.

    So a view that drops, replaces or adds a few messages costs a few numbers, however long the history is.
    """
    places = {id(message): place for place, message in enumerate(history)}
    view: list[JSONDict | list[int]] = []
    expected = 0
    for message in sent:
        place = places.get(id(message))
        if place is None and expected < len(history) and _are_equal(history[expected], message):
            place = expected
        if place is None:
            view.append(message)
            expected += 1  # most often it replaces one
            continue
        last = view[-1] if view else None
        if isinstance(last, list) and last[1] == place:
            last[1] = place + 1
        else:
            view.append([place, place + 1])
        expected = place + 1
    return view


def common_prefix(before: list[JSONDict], now: Sequence[JSONDict]) -> int:
    """The number of messages at the start that are equal.

    A history grows at its end, so nearly always they are the same dicts. To compare lists of those takes some
    nanoseconds a message, less than the rest of the work even at ten thousand messages.
    """
    least = min(len(before), len(now))
    if _are_equal(before if least == len(before) else before[:least], now[:least]):
        return least
    return next((at for at in range(least) if not _are_equal(before[at], now[at])), least)


def _are_equal(before: Any, now: Any) -> bool:
    try:
        return before == now
    except Exception:  # noqa: BLE001 - a user-supplied value that cannot be compared
        return False
