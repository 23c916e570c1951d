"""Assembles the pieces of a streamed response, in time linear in their number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
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
        self._extra: list[Mapping[str, Any]] = []
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
        self._extra.append(chunk.extra)
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
        extra = _joined_object(self._extra, _joined)
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
        pieces, extra = self.arguments, _joined_object(self.extra, _joined)
        if len(pieces) > 1 and pieces[-1].lstrip().startswith("{"):
            before = "".join(pieces[:-1])
            if is_object(before) and is_object(pieces[-1]):
                pieces = [before]  # some servers send the whole call again at its end
        arguments = "".join(pieces)
        return ToolCall(self.id, self.name, arguments, extra=extra, is_whole=self.is_whole)


# Unknown keys

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


def _joined_object(
    pieces: Iterable[Mapping[str, Any]], join: Callable[[str, list[Any]], Any]
) -> JSONDict:
    """Objects as one, in which the values of each key are joined; values that are None do not count."""
    found: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            found.setdefault(key, []).extend(() if value is None else (value,))
    return {key: join(key, values) if values else None for key, values in found.items()}


def _joined(key: str, values: list[Any]) -> Any:
    """The value of a key of a response or a call: texts, lists and objects are joined, others replaced."""
    if all(map(is_list, values)):
        return _joined_blocks(chain.from_iterable(values))
    # Servers repeat a value that is no piece of a text, such as a name or a signature, in each piece.
    return _joined_part({key: key not in _TEXTS}, key, values)


def _joined_part(texts: Mapping[str, bool], key: str, values: list[Any]) -> Any:
    """The value of a key of an object within: objects and some texts are joined, others replaced."""
    if all(map(is_dict, values)):
        return _joined_object(values, partial(_joined_part, _SIGNATURES))
    if key in texts and all(isinstance(value, str) for value in values):
        is_repeated = texts[key] and values.count(values[0]) == len(values)
        return values[0] if is_repeated else "".join(values)
    return values[-1]


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
    join = partial(_joined_part, _TEXTS_OF_BLOCKS)
    return [_joined_object(block, join) if len(block) > 1 else block[0] for block in blocks]


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
