"""Where two runs differ first: `diff` of two recordings, of two results, or of a recording and a result."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from treadle.messages import JSONDict, is_dict, is_list
from treadle.recording.configuration import changes_between, excerpts
from treadle.recording.model import Call, Iteration, Recording, Run
from treadle.recording.reader import read_recording
from treadle.results import Err, Ok, Paused, Result

Comparable: TypeAlias = "Result[Any] | Run | Recording | str | os.PathLike[str]"
"""What `diff` compares: a result, a run of a recording, a recording, or its path."""


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING: Any = _Missing()
"""Stands for a part that one of two values does not have."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference of two runs.

    Args:
        iteration: the number of the iteration; 0 before the first.
        what: what differs, such as ``the request to the model``.
        path: the place of the first difference in it, such as ``messages[2].content``; empty if all of it differs.
        a: what the first run has there.
        b: what the second run has there.
        within: if a subagent differs, the names of the tools that lead to it, outermost first.
        changes: what has changed of the loop, as far as both recordings have its configuration.
        names: what the two are called in the text.
        run: the place of the run in the recordings, from 0.
    """

    iteration: int
    what: str
    path: str
    a: Any
    b: Any
    within: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    names: tuple[str, str] = ("a", "b")
    run: int = 0

    def __str__(self) -> str:
        where = f"iteration {self.iteration}" if self.iteration else "before the first iteration"
        within = "".join(f", within {name!r}" for name in self.within)
        place = f", at {self.path}" if self.path else ""
        widest = max(map(len, self.names))
        shown = excerpts(_text(self.a), _text(self.b))
        lines = [f"{where}{within}: {self.what} differs{place}"]
        pairs = zip(self.names, shown, strict=True)
        lines += [f"  {name:>{widest}}: {text}" for name, text in pairs]
        lines += [f"  changed: {change}" for change in self.changes]
        return "\n".join(lines)


def _text(value: Any) -> str:
    return (
        repr(value)
        if isinstance(value, str) or value is NOTHING
        else json.dumps(value, default=repr)
    )


def diff(a: Comparable, b: Comparable) -> Divergence | None:
    """Find the first difference of two runs: of what was asked, answered and done in them.

    Times, ids and tokens are not compared. Of a result, only the messages and the end are known, so a recording is
    compared with it by these.

    Args:
        a: a recording, the path of one, a run of one, or a result.
        b: the other one. Several runs of two recordings are compared one by one, in order.

    Returns:
        The difference; None if there is none.

    Raises:
        RecordingError: a file is not a recording.
        OSError: a file cannot be read.
    """
    pairs = itertools.zip_longest(_runs_of(a), _runs_of(b))
    for place, (one, other) in enumerate(pairs):
        found = _diff(one, other, place)
        if found is not None:
            return found
    return None


def _runs_of(given: Comparable) -> Sequence[Run | Result[Any]]:
    if isinstance(given, (str, os.PathLike)):
        given = read_recording(given)
    return given.runs if isinstance(given, Recording) else [given]


def _diff(
    a: Run | Result[Any] | None, b: Run | Result[Any] | None, place: int
) -> Divergence | None:
    if a is None or b is None:
        first, second = (NOTHING if one is None else "a run" for one in (a, b))
        return Divergence(0, "the number of runs", "", first, second, run=place)
    if isinstance(a, Run) and isinstance(b, Run) and has_events(a) and has_events(b):
        found = _first(itertools.zip_longest(_steps_of_run(a), _steps_of_run(b)))
        changes = _changes(a, b) if found is not None else ()
    else:
        found = _first(itertools.zip_longest(_steps_of_messages(a), _steps_of_messages(b)))
        changes = ()
    return None if found is None else dataclasses.replace(found, changes=changes, run=place)


def has_events(run: Run) -> bool:
    """Whether it has the events of its iterations; the export of a journal has none."""
    return bool(run.iterations)


def diff_so_far(a: Run, b: Run) -> Divergence | None:
    """The first difference of a run and one that has not ended, as far as the second one has come."""
    return _first(zip(_steps_of_run(a), _steps_of_run(b, is_over=False), strict=False))


def _changes(a: Run, b: Run) -> tuple[str, ...]:
    if not (a.segments and b.segments):
        return ()
    first, second = (run.segments[0].start["configuration"] for run in (a, b))
    return tuple(changes_between(first, second))


# Steps


class _Step(NamedTuple):
    """Something that a run did.

    Args:
        iteration: the number of the iteration.
        what: what it is.
        value: its content, as JSON data.
        within: the names of the tools that lead to the subagent that did it.
    """

    iteration: int
    what: str
    value: Any
    within: tuple[str, ...] = ()


def _first(pairs: Iterable[tuple[_Step | None, _Step | None]]) -> Divergence | None:
    """The difference of the first pair of steps that differ."""
    for one, other in pairs:
        step = one or other
        if step is None or one == other:
            continue
        what, path, a, b = "what happens next", "", NOTHING, NOTHING
        if one is None or other is None or (one.what, one.within) != (other.what, other.within):
            a, b = (NOTHING if each is None else each.what for each in (one, other))
        else:
            what, difference = one.what, first_difference(one.value, other.value)
            path, a, b = difference or ("", one.value, other.value)
        return Divergence(step.iteration, what, path, a, b, step.within)
    return None


def first_difference(a: Any, b: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """The place of the first difference of two JSON values, and what is there in each; None if they are equal."""
    if is_dict(a) and is_dict(b):
        for key in [*a, *(key for key in b if key not in a)]:
            where = f"{path}.{key}" if path else str(key)
            found = first_difference(a.get(key, NOTHING), b.get(key, NOTHING), where)
            if found is not None:
                return found
        return None
    if is_list(a) and is_list(b):
        for place, (one, other) in enumerate(itertools.zip_longest(a, b, fillvalue=NOTHING)):
            found = first_difference(one, other, f"{path}[{place}]")
            if found is not None:
                return found
        return None
    return None if a == b else (path, a, b)


class _Ids(dict[str, str]):
    """Names of calls by their ids, in the order of their appearance: ids differ in each run."""

    def __missing__(self, call_id: str) -> str:
        self[call_id] = name = f"call {len(self) + 1}"
        return name

    def in_message(self, message: JSONDict) -> JSONDict:
        """A message with these names in place of the ids."""
        made = dict(message)
        if isinstance(made.get("tool_call_id"), str):
            made["tool_call_id"] = self[made["tool_call_id"]]
        if is_list(made.get("tool_calls")):
            made["tool_calls"] = [self._in_call(one) for one in made["tool_calls"]]
        return made

    def _in_call(self, call: Any) -> Any:
        if not is_dict(call):
            return call
        made = {**call, "id": self[str(call.get("id"))]}
        function = made.get("function")
        if is_dict(function):
            made["function"] = {**function, "arguments": _decoded(function.get("arguments"))}
        return made


def _decoded(arguments: Any) -> Any:
    """The arguments of a call as data, if they are JSON, so that a difference in them can be named."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _steps_of_run(
    run: Run, within: tuple[str, ...] = (), *, is_over: bool = True
) -> Iterator[_Step]:
    """What a run did, in order; of one that is not over, only what is complete."""
    conversation: list[JSONDict] = []
    ids = _Ids()
    offer = {"model": run.model, "tools": run.tools, "options": run.request}
    for iteration in run.iterations:
        number = iteration.number
        _apply(conversation, iteration.sent, ids)
        if is_over or iteration.asked_at is not None:
            yield _Step(
                number, _REQUEST, {**offer, **_request(iteration, conversation, ids)}, within
            )
        if is_over or iteration.response is not None:
            yield _Step(number, _RESPONSE, _response(iteration), within)
        for call in iteration.calls:
            for child in call.runs:
                yield from _steps_of_run(child, (*within, call.name), is_over=is_over)
            if is_over or call.content is not None:
                yield _Step(number, f"the result of {call.name!r}", _outcome(call), within)
        _apply(conversation, iteration.added, ids)
        offer = {}
    if is_over:
        yield _Step(run.total_iterations, "the end of the run", _ending(run), within)


_REQUEST = "the request to the model"
_RESPONSE = "the response of the model"


def _apply(conversation: list[JSONDict], change: Any, ids: _Ids) -> None:
    if change is not None:
        conversation[change.start :] = map(ids.in_message, change.messages)


def _request(iteration: Iteration, conversation: Sequence[JSONDict], ids: _Ids) -> JSONDict:
    view = iteration.view
    messages = conversation if view is None else map(ids.in_message, view)
    return {
        "instructions": iteration.instructions,
        "guidance": iteration.guidance,
        "messages": list(messages),
    }


def _response(iteration: Iteration) -> JSONDict:
    response = iteration.response or {}
    calls = response.get("tool_calls", ())
    return {
        "failure": iteration.failure,
        "retries": [retry.error for retry in iteration.retries],
        "content": response.get("content"),
        "reasoning": response.get("extra", {}).get("reasoning"),
        "tool_calls": [
            {"name": call["name"], "arguments": _decoded(call["arguments"])} for call in calls
        ],
        "finish_reason": response.get("finish_reason"),
    }


def _outcome(call: Call) -> JSONDict:
    return {
        "arguments": _decoded(call.arguments),
        "not_run": call.not_run,
        "status": call.status,
        "content": call.content,
        "retries": [retry.error for retry in call.retries],
    }


def _ending(run: Run) -> JSONDict:
    return {
        "status": run.status,
        "stop_reason": run.stop_reason,
        "reason": run.reason,
        "limit": run.limit,
        "output": run.output,
    }


# Messages alone

_STATUS = {Ok: "ok", Err: "error", Paused: "paused"}


def _steps_of_messages(given: Run | Result[Any]) -> Iterator[_Step]:
    """The messages of a run, and its end."""
    ids = _Ids()
    if isinstance(given, Run):
        total, status, reason = given.total_iterations, given.status, given.reason
    else:
        total, status = given.iterations, _STATUS[type(given)]
        reason = str(given.reason) if isinstance(given, Err) else ""
    left = sum(message.get("role") == "assistant" for message in given.messages)
    for place, message in enumerate(given.messages):
        if message.get("role") == "assistant":
            left -= 1
        iteration = max(0, total - left)
        yield _Step(iteration, f"message {place}", ids.in_message(message))
    ending = {"status": status, "stop_reason": given.stop_reason, "reason": reason}
    yield _Step(total, "the end of the run", ending)
