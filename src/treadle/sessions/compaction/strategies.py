"""Strategies that make older messages shorter without a model: they are tried before a summary is written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from treadle.errors import OptionError
from treadle.messages import InvalidMessagesError, JSONDict, describe, is_list, parse_object
from treadle.messages.json_text import MalformedJSONError, canonical_json
from treadle.messages.parts import text_of_parts
from treadle.messages.repair import validate_messages
from treadle.sessions.attachments import attachments_of

READ_RESULT = "read_result"
"""The name of the tool that reads a result which was replaced by a stub."""

Strategy: TypeAlias = Callable[[Sequence[JSONDict]], Sequence[JSONDict]]
"""Takes some whole exchanges of a valid history and returns shorter ones: again a valid part of a history.

It is a pure function, and is applied to the same messages in each iteration. It does not change the messages that
it receives, which are read-only."""

Exchange: TypeAlias = list[JSONDict]
"""An assistant message with its tool messages, or any other message alone."""


class StubResults:
    """A strategy that replaces old tool results by a stub; the model can read them back with `READ_RESULT`.

    Args:
        min_characters: the length from which a result is replaced; results with attachments stay.

    Raises:
        OptionError: the length is below that of a stub.
    """

    def __init__(self, min_characters: int = 1_000) -> None:
        if not is_whole(min_characters, MIN_CHARACTERS):
            raise OptionError(
                f"StubResults: min_characters: expected a whole number of at least {MIN_CHARACTERS}, "
                f"got {min_characters!r}"
            )
        self.min_characters = min_characters

    def __repr__(self) -> str:
        return f"StubResults({self.min_characters})"

    def __call__(self, messages: Sequence[JSONDict]) -> list[JSONDict]:
        """The messages, with long results replaced by a stub."""
        return [_stubbed(message, self.min_characters) for message in messages]


MIN_CHARACTERS = 200
"""A stub has about 150 characters."""


def is_whole(value: object, least: int) -> bool:
    """Whether a value is a whole number of at least so much."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _stubbed(message: JSONDict, least: int) -> JSONDict:
    if message["role"] != "tool" or attachments_of(message):
        return message
    text = text_of(message)
    if len(text) < least:
        return message
    return {**message, "content": stub(message["tool_call_id"], len(text))}


def stub(call_id: str, length: int) -> str:
    """The text that replaces a result of so many characters."""
    return (
        f"[This result of {length:,} characters was removed to save space. "
        f'{READ_RESULT} with id "{call_id}" reads it.]'
    )


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, with placeholders for parts that are not text."""
    content: Any = message.get("content")
    if is_list(content):
        return text_of_parts(content)
    return content if isinstance(content, str) else ""


def drop_superseded(messages: Sequence[JSONDict]) -> list[JSONDict]:
    """A strategy that drops exchanges whose calls are all made again later, without text of the model.

    The latest of the same calls stays, with its result. Calls are the same if name and arguments are.
    """
    later: set[str] = set()
    kept: list[Exchange] = []
    for exchange in reversed(list(exchanges(messages))):
        calls = _calls_of(exchange[0])
        keys = {_key(call) for call in calls}
        if calls and keys <= later and not _must_stay(exchange):
            continue
        later |= keys
        kept.append(exchange)
    return _joined(reversed(kept))


def collapse_repeats(messages: Sequence[JSONDict]) -> list[JSONDict]:
    """A strategy that keeps one of several identical exchanges in a row: the same calls with the same results."""
    kept: list[Exchange] = []
    last = ""
    for exchange in exchanges(messages):
        calls = _calls_of(exchange[0])
        this = canonical_json([[_key(call) for call in calls], *map(_content, exchange)])
        if calls and this == last and not _must_stay(exchange):
            kept[-1] = exchange
            continue
        last = this
        kept.append(exchange)
    return _joined(kept)


def check_strategies(strategies: Sequence[Strategy], messages: Sequence[JSONDict]) -> None:
    """Check that what strategies make of some messages is a valid part of a history.

    Raises:
        OptionError: it is not.
    """
    for place, strategy in enumerate(strategies):
        messages = strategy(messages)
        problem = _problem_of(messages)
        if problem:
            raise OptionError(f"compact_history: strategies[{place}]: {problem}")


def _problem_of(made: Any) -> str:
    """Why a part of a history that a strategy returned cannot be sent; empty if it can."""
    if not isinstance(made, (list, tuple)):
        return f"expected a list of messages, got {describe(made)}"
    try:
        repairs = validate_messages(made)[1] if made else ()  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    except InvalidMessagesError as error:
        return f"it returned invalid messages: {error}"
    return f"it returned an invalid part of a history: {'; '.join(repairs)}" if repairs else ""


def exchanges(messages: Sequence[JSONDict]) -> Iterator[Exchange]:
    """Group the messages of a valid history: each assistant message with its tool messages."""
    group: Exchange = []
    for message in messages:
        if message["role"] != "tool" and group:
            yield group
            group = []
        group.append(message)
    if group:
        yield group


def _joined(groups: Any) -> list[JSONDict]:
    return [message for group in groups for message in group]


def _calls_of(message: JSONDict) -> list[JSONDict]:
    return message.get("tool_calls") or [] if message["role"] == "assistant" else []


def request_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the arguments of a call; of a provider's own kind of call, its type and all of it."""
    function = call.get("function")
    if function is None:
        return str(call.get("type")), canonical_json({**call, "id": ""})
    return function["name"], function.get("arguments", "")


def _key(call: JSONDict) -> str:
    name, written = request_of(call)
    arguments: Any = written
    with contextlib.suppress(MalformedJSONError):
        arguments = parse_object(written)
    return canonical_json([name, arguments])


def _content(message: JSONDict) -> Any:
    return message.get("content")


def _must_stay(exchange: Exchange) -> bool:
    """Whether an exchange has text of the model, or attachments, which are not dropped."""
    return bool(text_of(exchange[0]).strip()) or any(map(attachments_of, exchange))
