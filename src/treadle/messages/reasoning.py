"""Assembles blocks of reasoning, such as those under ``reasoning_details``, from their pieces in a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treadle.messages.message import JSONDict, is_dict

_SAME = ("type", "index", "part", "format")
"""The keys that pieces of one block have in common. ``part`` is the place of a part within its block."""
_TEXTS = frozenset({"text", "summary", "data", "thinking", "signature"})
"""The keys whose values are pieces of a text."""
_SIGNATURES = frozenset({"signature", "data"})
"""Those of them that servers repeat as a whole in each piece."""


def joined_reasoning(pieces: Iterable[Any]) -> list[Any]:
    """Join the consecutive pieces of each block.

    Args:
        pieces: the items, as they came; they are not changed. Pieces of one block have the same ``type`` and
            ``index``, and no two different ``id``. Without an ``index``, as LiteLLM's ``thinking_blocks``, a block
            ends with its signature.
    """
    blocks: list[_Block | Any] = []
    for piece in pieces:
        last = blocks[-1] if blocks else None
        if not is_dict(piece) or not _is_piece(piece):
            blocks.append(piece)
        elif isinstance(last, _Block) and last.continues_with(piece):
            last.add(piece)
        else:
            blocks.append(_Block(piece))
    return [block.joined() if isinstance(block, _Block) else block for block in blocks]


def _is_piece(piece: JSONDict) -> bool:
    """Whether an item may be a piece of a block."""
    is_numbered = piece.get("index") is not None and not _TEXTS.isdisjoint(piece)
    return is_numbered or (piece.get("type") == "thinking" and "thinking" in piece)


class _Block:
    """The pieces of one block."""

    def __init__(self, piece: JSONDict) -> None:
        self._other: JSONDict = {}
        self._texts: dict[str, list[str]] = {}
        self.add(piece)

    def continues_with(self, piece: JSONDict) -> bool:
        signatures = self._texts.get("signature", [""])
        is_more = piece.get("index") is None and bool(piece.get("thinking"))
        if is_more and signatures[0] and piece.get("signature") not in signatures:
            return False  # the block was signed, so another one begins
        ids = {self._other.get("id"), piece.get("id")} - {None}
        return len(ids) < 2 and all(self._other.get(key) == piece.get(key) for key in _SAME)  # noqa: PLR2004

    def add(self, piece: JSONDict) -> None:
        for key, value in piece.items():
            if key in _TEXTS and isinstance(value, str):
                self._texts.setdefault(key, []).append(value)
            elif value is not None:
                self._other[key] = value
            else:
                self._other.setdefault(key, None)

    def joined(self) -> JSONDict:
        joined = {key: _text(key, pieces) for key, pieces in self._texts.items()}
        return {**self._other, **joined}


def _text(key: str, pieces: list[str]) -> str:
    is_repeated = key in _SIGNATURES and pieces.count(pieces[0]) == len(pieces)
    return pieces[0] if is_repeated else "".join(pieces)
