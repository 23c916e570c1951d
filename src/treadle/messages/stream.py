"""Assembles the pieces of a streamed response, in time linear in their number."""

from __future__ import annotations

from typing import Any

from treadle.messages.decode import take_refusal
from treadle.messages.ending import gravest
from treadle.messages.json_text import is_object
from treadle.messages.measurement import Usage
from treadle.messages.pieces import ExtraAccumulator
from treadle.messages.response import CallChunk, Chunk, Response, ToolCall


class StreamAccumulator:
    """Assembles the pieces of a streamed response."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: list[_CallAccumulator] = []
        self._open: dict[int, _CallAccumulator] = {}
        self._extra = ExtraAccumulator()
        self._usage: Usage | None = None
        self._finish_reason: str | None = None
        self._model: str | None = None
        self._id: str | None = None
        self._needs_finish_reason = False
        self._choice: int | None = None

    def add(self, chunk: Chunk) -> bool:
        """Add the next piece; returns whether it belongs to the response, and not to another one beside it."""
        self._needs_finish_reason = chunk.ends_with_reason or self._needs_finish_reason
        if chunk.usage is not None:
            self._usage = chunk.usage if self._usage is None else _merged(self._usage, chunk.usage)
        if self._choice is None and not chunk.is_empty:
            self._choice = chunk.choice
        if self._choice not in {None, chunk.choice}:
            return False
        self._texts.append(chunk.text)
        for call in chunk.tool_calls:
            self._add_call(call)
        self._extra.add(chunk.extra)
        if chunk.finish_reason:
            self._finish_reason = gravest(self._finish_reason, chunk.finish_reason)
        self._model = chunk.model or self._model
        self._id = chunk.id or self._id
        return True

    def _add_call(self, piece: CallChunk) -> None:
        call = self._open.get(piece.index)
        if call is None and self._calls and not (piece.id or piece.name):
            call = self._calls[-1]  # a piece of arguments with a wrong index
        if call is None or call.ends_before(piece):
            call = self._open[piece.index] = _CallAccumulator(piece.index)
            self._calls.append(call)
        call.add(piece)

    def _joined_calls(self) -> list[ToolCall]:
        """The calls in the order of their indexes; some servers send a call again under another index."""
        made: dict[Any, ToolCall] = {}
        for number, call in enumerate(sorted(self._calls, key=lambda call: call.index)):
            joined = call.joined()
            made.setdefault(
                (joined.id, joined.name, joined.arguments) if joined.id else number, joined
            )
        return [*made.values()]

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
            tool_calls=tuple(self._joined_calls()),
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


class _CallAccumulator:
    """The pieces of one call."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra = ExtraAccumulator()
        self.is_whole: bool | None = None

    def ends_before(self, piece: CallChunk) -> bool:
        """Whether a piece with the same index starts another call: some servers give all calls the same index.

        A call begins with a name. A name that is repeated before the arguments are complete begins no other call,
        even with another id: some servers make an id for each piece.
        """
        has_other_id = bool(self.id and piece.id and self.id != piece.id)
        if not piece.name or (not has_other_id and (self.id or piece.id)):
            return False
        if not self.arguments or piece.name != self.name:
            return has_other_id or bool(self.arguments)
        # Parsing is quadratic only for a server that ends each piece with a brace.
        return self.arguments[-1].rstrip().endswith("}") and is_object("".join(self.arguments))

    def add(self, piece: CallChunk) -> None:
        """Add a piece; some servers repeat the id and the name with every piece."""
        self.id = self.id or piece.id
        if piece.name != self.name and not (self.arguments and self.name):
            self.name += piece.name
        if piece.arguments:
            self.arguments.append(piece.arguments)
        self.extra.add(piece.extra)
        self.is_whole = piece.is_whole if self.is_whole is None else self.is_whole

    def joined(self) -> ToolCall:
        pieces, extra = self.arguments, self.extra.joined()
        if len(pieces) > 1 and pieces[-1].lstrip().startswith("{"):
            before = "".join(pieces[:-1])
            if is_object(before) and is_object(pieces[-1]):
                pieces = [before]  # some servers send the whole call again at its end
        arguments = "".join(pieces)
        return ToolCall(self.id, self.name, arguments, extra=extra, is_whole=self.is_whole)
