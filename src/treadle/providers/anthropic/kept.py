"""What a history keeps of Anthropic's responses besides texts and calls: reasoning, and blocks of other kinds.

Reasoning is under ``reasoning_details``, in items of the format `FORMAT`. ``extra_content["anthropic"]["blocks"]``
has blocks that OpenAI's form has no place for, such as the calls of tools that run at Anthropic, each with its
``index`` in the response. Both are sent back to Anthropic, in their places, and to no one else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treadle.messages import JSONDict, is_list, is_mapping

FORMAT = "anthropic-messages"
"""The ``format`` of items of ``reasoning_details`` that came from Anthropic."""

OWN_BLOCKS = frozenset({"text", "tool_use", "thinking", "redacted_thinking"})
"""The types of blocks that have a place in OpenAI's form or under ``reasoning_details``."""


def detail_of(block: Mapping[str, Any], index: int) -> JSONDict:
    """The item of ``reasoning_details`` for a block of reasoning, or for a piece of one."""
    item: JSONDict = {"format": FORMAT, "index": index}
    if block.get("type") == "redacted_thinking":
        return {"type": "reasoning.encrypted", **item, "data": block.get("data", "")}
    text, signature = block.get("thinking") or "", block.get("signature")
    signed = {"signature": signature} if signature else {}
    return {"type": "reasoning.text", **item, "text": text, **signed}


def kept_blocks(blocks: Iterable[JSONDict]) -> JSONDict:
    """The key of the assistant message for blocks of other kinds, each with its ``index``; empty without any."""
    kept = [*blocks]
    return {"extra_content": {"anthropic": {"blocks": kept}}} if kept else {}


def placed_blocks(message: Mapping[str, Any]) -> dict[int, JSONDict]:
    """The blocks that a message has kept, by their index in the response."""
    placed = dict(_reasoning(message))
    content: Any = message.get("extra_content")
    own: Any = content.get("anthropic") if is_mapping(content) else None
    blocks: Any = own.get("blocks") if is_mapping(own) else None
    for block in blocks if is_list(blocks) else ():
        if is_mapping(block):
            made = dict(block)
            placed[_free(placed, made.pop("index", None))] = made
    return placed


def _reasoning(message: Mapping[str, Any]) -> Iterable[tuple[int, JSONDict]]:
    details: Any = message.get("reasoning_details")
    own = (one for one in (details if is_list(details) else ()) if is_mapping(one))
    for number, item in enumerate(one for one in own if one.get("format") == FORMAT):
        index = item.get("index")
        block = _block_of(item)
        if block is not None:
            yield index if isinstance(index, int) else number, block


def _block_of(item: Mapping[str, Any]) -> JSONDict | None:
    """The block for an item; None for reasoning without a signature, which the API refuses."""
    if item.get("type") == "reasoning.encrypted":
        return {"type": "redacted_thinking", "data": item.get("data")}
    if not item.get("signature"):
        return None
    thinking = item.get("text") or ""
    return {"type": "thinking", "thinking": thinking, "signature": item["signature"]}


def _free(placed: Mapping[int, JSONDict], index: Any) -> int:
    place = index if isinstance(index, int) else len(placed)
    while place in placed:
        place += 1
    return place
