"""What was learned from the calls that a compaction removes from the view: it survives outside the history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from treadle.context import Context, check_call
from treadle.messages import JSONDict, ToolCall
from treadle.messages.sanitizing import sendable
from treadle.sessions.compaction.strategies import request_of, text_of

MAX_ARGUMENTS = 100
"""The number of characters of the arguments of a call in the list of calls."""
MAX_RESULT = 80
"""The number of characters of a result in the list of calls."""


class ListedCall(NamedTuple):
    """A call in the list of calls next to a summary.

    Args:
        fingerprint: that of the call.
        call: its name and the start of its arguments, on one line.
        result: the start of its result, on one line; empty for an earlier call.
    """

    fingerprint: str
    call: str
    result: str

    def __str__(self) -> str:
        return f"{self.call}: {self.result}" if self.result else self.call


def merged(listed: Iterable[ListedCall], made: Iterable[Made]) -> list[ListedCall]:
    """A list of calls with others at its end; of the same calls, the latest stays."""
    calls = {one.fingerprint: one for one in listed}
    for one in made:
        calls.pop(one.call.fingerprint, None)
        calls[one.call.fingerprint] = one.listed
    return list(calls.values())


def fitted(calls: Sequence[ListedCall], limit: int) -> tuple[ListedCall, ...]:
    """The calls that fit into a number of characters: the latest, and their results in up to half of it.

    If all fit with their results, they all have them.
    """
    is_short = sum(len(str(one)) + 1 for one in calls) <= limit
    with_results = limit if is_short else limit // 2
    shown: list[ListedCall] = []
    for one in reversed(calls):
        length = len(str(one)) + 1
        if length > with_results:
            one, with_results = one._replace(result=""), 0  # noqa: PLW2901
            length = len(one.call) + 1
        limit, with_results = limit - length, max(with_results - length, 0)
        if limit < 0:
            break
        shown.append(one)
    return tuple(reversed(shown))


class Made(NamedTuple):
    """A call that has a result in the history.

    Args:
        call: the call, as it was checked.
        result: its tool message.
        known: the text of the latest result that the run has of this call; None if it has none. The message may
            only say why the call did not run.
    """

    call: ToolCall
    result: Mapping[str, Any]
    known: str | None

    @property
    def listed(self) -> ListedCall:
        """The call in the list of calls."""
        call = self.call
        arguments = _start(call.arguments, MAX_ARGUMENTS)
        text = text_of(self.result) if self.known is None else self.known
        made = f"{call.name}({arguments})"
        return ListedCall(call.fingerprint, made, _start(text, MAX_RESULT))

    @property
    def has_result(self) -> bool:
        """Whether all of the latest result is in the message."""
        return self.known is None or self.known in text_of(self.result)


def _start(text: str, most: int) -> str:
    """The start of a text, on one line."""
    words = " ".join(text[: most * 2].split())
    return words if len(words) <= most and len(text) <= most * 2 else f"{words[:most]}…"


def calls_in(ctx: Context, messages: Sequence[JSONDict]) -> Iterator[Made]:
    """The calls in a part of a history that have results, in order of their results."""
    made: dict[str, ToolCall] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            made[call["id"]] = _checked(ctx, call)
        found = made.get(message.get("tool_call_id", ""))
        if found is not None:
            latest = ctx.run.repeats.answers.get(found.fingerprint)
            yield Made(found, message, None if latest is None else sendable(latest.content))


def _checked(ctx: Context, call: JSONDict) -> ToolCall:
    return check_call(ctx, ToolCall(call["id"], *request_of(call)), {}, is_ours=True)[0]


def hide_results(ctx: Context, before: Sequence[JSONDict], view: Sequence[JSONDict]) -> None:
    """Note which results the model no longer sees: such a call is no repetition, and may be recalled.

    Args:
        ctx: the context.
        before: the messages, or parts of them, that the model saw.
        view: what it sees from now on; a message that is shown as it is, is the same object.
    """
    shown = {id(message) for message in view}
    made = list(calls_in(ctx, before))
    visible = {one.call.fingerprint for one in made if id(one.result) in shown and one.has_result}
    removed = {
        one.call.fingerprint: isinstance(one.result.get("content"), str)
        for one in made
        if one.call.fingerprint not in visible
    }
    ctx.run.repeats.hide(removed)
