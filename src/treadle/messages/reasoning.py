"""Assembles the blocks of reasoning under ``reasoning_details`` from their pieces in a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treadle.messages.message import JSONDict, is_dict

_SAME = ("type", "index", "part", "format")
"""The keys that pieces of one block have in common. ``part`` is the place of a part within its block."""
_TEXTS = frozenset({"text", "summary", "data", "signature"})
"""The keys whose values are pieces of a text."""


def joined_reasoning(pieces: Iterable[Any]) -> list[Any]:
    """Join the consecutive pieces of each block.

    Args:
        pieces: items of ``reasoning_details``, as they came; they are not changed. Pieces of one block have the
            same ``type`` and ``index``, and no two different ``id``.
    """
    blocks: list[_Block | Any] = []
    for piece in pieces:
        last = blocks[-1] if blocks else None
        if not is_dict(piece) or piece.get("index") is None:
            blocks.append(piece)
        elif isinstance(last, _Block) and last.continues_with(piece):
            last.add(piece)
        else:
            blocks.append(_Block(piece))
    return [block.joined() if isinstance(block, _Block) else block for block in blocks]


class _Block:
    """The pieces of one block."""

    def __init__(self, piece: JSONDict) -> None:
        self._other: JSONDict = {}
        self._texts: dict[str, list[str]] = {}
        self.add(piece)

    def continues_with(self, piece: JSONDict) -> bool:
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
        return {**self._other, **{key: "".join(texts) for key, texts in self._texts.items()}}
