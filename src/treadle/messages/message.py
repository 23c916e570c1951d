"""Chat messages in the form of OpenAI's dicts: their types, copies, read-only views and validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, NotRequired, TypeAlias, TypedDict, TypeGuard

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


class InputMessage(TypedDict):
    """Instructions for the model, or input of the user."""

    role: Literal["system", "developer", "user"]
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


Message: TypeAlias = InputMessage | AssistantMessage | ToolMessage
"""A chat message. Unknown keys are kept."""

Messages: TypeAlias = str | Sequence[Message] | Sequence[Mapping[str, Any]]
"""What callers may pass: messages, or plain dicts of the same form."""

JSONDict: TypeAlias = dict[str, Any]
"""A JSON object."""

ROLES = ("system", "developer", "user", "assistant", "tool")
"""OpenAI's chat roles, except the deprecated ``function``."""
SYSTEM_ROLES = frozenset({"system", "developer"})
"""The roles of instructions: some models of OpenAI call them ``developer``."""
ORIGIN = "treadle"
"""The key of an assistant message that treadle itself writes; see `for_sdk`."""


def copy_json(value: Any) -> Any:
    """Copy JSON data deeply; tuples become lists, and any other value is kept unchanged."""
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


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise TypeError(
        "a context is read-only, and so are its messages, tools, calls and results; return a changed copy, as in "
        "ctx.replace(messages=[{**message, 'content': text} for message in ctx.messages]) or "
        "ctx.remember(name, value)"
    )


class _ReadOnly:
    """Raises if it is edited in place; a deep copy is a plain object."""

    __slots__ = ()

    __setitem__ = __delitem__ = __ior__ = __iadd__ = __imul__ = pop = clear = _refuse

    def __deepcopy__(self, _memo: Any) -> Any:
        return copy_json(self)

    def __reduce__(self) -> tuple[Any, ...]:
        plain = copy_json(self)
        return plain.__class__, (plain,)


class ReadOnlyDict(_ReadOnly, dict[str, Any]):
    """A read-only dict."""

    __slots__ = ()
    update = setdefault = popitem = _refuse


class ReadOnlyList(_ReadOnly, list[Any]):
    """A read-only list."""

    __slots__ = ()
    append = extend = insert = remove = sort = reverse = _refuse


def read_only(value: Any) -> Any:
    """Copy JSON data as read-only dicts and lists; any other value is kept unchanged."""
    if isinstance(value, _ReadOnly):
        return value
    if isinstance(value, dict):
        return ReadOnlyDict({key: read_only(part) for key, part in value.items()})  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return ReadOnlyList([read_only(part) for part in value])  # pyright: ignore[reportUnknownVariableType]
    return value


NOTHING = ReadOnlyDict()
"""An empty dict, which is shared."""


def is_dict(value: object) -> TypeGuard[JSONDict]:
    """Whether a value is a dict; its keys are text, since it is JSON data."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a list."""
    return isinstance(value, list)


def is_part(value: object) -> bool:
    """Whether a value is a content part."""
    return is_dict(value) and isinstance(value.get("type"), str)


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a mapping; its keys are text, since it is JSON data."""
    return isinstance(value, dict) or isinstance(value, Mapping)  # noqa: SIM101 - the first is fast, and common


def to_message(raw: Any) -> Any:
    """Convert a message to a dict: copy a mapping, or dump an SDK's object; return other values unchanged."""
    if is_mapping(raw):
        return copy_json(dict(raw))
    dumped = dumped_of(raw, mode="json")
    return raw if dumped is None else dumped


def dumped_of(raw: Any, **options: Any) -> Any:
    """The data of an SDK's object, as pydantic dumps it; None if it is not such an object."""
    dump = getattr(raw, "model_dump", None)
    if not callable(dump) or isinstance(raw, type):
        return None
    # Servers that implement an API may leave out fields, or have other values.
    return dump(exclude_none=True, warnings=False, **options)


def problems_of(messages: Sequence[Any]) -> Iterator[str]:
    """Validate the return values of `to_message`; one line for each problem."""
    if not messages:
        yield "messages: expected at least one message, got none"
    for index, message in enumerate(messages):
        for where, expected, found in _problems_of_one(message):
            yield f"messages[{index}]{where}: expected {expected}, got {describe(found)}"


_Problems: TypeAlias = Iterator[tuple[str, str, Any]]
"""The place within a message, what was expected there, and what was found."""


def _problems_of_one(message: Any) -> _Problems:
    if not is_dict(message):
        yield "", "a message dict", message
        return
    role, calls = message.get("role"), message.get("tool_calls")
    if role not in ROLES:
        yield ".role", f"one of {', '.join(ROLES)}", role
        return
    content = message.get("content")
    may_lack = role == "assistant" and (calls or "content" in message)
    if is_list(content):
        for index, part in enumerate(content):
            if not is_part(part):
                yield f".content[{index}]", "a part with a type", part
    elif not isinstance(content, str) and not (content is None and may_lack):
        yield ".content", "text or a list of parts", content
    if role == "tool" and not _is_text(message.get("tool_call_id")):
        yield ".tool_call_id", "the id of a call", message.get("tool_call_id")
    if role == "assistant" and calls is not None:
        yield from _problems_of_calls(calls)
    if role == "assistant" and not isinstance(message.get("refusal"), (str, type(None))):
        yield ".refusal", "text", message["refusal"]


def _problems_of_calls(calls: Any) -> _Problems:
    if not is_list(calls):
        yield ".tool_calls", "a list of calls", calls
        return
    for index, call in enumerate(calls):
        where = f".tool_calls[{index}]"
        if not is_dict(call):
            yield where, "a call", call
            continue
        if not _is_text(call.get("id")):
            yield f"{where}.id", "text", call.get("id")
        if call.get("type", "function") != "function":
            continue  # a provider-specific kind of call
        function: Any = call.get("function")
        if not is_dict(function) or not _is_text(function.get("name")):
            yield f"{where}.function.name", "text", function
        elif not isinstance(function.get("arguments", ""), str):
            yield f"{where}.function.arguments", "JSON text", function["arguments"]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def describe(value: Any) -> str:
    """Describe a value in an error text: its type, and its ``repr`` if that is short."""
    if value is None:
        return "nothing"
    kind = type(value).__name__
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a custom `__repr__`, or an integer of too many digits
        return kind
    return f"{kind} {text}" if len(text) <= MAX_SHOWN else kind


MAX_SHOWN = 40
"""The maximum length of a ``repr`` that is shown in an error."""
