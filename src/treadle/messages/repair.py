"""Repairs invalid histories, so that every provider accepts them.

The rules of a valid history are those that `treadle.testing.check_history` checks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from treadle.messages.json_text import MalformedJSONError, parse_object, safe_str
from treadle.messages.message import JSONDict, is_mapping

NO_RESULT = "No result: this call was interrupted before its result was recorded."


def repair_history(
    messages: Sequence[JSONDict], taken: Iterable[str] = ()
) -> tuple[list[JSONDict], tuple[str, ...]]:
    """Make a valid history. No content is lost: a result without a call becomes a user message.

    Args:
        messages: well-formed messages; they are changed in place.
        taken: ids that calls of these messages may not have: calls that follow have them.

    Returns:
        The history, and one line for each repair: where, and what was done.
    """
    return _Repair(messages, taken).run()


def valid_arguments(text: str) -> str:
    """Make arguments that every provider accepts: a text that is not a JSON object is wrapped into one.

    Servers that render a chat template, or whose API has objects where OpenAI's has text, parse the
    arguments of past calls and refuse the request if they cannot.
    """
    try:
        parse_object(text)
    except MalformedJSONError:
        return json.dumps({"invalid_arguments": text})
    return text if text.strip() else "{}"


def valid_name(name: str) -> str:
    """Make a name that every provider accepts, whatever name the model wrote.

    Providers refuse a request if a name in its history is empty or has other characters; see `Tool`.
    """
    if name.isascii() and name.isidentifier() and len(name) <= MAX_NAME:
        return name
    return _NOT_OF_A_NAME.sub("_", name)[:MAX_NAME] or "unnamed"


MAX_NAME = 128
_NOT_OF_A_NAME = re.compile(r"[^a-zA-Z0-9_.-]+")


def sendable(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def sendable_json(value: Any) -> Any:
    """Copy unknown keys of a message so that they can be sent back to the provider.

    Lone surrogates are replaced. Numbers that JSON cannot represent, and values that are not JSON, become text.
    """
    if isinstance(value, str):
        return sendable(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if is_mapping(value):
        return {sendable(safe_str(key)): sendable_json(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [sendable_json(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return sendable(safe_str(value))


class _Repair:
    def __init__(self, messages: Sequence[JSONDict], taken: Iterable[str]) -> None:
        self._messages = messages
        self._out: list[JSONDict] = []
        self._repairs: list[str] = []
        self._ids = set(taken)
        self._numbers: dict[str, int] = {}

    def run(self) -> tuple[list[JSONDict], tuple[str, ...]]:
        index = 0
        while index < len(self._messages):
            message = self._messages[index]
            answers: list[JSONDict] = []
            if message["role"] == "assistant" and message.get("tool_calls"):
                answers = self._answers(index + 1)
                self._calls(message, index, answers)
                index += len(answers)
            elif message["role"] == "tool":
                self._orphan(message, index)
            elif message["role"] == "assistant":
                self._text(message, index)
            else:
                self._out.append(message)
            index += 1
        return self._out, tuple(self._repairs)

    def _report(self, index: int, what: str) -> None:
        self._repairs.append(f"messages[{index}]: {what}")

    def _answers(self, start: int) -> list[JSONDict]:
        """The tool messages from an index on, up to another message."""
        end = start
        while end < len(self._messages) and self._messages[end]["role"] == "tool":
            end += 1
        return list(self._messages[start:end])

    def _calls(self, message: JSONDict, index: int, answers: list[JSONDict]) -> None:
        """Give every call a unique id and exactly one result, in order."""
        waiting = [(index + 1 + place, answer) for place, answer in enumerate(answers)]
        in_order: list[JSONDict] = []
        places: list[int] = []
        for call in message["tool_calls"]:
            function: Any = call.get("function")
            if isinstance(function, dict):
                self._arguments(function, index)  # pyright: ignore[reportUnknownArgumentType]
            found = next((pair for pair in waiting if pair[1]["tool_call_id"] == call["id"]), None)
            old_id = call["id"]
            call["id"] = self._unique(old_id, index)
            if found is None:
                self._report(
                    index, f"call {old_id!r} had no answer; it was answered as interrupted"
                )
                answer: JSONDict = {
                    "role": "tool",
                    "tool_call_id": call["id"],
                    "content": NO_RESULT,
                }
            else:
                waiting.remove(found)
                places.append(found[0])
                answer = found[1]
                answer["tool_call_id"] = call["id"]
            in_order.append(answer)
        if places != sorted(places):
            self._report(index, "its answers were put in the order of its calls")
        self._add_assistant(message, index)
        self._out.extend(in_order)
        for place, answer in waiting:
            self._orphan(answer, place)

    def _arguments(self, function: JSONDict, index: int) -> None:
        text = function.get("arguments", "")
        function["arguments"] = valid_arguments(text)
        if function["arguments"] != text and text.strip():
            self._report(
                index, f"arguments of {function.get('name')!r} were no JSON object; wrapped"
            )

    def _unique(self, call_id: str, index: int) -> str:
        unique, number = call_id, self._numbers.get(call_id, 1)
        while unique in self._ids:
            number += 1
            unique = f"{call_id}_{number}"
        self._numbers[call_id] = number  # so that thousands of calls with one id are linear
        if unique != call_id:
            self._report(index, f"the id {call_id!r} was taken; renamed to {unique!r}")
        self._ids.add(unique)
        return unique

    def _orphan(self, message: JSONDict, index: int) -> None:
        self._report(index, "it answers no call; it was kept as a user message")
        content = message["content"]
        lead = "Result of an earlier tool call: "
        is_text = isinstance(content, str)
        content = lead + content if is_text else [{"type": "text", "text": lead}, *content]
        self._out.append({"role": "user", "content": content})

    def _text(self, message: JSONDict, index: int) -> None:
        content = message.get("content")
        is_empty = not content or (isinstance(content, str) and not content.strip())
        if is_empty and not message.get("refusal"):
            self._report(index, "it was an empty assistant message; it was left out")
            return
        self._add_assistant(message, index)

    def _add_assistant(self, message: JSONDict, index: int) -> None:
        """Append an assistant message, or join it to a preceding one without calls."""
        before = self._out[-1] if self._out else None
        if before is not None and before["role"] == "assistant" and not before.get("tool_calls"):
            self._report(index, "it followed another assistant message; the two were joined")
            self._out[-1] = join_messages(before, message)
        else:
            self._out.append(message)


def join_messages(before: JSONDict, message: JSONDict) -> JSONDict:
    """Join two assistant messages, since providers require the roles to alternate."""
    content = _join_contents(before.get("content"), message.get("content"))
    return {**before, **message, "content": content}


def _join_contents(first: Any, second: Any) -> Any:
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), *_parts(second)]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
