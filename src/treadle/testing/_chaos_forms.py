"""In what form a client hands over an answer: text, a message, a completion, an object, a `Response`, a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from treadle.messages import JSONDict, Response, ToolCall, is_list
from treadle.testing._chaos_answers import as_usage, finish_reason, usage
from treadle.testing._chaos_dice import Dice, Table
from treadle.testing._chaos_streams import Piece, as_chunk, streamed, with_faults


@dataclass(frozen=True, slots=True)
class Turn:
    """What comes of one request.

    Args:
        value: what is returned, where it is not streamed.
        pieces: what is streamed.
        error: what is raised instead.
        pause: seconds before it; infinity is for ever.
    """

    value: Any = None
    pieces: tuple[Piece, ...] | None = None
    error: BaseException | None = None
    pause: float = 0.0


Form: TypeAlias = Callable[[Dice, JSONDict, bool], Turn]
"""Takes the message and whether a stream may hang; returns what becomes of it."""


class Dumped:
    """An object as SDKs return it.

    Args:
        value: what it comes to as a dict.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def model_dump(self, **_options: Any) -> Any:
        """The dict; see pydantic."""
        return self._value


def _completion(dice: Dice, message: JSONDict) -> JSONDict:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason(dice, message)}
    made = {"id": "chatcmpl-1", "object": "chat.completion", "model": "chaos", "choices": [choice]}
    return {**made, "usage": usage(dice), "provider": "chaos"}


def _text(_dice: Dice, message: JSONDict, _endless: bool) -> Turn:
    content = message.get("content")
    return Turn(content if isinstance(content, str) and len(message) == _PLAIN else message)


_PLAIN = 2
"""The keys of a message that is a text and nothing else."""


def _response(dice: Dice, message: JSONDict, _endless: bool) -> Turn:
    """A `Response`, where the message can be one; else the message."""
    calls: Any = message.get("tool_calls") or ()
    content = message.get("content")
    made = tuple([_tool_call(call) for call in calls] if is_list(calls) else ())
    fits = content is None or isinstance(content, str)
    if not fits or None in made:
        return Turn(message)
    reason = finish_reason(dice, message)
    return Turn(
        Response(
            content,
            tuple(call for call in made if call is not None),
            finish_reason=reason if isinstance(reason, str) else None,
            usage=as_usage(usage(dice)),
        )
    )


def _tool_call(call: JSONDict) -> ToolCall | None:
    function: Any = call.get("function")
    if not isinstance(function, dict):
        return None
    facts: JSONDict = function  # pyright: ignore[reportUnknownVariableType]
    fields: list[Any] = [call.get("id", ""), facts.get("name"), facts.get("arguments")]
    if not all(isinstance(part, str) for part in fields):
        return None
    return ToolCall(*fields)


def _stream_of_text(dice: Dice, message: JSONDict, endless: bool) -> Turn:
    content = message.get("content")
    if not isinstance(content, str) or message.get("tool_calls"):
        return _stream(dice, message, endless)
    step = max(1, len(content) // 5)
    texts = [content[place : place + step] for place in range(0, len(content), step)]
    return Turn(pieces=with_faults(dice, texts, endless))


def _stream(dice: Dice, message: JSONDict, endless: bool) -> Turn:
    pieces = streamed(dice, message, finish_reason(dice, message), usage(dice))
    return Turn(pieces=with_faults(dice, pieces, endless))


def _stream_of_objects(dice: Dice, message: JSONDict, endless: bool) -> Turn:
    pieces = streamed(dice, message, finish_reason(dice, message), usage(dice))
    return Turn(pieces=with_faults(dice, [Dumped(piece) for piece in pieces], endless))


def _stream_of_chunks(dice: Dice, message: JSONDict, endless: bool) -> Turn:
    pieces = streamed(dice, message, finish_reason(dice, message), usage(dice))
    return Turn(pieces=with_faults(dice, [as_chunk(piece) for piece in pieces], endless))


FORMS: Table[Form] = Table(
    "form",
    {
        "text": (2, _text),
        "message": (4, lambda _d, message, _e: Turn(message)),
        "completion": (6, lambda dice, message, _e: Turn(_completion(dice, message))),
        "object": (2, lambda dice, message, _e: Turn(Dumped(_completion(dice, message)))),
        "Response": (2, _response),
        "stream of text": (1, _stream_of_text),
        "stream": (4, _stream),
        "stream of objects": (1, _stream_of_objects),
        "stream of Chunks": (1, _stream_of_chunks),
    },
)
"""How an answer is handed over."""
