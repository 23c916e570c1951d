"""Messages: OpenAI chat dicts, as they come in and as they go out, and what is checked of them at the door."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, TypeGuard

Content: TypeAlias = str | Sequence[Mapping[str, Any]]


class FunctionCall(TypedDict):
    """The function of a call, its arguments as JSON text."""

    name: str
    arguments: str


class MessageToolCall(TypedDict):
    """A call as it stands in an assistant message."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class SystemMessage(TypedDict):
    """What the model is told before all else."""

    role: Literal["system", "developer"]
    content: Content


class UserMessage(TypedDict):
    """What a person says."""

    role: Literal["user"]
    content: Content


class AssistantMessage(TypedDict):
    """What the model says: text, calls, or both."""

    role: Literal["assistant"]
    content: NotRequired[Content | None]
    tool_calls: NotRequired[list[MessageToolCall]]


class ToolMessage(TypedDict):
    """The answer to one call."""

    role: Literal["tool"]
    tool_call_id: str
    content: Content


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""A chat message. Other keys than the typed ones are kept as they are, wherever a message goes."""

Messages: TypeAlias = Sequence[Message] | Sequence[Mapping[str, Any]]
"""What a caller may hand in: messages, or plain dicts of that form."""

JSONDict: TypeAlias = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
"""OpenAI's chat roles, but for the deprecated ``function``."""


def copy_json(value: Any) -> Any:
    """Copy what JSON is made of, all the way down; anything else is taken as it is."""
    # It runs for every message of every iteration: what cannot hold anything is not worth a call; and
    # to copy all at once and then mend what holds more takes two thirds of the time of copying part by part.
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
"""What JSON has that holds nothing else."""


def is_dict(value: object) -> TypeGuard[JSONDict]:
    """Whether a value is a dict; of JSON, so that its keys are text."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a mapping; of JSON, so that its keys are text."""
    # The first is much faster to find out, and nearly always so.
    return isinstance(value, dict) or isinstance(value, Mapping)  # noqa: SIM101 - as said above


def to_message(given: Any) -> Any:
    """The message as a dict of our own: a copy of a mapping, or the dump of an SDK's message object."""
    if is_mapping(given):
        return copy_json(dict(given))
    dump = getattr(given, "model_dump", None)
    if callable(dump) and not isinstance(given, type):
        return dump(mode="json", exclude_none=True)
    return given


def problems_of(messages: Sequence[Any]) -> Iterator[str]:
    """Tell all that is malformed.

    Args:
        messages: what `as_message` made.

    Yields:
        One line for each problem: where it is, what was expected, what was found.
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
        if not is_dict(part) or not isinstance(part.get("type"), str):
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
            continue  # a provider's own kind of call: not ours to judge
        if not is_dict(function) or not _is_text(function.get("name")):
            yield f"{at}.function.name: expected text, got {describe(function)}"
        elif not isinstance(function.get("arguments", ""), str):
            found = describe(function["arguments"])
            yield f"{at}.function.arguments: expected JSON text, got {found}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def describe(value: Any) -> str:
    """Name a value for an error: its type, and what it is where that is short."""
    if value is None:
        return "nothing"
    shown = repr(value)
    limit = 40
    kind = type(value).__name__
    return f"{kind} {shown}" if len(shown) <= limit else kind
