"""Joins the pieces of unknown keys in a stream, such as the blocks of reasoning under ``reasoning_details``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from treadle.messages.message import JSONDict, is_dict, is_list
from treadle.messages.response import REASONING_KEYS

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


class ExtraAccumulator:
    """The pieces of unknown keys: texts and lists are joined, objects merged; any other value replaces the last.

    The pieces of one block of reasoning become one item of ``reasoning_details``, or of another list of blocks.
    """

    def __init__(self) -> None:
        self._pieces: dict[str, list[Any]] = {}

    def add(self, extra: Mapping[str, Any]) -> None:
        """Add the next pieces."""
        for key, piece in extra.items():
            pieces = self._pieces.setdefault(key, [])
            if piece is None:
                continue
            kind = piece.__class__
            if pieces and not (kind in {str, list, dict} and pieces[-1].__class__ is kind):
                pieces.clear()
            pieces.append(piece)

    def joined(self) -> JSONDict:
        """The values of the whole response."""
        return {key: _joined(key, pieces) for key, pieces in self._pieces.items()}


def _joined(key: str, pieces: list[Any]) -> Any:
    last = pieces[-1] if pieces else None
    if isinstance(last, str):
        # Servers repeat a value that is no piece of a text, such as a name or a signature, in each piece.
        return _text(pieces, may_repeat=key not in _TEXTS)
    if is_list(last):
        return _joined_blocks(chain.from_iterable(pieces))
    return _merged(pieces, _SIGNATURES) if is_dict(last) else last


def _text(pieces: list[str], *, may_repeat: bool) -> str:
    is_repeated = may_repeat and pieces.count(pieces[0]) == len(pieces)
    return pieces[0] if is_repeated else "".join(pieces)


def _merged(pieces: list[JSONDict], texts: Mapping[str, bool]) -> JSONDict:
    """Objects with the last value of each key; the pieces of objects and of some texts are joined."""
    merged: JSONDict = {}
    for key in dict.fromkeys(chain.from_iterable(pieces)):
        found = [piece[key] for piece in pieces if piece.get(key) is not None]
        if found and all(map(is_dict, found)):
            merged[key] = _merged(found, _SIGNATURES)
        elif key in texts and found and all(isinstance(value, str) for value in found):
            merged[key] = _text(found, may_repeat=texts[key])
        else:
            merged[key] = found[-1] if found else None
    return merged


def _joined_blocks(items: Iterable[Any]) -> list[Any]:
    """Join the consecutive pieces of each block.

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
    return [_merged(block, _TEXTS_OF_BLOCKS) if len(block) > 1 else block[0] for block in blocks]


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
