"""What the history keeps of a response of the Responses API, so that it can be sent back as it came.

The text, the calls and the refusal of the response are those of the assistant message. Its reasoning is under
``reasoning_details``, in the items that are made here. ``extra_content["openai"]["items"]`` lists the output in
its order, each item in the API's own form, without what is elsewhere in the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treadle.messages import JSONDict, is_list, is_mapping
from treadle.messages.decode import text_or_none

FORMAT = "openai-responses"
"""The ``format`` of the API's items in ``reasoning_details``, as OpenRouter names it."""

BETWEEN_MESSAGES = "\n\n"
"""What separates the texts of several messages in one response."""


def kept_items(output: Iterable[JSONDict]) -> JSONDict:
    """The keys of the assistant message for the output of a response."""
    found = list(map(_without_logprobs, output))
    has_one_message = sum(item.get("type") == "message" for item, _ in found) == 1
    kept = [_kept(item, has_one_message) for item, _ in found]
    logprobs = [token for _, tokens in found for token in tokens]
    extra: JSONDict = {"extra_content": {"openai": {"items": kept}}} if kept else {}
    return {**extra, "logprobs": logprobs} if logprobs else extra


def _without_logprobs(item: JSONDict) -> tuple[JSONDict, list[Any]]:
    """An item without the log probabilities of its tokens, and these."""
    content: Any = item.get("content")
    if not is_list(content):
        return item, []
    parts = list(filter(is_mapping, content))
    tokens = [token for part in parts for token in part.get("logprobs") or ()]
    bare = [{key: part[key] for key in part if key != "logprobs"} for part in parts]
    return {**item, "content": bare}, tokens


def _kept(item: JSONDict, has_one_message: bool) -> JSONDict:
    elsewhere = _ELSEWHERE.get(str(item.get("type")), frozenset())
    if item.get("type") == "message" and has_one_message and _is_plain(item.get("content")):
        elsewhere = frozenset({"content"})
    return {key: value for key, value in item.items() if key not in elsewhere}


_ELSEWHERE = {
    "reasoning": frozenset({"summary", "content", "encrypted_content"}),
    "function_call": frozenset({"name", "arguments"}),
}


def _is_plain(content: Any) -> bool:
    """Whether the content of a message is one text, with nothing else such as citations."""
    if not is_list(content) or len(content) != 1 or not is_mapping(content[0]):
        return False
    values = {key: value for key, value in content[0].items() if value}
    return values.keys() <= {"type", "text"} and values.get("type") == "output_text"


def items_of(message: Mapping[str, Any]) -> list[JSONDict]:
    """The items that `kept_items` made for a message; none if another provider made the message."""
    content: Any = message.get("extra_content")
    own: Any = content.get("openai") if is_mapping(content) else None
    items: Any = own.get("items") if is_mapping(own) else None
    return [dict(item) for item in items if _can_be_ours(item)] if is_list(items) else []


def _can_be_ours(item: Any) -> bool:
    """Whether an item of a history can have come from the API: histories may come from anywhere."""
    return is_mapping(item) and isinstance(item.get("id"), str | None)


# Texts of a message


def texts_of(item: Mapping[str, Any], kind: str = "output_text") -> str:
    """The text of a message of the API; or its refusal, if the kind is ``refusal``."""
    key = "refusal" if kind == "refusal" else "text"
    content: Any = item.get("content")
    parts: list[Any] = content if is_list(content) else []
    own = (part for part in parts if is_mapping(part) and part.get("type") == kind)
    return "".join(str(part.get(key) or "") for part in own)


# Reasoning


def details_of(item: Mapping[str, Any], index: int) -> list[JSONDict]:
    """The items of ``reasoning_details`` for a reasoning item of the API.

    Args:
        item: the reasoning item.
        index: its place in the output.
    """
    found = [
        detail(item.get("id"), index, key, part.get("text"), number)
        for name, key in (("summary", "summary"), ("content", "text"))
        for number, part in enumerate(filter(is_mapping, item.get(name) or ()))
    ]
    data = item.get("encrypted_content")
    if data:
        found.append(detail(item.get("id"), index, "data", data))
    return found or [detail(item.get("id"), index, "summary", "")]


def detail(item_id: Any, index: int, key: str, text: Any, part: int = 0) -> JSONDict:
    """An item of ``reasoning_details``, or a piece of it in a stream.

    Args:
        item_id: the id of the reasoning item.
        index: its place in the output.
        key: ``summary``, ``text`` or ``data``.
        text: the value of this key.
        part: the place of the text among the summaries, or the texts, of the reasoning item.
    """
    made = {"type": _TYPES[key], key: text or "", "format": FORMAT, "id": item_id, "index": index}
    return {**made, "part": part} if part else made


_TYPES = {"summary": "reasoning.summary", "text": "reasoning.text", "data": "reasoning.encrypted"}


def reasoning_of(message: Mapping[str, Any]) -> dict[Any, JSONDict]:
    """The reasoning items of the API that a message has, by their ids, in order."""
    details: Any = message.get("reasoning_details")
    own = [one for one in details if _is_own(one)] if is_list(details) else []
    found: dict[Any, JSONDict] = {}
    for one in own:
        item_id = one.get("id")
        empty: JSONDict = {"type": "reasoning", "id": item_id, "summary": []}
        _add(found.setdefault(item_id or str(one.get("index")), empty), one)
    return found


def _is_own(one: Any) -> bool:
    return _can_be_ours(one) and one.get("format") == FORMAT


def _add(item: JSONDict, one: Mapping[str, Any]) -> None:
    data, summary, text = (text_or_none(one.get(key)) for key in ("data", "summary", "text"))
    if data:
        item["encrypted_content"] = data
    if summary:
        item["summary"].append({"type": "summary_text", "text": summary})
    if text:
        item.setdefault("content", []).append({"type": "reasoning_text", "text": text})
