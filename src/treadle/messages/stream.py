"""Putting the pieces of a streamed answer together."""

from __future__ import annotations

from typing import Any

from treadle.messages.decode import text_or_none
from treadle.messages.message import JSONDict, is_list
from treadle.messages.response import CallChunk, Chunk, Response, ToolCall, Usage


class StreamAccumulator:
    """Puts the pieces of a streamed answer together."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: list[list[CallChunk]] = []
        self._open: dict[int, list[CallChunk]] = {}
        self._extra: JSONDict = {}
        self._last = Chunk()
        self._usage: Usage | None = None

    def add(self, chunk: Chunk) -> None:
        """Take in the next piece."""
        self._text.append(chunk.text)
        for call in chunk.tool_calls:
            self._add_call(call)
        for key, value in chunk.extra.items():
            self._extra[key] = _grown(self._extra.get(key), value)
        last = self._last
        self._last = Chunk(
            finish_reason=chunk.finish_reason or last.finish_reason,
            model=chunk.model or last.model,
            id=chunk.id or last.id,
            ends_with_reason=chunk.ends_with_reason or last.ends_with_reason,
        )
        self._usage = chunk.usage or self._usage

    def _add_call(self, piece: CallChunk) -> None:
        pieces = self._open.get(piece.index)
        known = "" if pieces is None else _id_of(pieces)
        # Another id is another call: some servers give every call the same index.
        if pieces is None or (piece.id and known and piece.id != known):
            pieces = self._open[piece.index] = []
            self._calls.append(pieces)
        pieces.append(piece)

    def response(self) -> Response:
        """The answer, once there are no more pieces.

        Raises:
            ConnectionError: pieces came, and the one that ends an answer did not.
        """
        if self._last.ends_with_reason and self._last.finish_reason is None:
            raise ConnectionError("the stream ended before the answer did: no finish reason came")
        in_order = sorted(self._calls, key=lambda pieces: pieces[0].index)
        calls = tuple(map(_assembled, in_order))
        text = "".join(self._text)
        return Response(
            content=text or None,
            tool_calls=calls,
            finish_reason=self._last.finish_reason,
            usage=self._usage,
            model=self._last.model,
            id=self._last.id,
            extra=self._extra,
            refusal=text_or_none(self._extra.get("refusal")),
        )


def _id_of(pieces: list[CallChunk]) -> str:
    """The id of a call; some servers repeat it with every piece."""
    return next((piece.id for piece in pieces if piece.id), "")


def _assembled(pieces: list[CallChunk]) -> ToolCall:
    extra: JSONDict = {}
    for piece in pieces:
        for key, value in piece.extra.items():
            extra[key] = _grown(extra.get(key), value)
    return ToolCall(
        _id_of(pieces),
        "".join(piece.name for piece in pieces),
        "".join(piece.arguments for piece in pieces) or "{}",
        extra=extra,
    )


def _grown(before: Any, piece: Any) -> Any:
    """What a key that treadle does not know has come to: texts and lists grow, all else is replaced."""
    if isinstance(before, str) and isinstance(piece, str):
        return before + piece
    if is_list(before) and is_list(piece):
        return [*before, *piece]
    return before if piece is None else piece
