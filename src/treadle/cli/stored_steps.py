"""What happened in a part of a run, from its log: the requests to the model and the calls, with their outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from treadle import labels
from treadle.durable import StoredPart
from treadle.fast_dataclass import fast_dataclass
from treadle.messages import JSONDict, Response, ToolCall, ToolResult
from treadle.recording.log import STARTED, Entry


@fast_dataclass
class Step:
    """A request to the model, a call, or a message that was sent to the run.

    Args:
        within: the call of the subagent that it is a part of; empty for the run itself.
        iteration: the number of the iteration of a request; None for others.
        call: the call, as the model wrote it; None for others.
        outcome: a `Response`, a `ToolResult`, or the message; None if it failed, or is not over.
        error: what was raised instead.
        began: when it started, in seconds since the epoch.
        ended: when it ended; None if it is not over.
    """

    within: str
    iteration: int | None
    call: ToolCall | None
    outcome: Any
    error: BaseException | None
    began: float
    ended: float | None

    def as_json(self) -> JSONDict:
        """The step as JSON data."""
        made: JSONDict = {"within": self.within} if self.within else {}
        if self.call is not None:
            made |= {"call": self.call.id, "name": self.call.name, "arguments": self.call.arguments}
        elif self.iteration is not None:
            made["iteration"] = self.iteration
        outcome = self.outcome
        if isinstance(outcome, Response):
            calls = [[one.id, one.name, one.arguments] for one in outcome.tool_calls]
            made |= {"content": outcome.content, "model": outcome.model, "tool_calls": calls}
        elif isinstance(outcome, ToolResult):
            made |= {"content": outcome.content, "status": outcome.status}
            made["is_error"] = outcome.is_error
        elif outcome is not None:
            made["message"] = outcome
        if self.error is not None:
            made["error"] = f"{type(self.error).__name__}: {self.error}"
        return {**made, "began": self.began, "ended": self.ended}


def steps_of(part: StoredPart) -> Iterator[Step]:
    """The steps of a part, in the order in which they ended; then those that are not over."""
    calls = _Calls(part.start)
    started: dict[Any, Step] = {}
    for entry in part.log:
        if entry.label == labels.CHAT and entry.kind == "call":
            yield calls.request(entry)
        elif entry.label == labels.STEER:
            for message in entry.outcome or ():
                yield Step("", None, None, message, None, entry.at, entry.at)
        elif entry.label == labels.EXECUTE_TOOL and entry.kind == STARTED:
            started.setdefault(entry.place, calls.call(entry))
        elif entry.label == labels.EXECUTE_TOOL:
            yield calls.call(entry, started.pop(entry.place, None))
    yield from started.values()


class _Calls:
    """Finds the calls that entries of a log are about: the log has their ids only.

    Args:
        start: what the part started from; the calls of a paused run are in it.
    """

    def __init__(self, start: Mapping[str, Any]) -> None:
        paused: JSONDict = start.get("paused", {})
        calls: list[JSONDict] = paused.get("tool_calls", [])
        self._latest = {"": [ToolCall(one["id"], one["name"], one["arguments"]) for one in calls]}

    def request(self, entry: Entry) -> Step:
        within, _, number = entry.key.rpartition("/")
        outcome, began, ended = _timed(entry)
        if isinstance(outcome, Response):
            self._latest[within] = list(outcome.tool_calls)
        iteration = int(number) if number.isdecimal() else 0
        return Step(within, iteration, None, outcome, entry.error, began, ended)

    def call(self, entry: Entry, started: Step | None = None) -> Step:
        within, call = self._call_of(entry.key)
        if entry.kind == STARTED:
            return Step(within, None, call, None, None, entry.at, None)
        outcome, began, ended = _timed(entry)
        began = began if started is None or entry.error is None else started.began
        return Step(within, None, call, outcome, entry.error, began, ended)

    def _call_of(self, key: str) -> tuple[str, ToolCall]:
        """The subagent and the call of a key: ``call``, ``call/step of a recipe``, or ``outer call/call``."""
        within = max(
            (one for one in self._latest if key.startswith(f"{one}/")), key=len, default=""
        )
        inner = key.removeprefix(f"{within}/") if within else key
        call_id, slash, step = inner.partition("/")
        # A number is added to an id that an earlier call has, or that is missing; see `parse_tool_calls`.
        base, _, number = call_id.rpartition("_")
        for index, call in enumerate(self._latest[within], 1):
            if call.id in {call_id, base} or (not call.id and number == str(index)):
                return within, ToolCall(inner, f"{call.name}{slash}{step}", call.arguments)
        return within, ToolCall(inner, f"call {inner}", "")


def _timed(entry: Entry) -> tuple[Any, float, float]:
    """The outcome of an entry, and when it started and ended; of others, when they were written."""
    match entry.outcome:
        case (Response() | ToolResult() as outcome, float(began), float(ended)):
            return outcome, began, ended
        case _:  # it failed, or found tools
            return None, entry.at, entry.at
