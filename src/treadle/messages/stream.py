"""Assembles the pieces of a streamed response, in time linear in their number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import reduce
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
        self._pieces: list[Chunk] = []
        self._usage: Usage | None = None
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
        self._pieces.append(chunk)
        return True

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join([piece.text for piece in self._pieces])

    def response(self) -> Response:
        """Assemble the response; raises `ConnectionError` if the stream ended without the piece that ends it."""
        pieces = self._pieces
        reason = reduce(gravest, filter(None, (piece.finish_reason for piece in pieces)), None)
        if self._needs_finish_reason and reason is None:
            raise ConnectionError("the stream ended before the answer did: no finish reason came")
        extra = _joined_object((piece.extra for piece in pieces if piece.extra), is_outer=True)
        return Response(
            content=self.text or None,
            tool_calls=_calls_of(chain.from_iterable(piece.tool_calls for piece in pieces)),
            finish_reason=reason,
            usage=self._usage,
            model=next((piece.model for piece in reversed(pieces) if piece.model), None),
            id=next((piece.id for piece in reversed(pieces) if piece.id), None),
            extra=extra,
            refusal=take_refusal(extra),
            is_streamed=True,
        )


def _calls_of(pieces: Iterable[CallChunk]) -> tuple[ToolCall, ...]:
    found: list[_CallAccumulator] = []
    by_index: dict[int, _CallAccumulator] = {}
    for piece in pieces:
        call = by_index.get(piece.index)
        if call is None and found and not (piece.id or piece.name):
            call = found[-1]  # a piece of arguments with a wrong index
        if call is None or call.ends_before(piece):
            call = by_index[piece.index] = _CallAccumulator(piece.index)
            found.append(call)
        call.add(piece)
    calls: dict[Any, ToolCall] = {}
    for number, call in enumerate(sorted(found, key=lambda call: call.index)):
        made = call.joined()
        # Some servers send a call again under another index.
        calls.setdefault((made.id, made.name, made.arguments) if made.id else number, made)
    return tuple(calls.values())


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
    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: list[Mapping[str, Any]] = []
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
        self.extra.append(piece.extra)
        self.is_whole = piece.is_whole if self.is_whole is None else self.is_whole

    def joined(self) -> ToolCall:
        pieces, extra = self.arguments, _joined_object(self.extra, is_outer=True)
        if len(pieces) > 1 and pieces[-1].lstrip().startswith("{"):
            before = "".join(pieces[:-1])
            if is_object(before) and is_object(pieces[-1]):
                pieces = [before]  # some servers send the whole call again at its end
        arguments = "".join(pieces)
        return ToolCall(self.id, self.name, arguments, extra=extra, is_whole=self.is_whole)


# Unknown keys

_TEXTS = frozenset({*REASONING_KEYS, "refusal", "thinking", "text", "summary"})
"""The keys of texts, of which two equal pieces may follow each other."""
_IN_PIECES = _TEXTS | {"data", "signature", "thought_signature", "thoughtSignature"}
"""The keys of values that come in pieces. Some servers repeat the whole in each piece, unless it is a text."""
_SAME = ("type", "index", "part", "format")
"""The keys that pieces of one block have in common. ``part`` is the position of a part within its block."""


def _joined_object(pieces: Iterable[Mapping[str, Any]], is_outer: bool = False) -> JSONDict:
    """Objects as one, in which the values of each key are joined; values that are None do not count."""
    found: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            found.setdefault(key, []).extend(() if value is None else (value,))
    return {
        key: _joined(key, values, is_outer) if values else None for key, values in found.items()
    }


def _joined(key: str, values: list[Any], is_outer: bool) -> Any:
    """The values of a key: texts and objects are joined, others replaced; also lists, of a response or a call.

    There, each text may come in pieces; within an object, those of some keys.
    """
    if is_outer and all(map(is_list, values)):
        return _joined_blocks(chain.from_iterable(values))
    if all(map(is_dict, values)):
        return _joined_object(values)
    is_in_pieces = is_outer or key in _IN_PIECES
    if not is_in_pieces or not all(isinstance(value, str) for value in values):
        return values[-1]
    # Servers repeat a value that is no piece of a text, such as a name or a signature, in each piece.
    is_repeated = key not in _TEXTS and values.count(values[0]) == len(values)
    return values[0] if is_repeated else "".join(values)


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
    return [_joined_object(block) if len(block) > 1 else block[0] for block in blocks]


def _is_piece(item: JSONDict) -> bool:
    """Whether an item may be a piece of a block."""
    is_block = item.get("index") is not None or item.get("type") == "thinking"
    return is_block and not _IN_PIECES.isdisjoint(item)


def _goes_on(known: JSONDict, item: JSONDict) -> bool:
    """Whether an item is a piece of a block, of which the common keys, the id and the signature are known."""
    is_more = item.get("index") is None and item.get("thinking")
    if is_more and known.get("signature") not in {None, "", item.get("signature")}:
        return False  # the block was signed, so another one begins
    ids = {known.get("id"), item.get("id")} - {None}
    return len(ids) < 2 and all(known.get(key) == item.get(key) for key in _SAME)  # noqa: PLR2004
