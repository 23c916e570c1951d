"""What a history keeps of Anthropic's responses besides texts and calls: reasoning, and blocks of other kinds.

Reasoning is under ``reasoning_details``, in items of the format `FORMAT`. ``extra_content["anthropic"]["blocks"]``
of a message has the blocks that OpenAI's form has no place for, each with its ``index`` in the response: the calls
of tools that run at Anthropic, their results, and texts between other blocks or with citations.
``extra_content["anthropic"]`` of a call has the other keys of its block. All of it is sent back to Anthropic, in
its place, and to no one else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treadle.messages import JSONDict, is_list, is_mapping
from treadle.messages.decode import text_or_none

FORMAT = "anthropic-messages"
"""The ``format`` of items of ``reasoning_details`` that came from Anthropic."""

REASONING = frozenset({"thinking", "redacted_thinking"})
"""The types of blocks that are under ``reasoning_details``."""
_OF_MESSAGES = frozenset({"text", "tool_use", *REASONING})
"""The types of blocks that have a place besides ``extra_content``."""
_OF_CALLS = frozenset({"type", "id", "name", "input"})
"""The keys of a call's block that OpenAI's form has a place for."""


# From a response


def detail_of(block: Mapping[str, Any], index: int) -> JSONDict:
    """The item of ``reasoning_details`` for a block of reasoning, or for a piece of one."""
    item: JSONDict = {"format": FORMAT, "index": index}
    if block.get("type") == "redacted_thinking":
        return {"type": "reasoning.encrypted", **item, "data": block.get("data", "")}
    text, signature = block.get("thinking") or "", block.get("signature")
    signed = {"signature": signature} if signature else {}
    return {"type": "reasoning.text", **item, "text": text, **signed}


def kept_blocks(blocks: Mapping[int, JSONDict]) -> JSONDict:
    """The key of the assistant message for what its text and its calls do not say; empty without any.

    Args:
        blocks: the blocks of the response, by their index.
    """
    texts_are_kept = not _is_plain([*blocks.values()])
    kept = [
        {**block, "index": index}
        for index, block in sorted(blocks.items())
        if block.get("type") not in _OF_MESSAGES or (texts_are_kept and block.get("type") == "text")
    ]
    return _own({"blocks": kept}) if kept else {}


def _is_plain(blocks: list[JSONDict]) -> bool:
    """Whether the text is one block, without citations, before the calls: it then needs no separate position."""
    said = [block for block in blocks if block.get("type") in {"text", "tool_use"}]
    has_citations = any(block.get("citations") for block in said)
    return not has_citations and all(block.get("type") == "tool_use" for block in said[1:])


def kept_of_call(block: Mapping[str, Any]) -> JSONDict:
    """The key of the call for the other keys of its block, such as who calls; empty if they say nothing."""
    said = {key: block[key] for key in block if key not in _OF_CALLS and block[key] is not None}
    if said.get("caller") == {"type": "direct"}:
        del said["caller"]
    return _own(said) if said else {}


def _own(said: JSONDict) -> JSONDict:
    return {"extra_content": {"anthropic": said}}


# To a request


def own_of(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a message or a call has kept; empty if nothing."""
    content: Any = holder.get("extra_content")
    own: Any = content.get("anthropic") if is_mapping(content) else None
    return own if is_mapping(own) else {}


def placed_blocks(message: Mapping[str, Any]) -> dict[int, JSONDict]:
    """The blocks that a message has kept, by their index in the response.

    Texts are among them only if they still are the content of the message.
    """
    placed = dict(_reasoning(message))
    found: Any = own_of(message).get("blocks")
    blocks = [dict(one) for one in found if _is_block(one)] if is_list(found) else []
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    are_current = "".join(texts) == (message.get("content") or "")
    for block in blocks:
        index = block.pop("index", None)
        if block["type"] != "text" or are_current:
            placed[_free(placed, index)] = block
    return placed


def _is_block(one: Any) -> bool:
    """Whether an item of a history can be a block: histories may come from anywhere."""
    kind = one.get("type") if is_mapping(one) else None
    return isinstance(kind, str) and (kind != "text" or isinstance(one.get("text"), str))


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
    data, text, signature = (text_or_none(item.get(key)) for key in ("data", "text", "signature"))
    if item.get("type") == "reasoning.encrypted":
        return {"type": "redacted_thinking", "data": data} if data else None
    return (
        {"type": "thinking", "thinking": text or "", "signature": signature} if signature else None
    )


def _free(placed: Mapping[int, JSONDict], index: Any) -> int:
    place = index if isinstance(index, int) else len(placed)
    while place in placed:
        place += 1
    return place
