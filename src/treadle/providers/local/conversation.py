"""Conversations for a model whose chat template does not support tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from treadle.messages import is_mapping

Message: TypeAlias = Mapping[str, Any]

POPULATION = "How many people live in Peru?"
OPEN_DOOR = "Please open door 12 with the key K-7."
"""Two requests of the worked examples, here and where a tool is chosen."""

_ANSWER_SYSTEM = "You are a helpful assistant. Answer the question from the result."
_ANSWERED = (
    (
        POPULATION,
        "country_facts",
        "Peru, capital Lima, 34 million people",
        "34 million people live in Peru.",
    ),
    ("Who sits in room 5?", "who_is_in", "Anna, Bob, Carl", "Anna, Bob and Carl sit in room 5."),
    (OPEN_DOOR, "open_door", "The door 12 is open now", "The door 12 is open now."),
)


def last_request(messages: Sequence[Message]) -> tuple[str, bool]:
    """Return the text of the last user message, and whether a tool result follows it."""
    answered = False
    for message in reversed(messages):
        if message.get("role") == "user":
            return text_of(message), answered
        answered = answered or message.get("role") == "tool"
    return "", answered


def answer_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Rewrite a conversation without tool calls and tool messages.

    Each result is appended to the question of the user, where even a very small model reads it;
    three short conversations before it show how a result becomes an answer.

    Args:
        messages: a conversation in OpenAI's format.

    Returns:
        Messages of system, user and assistant only, all with text.
    """
    system = [text_of(each) for each in messages if each.get("role") in {"system", "developer"}]
    rest = [each for each in messages if each.get("role") not in {"system", "developer"}]
    plain = _without_tools(rest)
    if any(each.get("role") == "tool" for each in rest):
        worked = [
            {"role": role, "content": text}
            for asked, name, result, answer in _ANSWERED
            for role, text in (("user", _with_result(asked, name, result)), ("assistant", answer))
        ]
        plain = worked + plain
        system.append(_ANSWER_SYSTEM)
    text = "\n".join(each for each in system if each)
    return ([{"role": "system", "content": text}] if text else []) + plain


def _without_tools(messages: Sequence[Message]) -> list[dict[str, str]]:
    plain: list[dict[str, str]] = []
    names: dict[str, str] = {}
    after_result = False  # which is in a message of the user: another of the user must not follow
    for message in messages:
        text = text_of(message)
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        if message.get("role") == "tool":
            name = names.get(message.get("tool_call_id", ""), "the tool")
            if not plain or plain[-1]["role"] != "user":
                plain.append({"role": "user", "content": ""})
            plain[-1]["content"] = _with_result(plain[-1]["content"], name, text)
            after_result = True
        elif after_result and message.get("role") == "user":
            plain[-1]["content"] = f"{plain[-1]['content']}\n\n{text}"
        elif message.get("role") == "user" or (text and not message.get("tool_calls")):
            # Text next to a call is omitted: it would separate the question from the result.
            plain.append({"role": str(message.get("role")), "content": text})
            after_result = False
    return plain


def text_of(message: Message) -> str:
    """Return the text of a message, whose content may be text, None, or a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Any]", content or ())
    texts = [str(each.get("text", "")) if is_mapping(each) else str(each) for each in parts]
    return "\n".join(each for each in texts if each)


def _with_result(request: str, name: str, result: str) -> str:
    # On one line: the model takes a list of lines for a text to continue.
    return f"{request}\n\nResult of {name}: {', '.join(result.splitlines())}"
