"""Assembles the pieces of a streamed response, in time linear in their number."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from treadle.messages.decode import take_refusal
from treadle.messages.message import JSONDict, is_list
from treadle.messages.reasoning import joined_reasoning
from treadle.messages.response import CallChunk, Chunk, Response, ToolCall, Usage


class StreamAccumulator:
    """Assembles the pieces of a streamed response."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: list[_CallAccumulator] = []
        self._open: dict[int, _CallAccumulator] = {}
        self._extra = _ExtraAccumulator()
        self._usage: Usage | None = None
        self._finish_reason: str | None = None
        self._model: str | None = None
        self._id: str | None = None
        self._needs_finish_reason = False

    def add(self, chunk: Chunk) -> None:
        """Add the next piece."""
        self._texts.append(chunk.text)
        for call in chunk.tool_calls:
            self._add_call(call)
        self._extra.add(chunk.extra)
        if chunk.usage is not None:
            self._usage = chunk.usage if self._usage is None else _merged(self._usage, chunk.usage)
        self._finish_reason = chunk.finish_reason or self._finish_reason
        self._model = chunk.model or self._model
        self._id = chunk.id or self._id
        self._needs_finish_reason = chunk.ends_with_reason or self._needs_finish_reason

    def _add_call(self, piece: CallChunk) -> None:
        call = self._open.get(piece.index)
        if call is None or call.ends_before(piece):
            call = self._open[piece.index] = _CallAccumulator(piece.index)
            self._calls.append(call)
        call.id = call.id or piece.id  # some servers repeat the id with every piece
        call.names.append(piece.name)
        if piece.arguments:
            call.arguments.append(piece.arguments)
        call.extra.add(piece.extra)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    def response(self) -> Response:
        """Assemble the response, after its last piece.

        Raises:
            ConnectionError: the stream ended without the piece that ends a response.
        """
        if self._needs_finish_reason and self._finish_reason is None:
            raise ConnectionError("the stream ended before the answer did: no finish reason came")
        extra = self._extra.joined()
        return Response(
            content=self.text or None,
            tool_calls=tuple(
                call.joined() for call in sorted(self._calls, key=lambda call: call.index)
            ),
            finish_reason=self._finish_reason,
            usage=self._usage,
            model=self._model,
            id=self._id,
            extra=extra,
            refusal=take_refusal(extra),
            is_streamed=True,
        )


def _merged(before: Usage, now: Usage) -> Usage:
    """The usage of a stream that reports it several times: cumulated, or first the prompt and then the rest.

    Perplexity, Gemini and vLLM cumulate it. No server is known whose counts have to be added.
    """
    prompt = max(before.input_tokens, now.input_tokens)
    answer = max(before.output_tokens, now.output_tokens)
    is_partial = before.is_lower_bound and now.is_lower_bound and not (prompt and answer)
    return Usage(
        prompt,
        answer,
        max(before.total_tokens, now.total_tokens, prompt + answer),
        max(before.cached_tokens, now.cached_tokens),
        max(before.reasoning_tokens, now.reasoning_tokens),
        is_partial,
        before.cost if now.cost is None else now.cost,
        cache_write_tokens=max(before.cache_write_tokens, now.cache_write_tokens),
    )


class _ExtraAccumulator:
    """The pieces of unknown keys: texts and lists are joined, any other value replaces the one before.

    The pieces of one block of reasoning become one item of ``reasoning_details``.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, list[Any]] = {}

    def add(self, extra: Mapping[str, Any]) -> None:
        for key, piece in extra.items():
            pieces = self._pieces.setdefault(key, [])
            if piece is None:
                continue
            kind = piece.__class__
            if pieces and not (kind in {str, list} and pieces[-1].__class__ is kind):
                pieces.clear()
            pieces.append(piece)

    def joined(self) -> JSONDict:
        found = {key: _joined(pieces) for key, pieces in self._pieces.items()}
        details = found.get("reasoning_details")
        if is_list(details):
            found["reasoning_details"] = joined_reasoning(details)
        return found


def _joined(pieces: list[Any]) -> Any:
    last = pieces[-1] if pieces else None
    if isinstance(last, str):
        return "".join(pieces)
    return list(itertools.chain.from_iterable(pieces)) if is_list(last) else last


class _CallAccumulator:
    """The pieces of one call."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.names: list[str] = []
        self.arguments: list[str] = []
        self.extra = _ExtraAccumulator()

    def ends_before(self, piece: CallChunk) -> bool:
        """Whether a piece with the same index starts another call: some servers give all calls the same index."""
        if self.id and piece.id:
            return self.id != piece.id
        has_ids = self.id or piece.id  # some give no ids either; a name comes before its arguments
        return not has_ids and piece.name != "" and bool(self.arguments)

    def joined(self) -> ToolCall:
        name, arguments = "".join(self.names), "".join(self.arguments) or "{}"
        return ToolCall(self.id, name, arguments, extra=self.extra.joined())
