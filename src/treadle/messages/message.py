"""Chat messages in the form of OpenAI's dicts: their types, and the validation of those handed in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, TypeGuard

Content: TypeAlias = str | Sequence[Mapping[str, Any]]


class FunctionCall(TypedDict):
    """The function of a call, its arguments as JSON text."""

    name: str
    arguments: str


class MessageToolCall(TypedDict):
    """A call in an assistant message."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class SystemMessage(TypedDict):
    """Instructions for the model."""

    role: Literal["system", "developer"]
    content: Content


class UserMessage(TypedDict):
    """Input of the user."""

    role: Literal["user"]
    content: Content


class AssistantMessage(TypedDict):
    """A response of the model: text, calls, or both."""

    role: Literal["assistant"]
    content: NotRequired[Content | None]
    tool_calls: NotRequired[list[MessageToolCall]]


class ToolMessage(TypedDict):
    """The result of one call."""

    role: Literal["tool"]
    tool_call_id: str
    content: Content


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""A chat message. Unknown keys are kept."""

Messages: TypeAlias = str | Sequence[Message] | Sequence[Mapping[str, Any]]
"""What callers may pass: messages, or plain dicts of the same form."""

JSONDict: TypeAlias = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
"""OpenAI's chat roles, except the deprecated ``function``."""


def copy_json(value: Any) -> Any:
    """Copy JSON data deeply; any other value is kept as it is, and tuples become lists."""
    # It runs for every message of every iteration. To copy the container and then replace the nested values
    # takes two thirds of the time of copying value by value.
    if isinstance(value, dict):
        fields: JSONDict = value  # pyright: ignore[reportUnknownVariableType]
        made = {**fields}
        for key, part in fields.items():
            if part.__class__ not in ATOMS:
                made[key] = copy_json(part)
        return made
    if isinstance(value, (list, tuple)):
        parts: list[Any] = [*value]
        for place, part in enumerate(parts):
            if part.__class__ not in ATOMS:
                parts[place] = copy_json(part)
        return parts
    return value


ATOMS = frozenset({str, int, float, bool, type(None)})
"""The types of JSON values that are not containers."""


def is_dict(value: object) -> TypeGuard[JSONDict]:
    """Whether a value is a dict; its keys are text, since it is JSON data."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def is_part(value: object) -> bool:
    """Whether a value is a part of a content."""
    return is_dict(value) and isinstance(value.get("type"), str)


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a mapping; its keys are text, since it is JSON data."""
    return isinstance(value, dict) or isinstance(value, Mapping)  # noqa: SIM101 - the first is fast, and common


def to_message(given: Any) -> Any:
    """Make a dict of a message: a copy of a mapping, or the dump of an SDK's object; else return it unchanged."""
    if is_mapping(given):
        return copy_json(dict(given))
    dump = getattr(given, "model_dump", None)
    if callable(dump) and not isinstance(given, type):
        return dump(mode="json", exclude_none=True)
    return given


def problems_of(messages: Sequence[Any]) -> Iterator[str]:
    """Validate messages.

    Args:
        messages: the return values of `to_message`.

    Yields:
        One line for each problem: the place, what was expected, and what was found.
    """
    if not messages:
        yield "messages: expected at least one message, got none"
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not is_dict(message):
            yield f"{where}: expected a message dict, got {describe(message)}"
            continue
        yield from _problems_of_one(message, where)


def _problems_of_one(message: JSONDict, where: str) -> Iterator[str]:
    role = message.get("role")
    if role not in ROLES:
        yield f"{where}.role: expected one of {', '.join(ROLES)}, got {describe(role)}"
        return
    content = message.get("content")
    may_lack = role == "assistant" and (message.get("tool_calls") or "content" in message)
    if not (content is None and may_lack):
        yield from _problems_of_content(content, f"{where}.content")
    if role == "tool" and not _is_text(message.get("tool_call_id")):
        found = describe(message.get("tool_call_id"))
        yield f"{where}.tool_call_id: expected the id of a call, got {found}"
    if role == "assistant" and message.get("tool_calls") is not None:
        yield from _problems_of_calls(message["tool_calls"], f"{where}.tool_calls")


def _problems_of_content(content: Any, where: str) -> Iterator[str]:
    if isinstance(content, str):
        return
    if not is_list(content):
        yield f"{where}: expected text or a list of parts, got {describe(content)}"
        return
    for index, part in enumerate(content):
        if not is_part(part):
            yield f"{where}[{index}]: expected a part with a type, got {describe(part)}"


def _problems_of_calls(calls: Any, where: str) -> Iterator[str]:
    if not is_list(calls):
        yield f"{where}: expected a list of calls, got {describe(calls)}"
        return
    for index, call in enumerate(calls):
        at = f"{where}[{index}]"
        if not is_dict(call):
            yield f"{at}: expected a call, got {describe(call)}"
            continue
        if not _is_text(call.get("id")):
            yield f"{at}.id: expected text, got {describe(call.get('id'))}"
        function: Any = call.get("function")
        if call.get("type", "function") != "function":
            continue  # a special kind of call of a provider
        if not is_dict(function) or not _is_text(function.get("name")):
            yield f"{at}.function.name: expected text, got {describe(function)}"
        elif not isinstance(function.get("arguments", ""), str):
            found = describe(function["arguments"])
            yield f"{at}.function.arguments: expected JSON text, got {found}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def describe(value: Any) -> str:
    """Describe a value in an error text: its type, and its ``repr`` if that is short."""
    if value is None:
        return "nothing"
    text, limit = repr(value), 40
    kind = type(value).__name__
    return f"{kind} {text}" if len(text) <= limit else kind
