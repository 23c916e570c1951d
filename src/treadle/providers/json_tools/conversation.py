"""Conversations for a model without native tool use: calls and results as plain messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.messages import JSONDict, is_list, parse_object
from treadle.messages.parts import text_part
from treadle.messages.sanitizing import valid_arguments
from treadle.providers.json_tools.offer import ANSWER, ARGUMENTS, CALLS, TOOL, Offer


def plain_messages(messages: Sequence[JSONDict], offer: Offer | None) -> list[JSONDict]:
    """Rewrite a conversation without tool calls and tool messages.

    Calls become the JSON text that the model would write, and results a user message. All other keys and content
    parts are kept.

    Args:
        messages: a valid history; it is not changed.
        offer: what the model may respond with; None if no tool is offered.
    """
    plain: list[JSONDict] = []
    names: dict[str, str] = {}
    # After results, which are a message of the user, another of the user must not follow.
    after_result = False
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            content = _result(names.get(message.get("tool_call_id", ""), "the tool"), content)
        if after_result and role in ("tool", "user"):
            plain[-1]["content"] = _joined(plain[-1]["content"], content)
        elif role == "tool":
            plain.append({"role": "user", "content": content})
            after_result = True
        else:
            names |= {one["id"]: one["function"]["name"] for one in _calls_of(message)}
            plain.append(_said(message, offer) if role == "assistant" else message)
            after_result = False
    return plain if offer is None else _instructed(plain, offer.instructions())


def _calls_of(message: Mapping[str, Any]) -> list[JSONDict]:
    return [one for one in message.get("tool_calls") or () if "function" in one]


def _joined(first: Any, second: Any) -> Any:
    if is_list(first) or is_list(second):
        return [*_parts(first), *_parts(second)]
    return "\n\n".join(filter(None, (first, second)))


def _parts(content: Any) -> list[JSONDict]:
    return content if is_list(content) else [text_part(content)] if content else []


def _result(name: str, content: Any) -> Any:
    head = f"Result of {name}:"
    return [text_part(head), *content] if is_list(content) else f"{head}\n{content or ''}"


def _said(message: JSONDict, offer: Offer | None) -> JSONDict:
    """A message of the assistant, as the model would have written it."""
    calls, content = _calls_of(message), message.get("content")
    if not calls:
        # A model copies the pattern of its earlier answers.
        is_text = offer is not None and offer.answer is None and isinstance(content, str)
        return {**message, "content": _json({ANSWER: content})} if is_text else message
    written = _written([_call(one) for one in calls], offer)
    made = {key: value for key, value in message.items() if key != "tool_calls"}
    made["content"] = _joined(content, written)
    return made


def _call(call: Mapping[str, Any]) -> JSONDict:
    function = call["function"]
    arguments = parse_object(valid_arguments(function.get("arguments") or ""))
    return {TOOL: function["name"], ARGUMENTS: arguments}


def _written(calls: list[JSONDict], offer: Offer | None) -> str:
    is_one = len(calls) == 1 and not (offer is not None and offer.is_parallel)
    return _json(calls[0] if is_one else {CALLS: calls})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _instructed(messages: list[JSONDict], text: str) -> list[JSONDict]:
    """Append instructions to the first message if it is one of the system, else before all messages."""
    first = messages[0] if messages else {}
    if first.get("role") not in ("system", "developer"):
        return [{"role": "system", "content": text}, *messages]
    return [{**first, "content": _joined(first.get("content"), text)}, *messages[1:]]
