"""Repairing a history that arrives broken, so that every provider takes it; each repair is told.

The invariants are those that `treadle.testing.check_history` states.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from treadle.messages.json_text import MalformedJSONError, parse_object, safe_str
from treadle.messages.message import JSONDict, is_mapping

NO_RESULT = "No result: this call was interrupted before its result was recorded."


def repair_history(messages: Sequence[JSONDict]) -> tuple[list[JSONDict], tuple[str, ...]]:
    """Make a valid history.

    Args:
        messages: well-formed messages, which become the result's own and may be changed.

    Returns:
        The history, and one line for each repair: where, and what was done. Nothing is lost: what has no
        place as it is goes on as text.
    """
    return _Repair(messages).run()


def valid_arguments(text: str) -> str:
    """Arguments as every provider takes them back: what is no JSON object is wrapped into one.

    Servers that render a chat template, or whose API has objects where OpenAI's has text, parse the
    arguments of past calls and refuse the whole request where they cannot.
    """
    try:
        parse_object(text)
    except MalformedJSONError:
        return json.dumps({"invalid_arguments": text})
    return text if text.strip() else "{}"


def valid_name(name: str) -> str:
    """A tool's name as every provider takes it back, whatever a model made up for one.

    Each refuses a request in whose history it finds other characters, or no name; see `Tool`.
    """
    if name.isascii() and name.isidentifier() and len(name) <= MAX_NAME:
        return name
    return _NOT_OF_A_NAME.sub("_", name)[:MAX_NAME] or "unnamed"


MAX_NAME = 128
_NOT_OF_A_NAME = re.compile(r"[^a-zA-Z0-9_.-]+")


def sendable(text: str) -> str:
    """Text without lone surrogates, which are half of a character and cannot be sent anywhere."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def sendable_json(value: Any) -> Any:
    """What a provider gave along with a message, as it can be sent back to it: copied, and all of it JSON.

    Args:
        value: text loses its lone surrogates, numbers that JSON has no words for become text, as does
            everything that is no JSON at all.
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
    def __init__(self, messages: Sequence[JSONDict]) -> None:
        self._messages = messages
        self._out: list[JSONDict] = []
        self._told: list[str] = []
        self._ids: set[str] = set()
        self._numbers: dict[str, int] = {}

    def run(self) -> tuple[list[JSONDict], tuple[str, ...]]:
        index = 0
        while index < len(self._messages):
            message = self._messages[index]
            answers: list[JSONDict] = []
            if message["role"] == "assistant" and message.get("tool_calls"):
                answers = list(self._answers(index + 1))
                self._calls(message, index, answers)
                index += len(answers)
            elif message["role"] == "tool":
                self._orphan(message, index)
            elif message["role"] == "assistant":
                self._text(message, index)
            else:
                self._out.append(message)
            index += 1
        return self._out, tuple(self._told)

    def _tell(self, index: int, what: str) -> None:
        self._told.append(f"messages[{index}]: {what}")

    def _answers(self, start: int) -> Iterator[JSONDict]:
        for message in self._messages[start:]:
            if message["role"] != "tool":
                return
            yield message

    def _calls(self, message: JSONDict, index: int, answers: list[JSONDict]) -> None:
        """Give every call exactly one answer, in order, under an id of its own."""
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
                self._tell(index, f"call {old_id!r} had no answer; it was answered as interrupted")
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
            self._tell(index, "its answers were put in the order of its calls")
        self._add_assistant(message, index)
        self._out.extend(in_order)
        for place, answer in waiting:
            self._orphan(answer, place)

    def _arguments(self, function: JSONDict, index: int) -> None:
        text = function.get("arguments", "")
        function["arguments"] = valid_arguments(text)
        if function["arguments"] != text and text.strip():
            self._tell(index, f"arguments of {function.get('name')!r} were no JSON object; wrapped")

    def _unique(self, call_id: str, index: int) -> str:
        unique, number = call_id, self._numbers.get(call_id, 1)
        while unique in self._ids:
            number += 1
            unique = f"{call_id}_{number}"
        self._numbers[call_id] = number  # else thousands of calls under one id would take minutes
        if unique != call_id:
            self._tell(index, f"the id {call_id!r} was taken; renamed to {unique!r}")
        self._ids.add(unique)
        return unique

    def _orphan(self, message: JSONDict, index: int) -> None:
        self._tell(index, "it answers no call; it was kept as a user message")
        content = message["content"]
        lead = "Result of an earlier tool call: "
        told = (
            lead + content
            if isinstance(content, str)
            else [{"type": "text", "text": lead}, *content]
        )
        self._out.append({"role": "user", "content": told})

    def _text(self, message: JSONDict, index: int) -> None:
        content = message.get("content")
        is_empty = not content or (isinstance(content, str) and not content.strip())
        if is_empty and not message.get("refusal"):
            self._tell(index, "it was an empty assistant message; it was left out")
            return
        self._add_assistant(message, index)

    def _add_assistant(self, message: JSONDict, index: int) -> None:
        """Append an assistant message, joined to the one before where two would follow each other."""
        before = self._out[-1] if self._out else None
        if before is not None and before["role"] == "assistant" and not before.get("tool_calls"):
            self._tell(index, "it followed another assistant message; the two were joined")
            self._out[-1] = join_messages(before, message)
        else:
            self._out.append(message)


def join_messages(before: JSONDict, message: JSONDict) -> JSONDict:
    """Two assistant messages as one, since providers want the roles to alternate."""
    content = _joined(before.get("content"), message.get("content"))
    return {**before, **message, "content": content}


def _joined(first: Any, second: Any) -> Any:
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), *_parts(second)]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
