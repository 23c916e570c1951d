"""Assembles the pieces of a streamed response, in time linear in their number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from treadle.messages.decode import take_refusal
from treadle.messages.ending import gravest
from treadle.messages.json_text import is_object
from treadle.messages.measurement import COUNTS, Usage
from treadle.messages.message import JSONDict, is_dict, is_list
from treadle.messages.response import REASONING_KEYS, CallChunk, Chunk, Response, ToolCall


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
        for piece in chunk.tool_calls:
            call = self._open.get(piece.index)
            if call is None and self._calls and not (piece.id or piece.name):
                call = self._calls[-1]  # a piece of arguments with a wrong index
            if call is None or call.ends_before(piece):
                call = self._open[piece.index] = _CallAccumulator(piece.index)
                self._calls.append(call)
            call.add(piece)
        self._extra.add(chunk.extra)
        if chunk.finish_reason:
            self._finish_reason = gravest(self._finish_reason, chunk.finish_reason)
        self._model = chunk.model or self._model
        self._id = chunk.id or self._id
        return True

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
        calls: dict[Any, ToolCall] = {}
        for number, call in enumerate(sorted(self._calls, key=lambda call: call.index)):
            made = call.joined()
            # Some servers send a call again under another index.
            calls.setdefault((made.id, made.name, made.arguments) if made.id else number, made)
        extra = self._extra.joined()
        return Response(
            content=self.text or None,
            tool_calls=tuple(calls.values()),
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
    counts = {name: max(getattr(before, name), getattr(now, name)) for name in COUNTS}
    prompt, answer = counts["input_tokens"], counts["output_tokens"]
    counts["total_tokens"] = max(counts["total_tokens"], prompt + answer)
    is_partial = before.is_lower_bound and now.is_lower_bound and not (prompt and answer)
    cost = before.cost if now.cost is None else now.cost
    return dataclasses.replace(now, **counts, is_lower_bound=is_partial, cost=cost)


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


class _ExtraAccumulator:
    """The pieces of unknown keys: texts and lists are joined, objects merged; another value replaces the last."""

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


_TEXTS = frozenset({*REASONING_KEYS, "refusal", "thinking"})
"""The keys of texts, of which two equal pieces may follow each other."""
_SIGNATURES: Mapping[str, bool] = dict.fromkeys(
    ("signature", "thought_signature", "thoughtSignature"), True
)
_TEXTS_OF_BLOCKS: Mapping[str, bool] = {
    **dict.fromkeys(("text", "summary", "thinking"), False),
    **dict.fromkeys(("data", "signature"), True),
}
"""The keys of an object whose values are pieces of a text; whether servers repeat a whole value in each piece."""
_SAME = ("type", "index", "part", "format")
"""The keys that pieces of one block have in common. ``part`` is the position of a part within its block."""


def _joined(key: str, pieces: list[Any]) -> Any:
    last = pieces[-1] if pieces else None
    if isinstance(last, str):
        # Servers repeat a value that is no piece of a text, such as a name or a signature, in each piece.
        return _joined_text(pieces, may_repeat=key not in _TEXTS)
    if is_list(last):
        return _joined_blocks(chain.from_iterable(pieces))
    return _joined_object(pieces, _SIGNATURES) if is_dict(last) else last


def _joined_text(pieces: list[str], *, may_repeat: bool) -> str:
    is_repeated = may_repeat and pieces.count(pieces[0]) == len(pieces)
    return pieces[0] if is_repeated else "".join(pieces)


def _joined_object(pieces: list[JSONDict], texts: Mapping[str, bool]) -> JSONDict:
    """Objects with the last value of each key; the pieces of objects and of some texts are joined."""
    made: JSONDict = {}
    for key in dict.fromkeys(chain.from_iterable(pieces)):
        found = [piece[key] for piece in pieces if piece.get(key) is not None]
        made[key] = found[-1] if found else None
        if found and all(map(is_dict, found)):
            made[key] = _joined_object(found, _SIGNATURES)
        elif key in texts and found and all(isinstance(value, str) for value in found):
            made[key] = _joined_text(found, may_repeat=texts[key])
    return made


def _joined_blocks(items: Iterable[Any]) -> list[Any]:
    """Join the consecutive pieces of each block, such as those of one block of reasoning in ``reasoning_details``.

    Pieces of one block have the same ``type`` and ``index``, and no two different ``id``. Without an ``index``, as
    in LiteLLM's ``thinking_blocks``, a block ends with its signature.
    """
    blocks: list[list[Any]] = []
    known: JSONDict | None = None  # of the block that may go on
    for item in items:
        if not is_dict(item) or not _is_piece(item):
            known = None
            blocks.append([item])
            continue
        if known is None or not _goes_on(known, item):
            known = dict(item)
            blocks.append([])
        blocks[-1].append(item)
        known.update((key, item[key]) for key in ("id", "signature") if item.get(key))
    return [
        _joined_object(block, _TEXTS_OF_BLOCKS) if len(block) > 1 else block[0] for block in blocks
    ]


def _is_piece(item: JSONDict) -> bool:
    """Whether an item may be a piece of a block."""
    is_numbered = item.get("index") is not None and not _TEXTS_OF_BLOCKS.keys().isdisjoint(item)
    return is_numbered or (item.get("type") == "thinking" and "thinking" in item)


def _goes_on(known: JSONDict, item: JSONDict) -> bool:
    """Whether an item is a piece of a block, of which the common keys, the id and the signature are known."""
    is_more = item.get("index") is None and item.get("thinking")
    if is_more and known.get("signature") not in {None, "", item.get("signature")}:
        return False  # the block was signed, so another one begins
    ids = {known.get("id"), item.get("id")} - {None}
    return len(ids) < 2 and all(known.get(key) == item.get(key) for key in _SAME)  # noqa: PLR2004
