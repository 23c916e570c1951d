"""Replies: what one request returns, raises or streams, and the form in which a client returns a response."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from treadle.messages import JSONDict, Response, ToolCall, is_dict, is_list
from treadle.testing.chaos.dice import Dice, Table
from treadle.testing.chaos.responses import as_usage, finish_reason, usage
from treadle.testing.chaos.streams import (
    STREAM_FAULTS,
    Piece,
    as_chunk,
    async_wait,
    chunks_of,
    play_async_stream,
    play_stream,
    wait,
)


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one request.

    Args:
        value: what is returned, unless pieces are given.
        pieces: what is streamed.
        error: what is raised instead.
        pause: seconds before that; infinity is forever.
    """

    value: Any = None
    pieces: tuple[Piece, ...] | None = None
    error: BaseException | None = None
    pause: float = 0.0

    def play(self, released: threading.Event) -> Any:
        """Return, raise or stream it in this thread; the event ends what would not end."""
        wait(self.pause, released)
        if self.error is not None:
            raise self.error
        return self.value if self.pieces is None else play_stream(self.pieces, released)

    async def play_async(self) -> Any:
        """Return, raise or stream it on an event loop."""
        await async_wait(self.pause)
        if self.error is not None:
            raise self.error
        return self.value if self.pieces is None else play_async_stream(self.pieces)


class _SDKObject:
    """An object as SDKs return it: `model_dump` gives its value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def model_dump(self, **_options: Any) -> Any:
        return self._value


Form: TypeAlias = Callable[[Dice, JSONDict, bool], Reply]
"""Takes a message and whether a stream may hang forever; returns the reply."""


def _completion(dice: Dice, message: JSONDict) -> JSONDict:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason(dice, message)}
    made = {"id": "chatcmpl-1", "object": "chat.completion", "model": "chaos", "choices": [choice]}
    return {**made, "usage": usage(dice), "provider": "chaos"}


def _text(_dice: Dice, message: JSONDict, _endless: bool) -> Reply:
    content = message.get("content")
    is_text = isinstance(content, str) and message.keys() == {"role", "content"}
    return Reply(content if is_text else message)


def _response(dice: Dice, message: JSONDict, _endless: bool) -> Reply:
    """A `Response`, or the message if it cannot be one."""
    calls: Any = message.get("tool_calls") or ()
    content = message.get("content")
    made = [_tool_call(call) for call in calls] if is_list(calls) else []
    sound = tuple(call for call in made if call is not None)
    if not (content is None or isinstance(content, str)) or len(sound) < len(made):
        return Reply(message)
    reason = finish_reason(dice, message)
    reason = reason if isinstance(reason, str) else None
    return Reply(Response(content, sound, finish_reason=reason, usage=as_usage(usage(dice))))


def _tool_call(call: JSONDict) -> ToolCall | None:
    function: Any = call.get("function")
    if not is_dict(function):
        return None
    fields: list[Any] = [call.get("id", ""), function.get("name"), function.get("arguments")]
    return ToolCall(*fields) if all(isinstance(part, str) for part in fields) else None


def _stream_of(convert: Callable[[JSONDict], Piece]) -> Form:
    def form(dice: Dice, message: JSONDict, endless: bool) -> Reply:
        chunks = chunks_of(dice, message, finish_reason(dice, message), usage(dice))
        return _stream(dice, [convert(chunk) for chunk in chunks], endless)

    return form


def _stream(dice: Dice, pieces: list[Piece], endless: bool) -> Reply:
    return Reply(pieces=tuple(dice.pick(STREAM_FAULTS)(dice, pieces, endless)))


_stream_of_dicts = _stream_of(lambda chunk: chunk)


def _stream_of_text(dice: Dice, message: JSONDict, endless: bool) -> Reply:
    content = message.get("content")
    if not isinstance(content, str) or message.get("tool_calls"):
        return _stream_of_dicts(dice, message, endless)
    step = max(1, len(content) // 5)
    texts = [content[place : place + step] for place in range(0, len(content), step)]
    return _stream(dice, texts, endless)


FORMS: Table[Form] = Table(
    "form",
    {
        "text": (2, _text),
        "message": (4, lambda _d, message, _e: Reply(message)),
        "completion": (6, lambda dice, message, _e: Reply(_completion(dice, message))),
        "object": (2, lambda dice, message, _e: Reply(_SDKObject(_completion(dice, message)))),
        "Response": (2, _response),
        "stream of text": (1, _stream_of_text),
        "stream": (4, _stream_of_dicts),
        "stream of objects": (1, _stream_of(_SDKObject)),
        "stream of Chunks": (1, _stream_of(as_chunk)),
    },
)
