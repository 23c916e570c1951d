"""The rules of a history: what every provider requires of the messages in a request, stated once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from treadle.messages import is_list, problems_of, to_message
from treadle.messages.parts import sendable_parts
from treadle.messages.repair import can_join, is_blank
from treadle.messages.sanitizing import sendable_json, valid_arguments, valid_name


class InvalidHistoryError(AssertionError):
    """A history that a provider would reject; the message lists every problem and its place."""


def check_history(messages: Sequence[Mapping[str, Any]]) -> None:
    """Assert that every provider accepts a history.

    * Each message has a known role and the fields of that role.
    * Each call has exactly one tool message, directly after its assistant message, in the order of the calls.
      Each tool message belongs to a call.
    * Ids of calls are unique. Arguments are JSON objects. Names match ``[a-zA-Z0-9_.-]{1,128}``.
    * No message has lone surrogates, numbers that JSON does not have, or a part whose data are no base64.
    * No list of calls is empty, and no text part.
    * An assistant message has text, a refusal, a part that is not text, or calls. White space does not count as
      text, since Anthropic rejects it.
    * No assistant message directly follows another.

    Empty system, user and tool messages are allowed. OpenAI accepts them. Anthropic rejects some of them, but what
    they should say instead is for the caller to decide.

    Args:
        messages: OpenAI chat dicts, or SDK objects of that form.

    Raises:
        InvalidHistoryError: a rule is broken; the text names every problem.
    """
    problems = list(history_problems(messages))
    if problems:
        raise InvalidHistoryError("; ".join(problems))


def history_problems(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line for each broken rule of `check_history`: where, and what is wrong."""
    messages = [to_message(message) for message in messages]
    malformed = list(problems_of(messages))
    yield from malformed
    if malformed:
        return
    ids: set[str] = set()
    waiting: Counter[str] = Counter()
    before: Mapping[str, Any] = {}
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        parts = message.get("content")
        if is_list(parts) and any(
            part["type"] == "text" and not part.get("text") for part in parts
        ):
            yield f"{where}: a text part without text"
        elif is_list(parts) and sendable_parts(parts) != parts:
            yield f"{where}: a content part that cannot be sent"
        values = {key: message[key] for key in message if key != "tool_calls"}
        if sendable_json(values) != values:
            yield f"{where}: values that cannot be sent"
        if message["role"] == "tool":
            yield from _tool_problems(message, waiting, where)
        else:
            if waiting:
                yield f"{where}: calls {', '.join(waiting)} have no tool message before it"
                waiting = Counter()
            if message["role"] == "assistant":
                yield from _assistant_problems(message, before, where)
                calls = message.get("tool_calls") or ()
                yield from _call_problems(calls, ids, where)
                waiting = Counter(call["id"] for call in calls)
        before = message
    if waiting:
        yield f"messages: calls {', '.join(waiting)} have no tool message at the end"


def _tool_problems(message: Mapping[str, Any], waiting: Counter[str], where: str) -> Iterator[str]:
    call_id = message["tool_call_id"]
    if call_id not in waiting:
        yield f"{where}: it has the result of {call_id!r}, but no call before it with that id is open"
    else:
        first = next(iter(waiting))
        if first != call_id:
            yield f"{where}: it has the result of {call_id!r}, but {first!r} was called first"
        waiting[call_id] -= 1
        if not waiting[call_id]:
            del waiting[call_id]


def _assistant_problems(
    message: Mapping[str, Any], before: Mapping[str, Any], where: str
) -> Iterator[str]:
    calls = message.get("tool_calls")
    if calls == []:
        yield f"{where}: an empty list of calls"
    has_content = message.get("refusal") or message.get("extra_content")
    if not calls and not has_content and is_blank(message.get("content")):
        yield f"{where}: an assistant message without text and calls"
    if before and can_join(before, message):
        yield f"{where}: an assistant message directly after another"


def _call_problems(calls: Sequence[Mapping[str, Any]], ids: set[str], where: str) -> Iterator[str]:
    for call in calls:
        if call["id"] in ids:
            yield f"{where}: the id {call['id']!r} is used twice"
        ids.add(call["id"])
        if sendable_json(call) != call:
            yield f"{where}: the call {call['id']!r} has values that cannot be sent"
        function = call.get("function")
        if function is None:
            continue  # a call of a provider's own type
        arguments = function.get("arguments", "")
        if _is_object(arguments) and valid_arguments(arguments) != arguments:
            yield f"{where}: the arguments of {call['id']!r} have values that cannot be sent"
        elif not _is_object(arguments):
            yield f"{where}: the arguments of {call['id']!r} are not a JSON object"
        if valid_name(function["name"]) != function["name"]:
            yield f"{where}: {function['name'][:40]!r} is not a valid name of a tool"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads and other parsers do not."""
    raise ValueError(f"{constant} is not JSON")
