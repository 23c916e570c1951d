"""Assembles the pieces of a streamed response, in time linear in their number."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from treadle.messages.decode import take_refusal
from treadle.messages.ending import gravest
from treadle.messages.json_text import is_object
from treadle.messages.message import JSONDict, is_dict, is_list
from treadle.messages.reasoning import joined_reasoning
from treadle.messages.response import (
    REASONING_KEYS,
    CallChunk,
    Chunk,
    Response,
    ToolCall,
    Usage,
)


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


class _ExtraAccumulator:
    """The pieces of unknown keys: texts and lists are joined, objects merged; any other value replaces the last.

    The pieces of one block of reasoning become one item of ``reasoning_details``, or of another list of blocks.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, list[Any]] = {}

    def add(self, extra: Mapping[str, Any]) -> None:
        for key, piece in extra.items():
            pieces = self._pieces.setdefault(key, [])
            if piece is None:
                continue
            kind = piece.__class__
            if pieces and not (kind in {str, list, dict} and pieces[-1].__class__ is kind):
                pieces.clear()
            pieces.append(piece)

    def joined(self) -> JSONDict:
        return {key: _joined(key, pieces) for key, pieces in self._pieces.items()}


def _joined(key: str, pieces: list[Any]) -> Any:
    last = pieces[-1] if pieces else None
    if isinstance(last, str):
        # Servers repeat a value that is no piece of a text, such as a name or a signature, in each piece.
        is_repeated = key not in _TEXTS and pieces.count(last) == len(pieces)
        return last if is_repeated else "".join(pieces)
    if is_list(last):
        return joined_reasoning(itertools.chain.from_iterable(pieces))
    return _merged_objects(pieces) if is_dict(last) else last


_TEXTS = frozenset({*REASONING_KEYS, "refusal", "thinking"})
"""The keys of texts, of which two equal pieces may follow each other."""
_SIGNATURES = frozenset({"signature", "thought_signature", "thoughtSignature"})


def _merged_objects(pieces: list[JSONDict]) -> JSONDict:
    """Objects with the last value of each key, and with the pieces of signatures joined."""
    merged: JSONDict = {}
    for key in dict.fromkeys(itertools.chain.from_iterable(pieces)):
        found = [piece[key] for piece in pieces if piece.get(key) is not None]
        is_joined = all(map(is_dict, found)) or (
            key in _SIGNATURES and all(isinstance(value, str) for value in found)
        )
        merged[key] = _joined(key, found) if is_joined else found[-1]
    return merged


class _CallAccumulator:
    """The pieces of one call."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra = _ExtraAccumulator()
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
