"""Validates messages that come from outside, and repairs histories so that every provider accepts them.

The rules of a valid history are those that `treadle.testing.check_history` checks.
"""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.errors import TreadleError
from treadle.messages.history import History
from treadle.messages.json_text import is_object, short_name
from treadle.messages.message import ORIGIN, JSONDict, describe, is_list, problems_of, to_message
from treadle.messages.parts import join_messages, joined_contents, sendable_parts
from treadle.messages.sanitizing import sendable, sendable_json, valid_arguments, valid_name


class InvalidMessagesError(TreadleError, ValueError):
    """Malformed messages, which cannot be made into a history. Their ``problems`` are one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def checked_messages(raw: Sequence[Any]) -> list[JSONDict]:
    """Copy messages; raises `InvalidMessagesError` if one is malformed or contains itself."""
    try:
        messages = [to_message(message) for message in raw]
    except RecursionError:
        raise InvalidMessagesError(
            ["messages: expected JSON, got a message that contains itself"]
        ) from None
    problems = list(problems_of(messages))
    if problems:
        raise InvalidMessagesError(problems)
    return messages


def validate_messages(
    raw: Any, taken: Iterable[str] = ()
) -> tuple[list[JSONDict], tuple[str, ...]]:
    """Copy and check messages, and repair what a provider would reject; returns a line for each repair as well.

    No call gets an id that is ``taken``. `InvalidMessagesError` says what cannot be repaired.
    """
    if isinstance(raw, str):
        if raw.strip():  # the common prompt, in which there is nothing to check
            return [{"role": "user", "content": sendable(raw)}], ()
        raw = []
    if not isinstance(raw, Sequence) or isinstance(raw, (bytes, bytearray)):
        raise InvalidMessagesError(
            [f"messages: expected a text or a list of message dicts, got {describe(raw)}"]
        )
    messages = checked_messages(raw)  # pyright: ignore[reportUnknownArgumentType]
    history, repairs = repair_history(messages, taken)
    if not history:
        raise InvalidMessagesError(["messages: expected at least one message that is not empty"])
    return history, repairs


NO_RESULT = "No result: this call was interrupted before its result was recorded."


def repair_history(
    messages: Iterable[JSONDict], taken: Iterable[str] = ()
) -> tuple[list[JSONDict], tuple[str, ...]]:
    """Make a valid history of well-formed messages, which are changed in place; see `validate_messages`.

    No content is lost: a result without a call becomes a user message.
    """
    repair = _Repair(taken)
    results: list[tuple[int, JSONDict]] = []  # the tool messages after a message
    before: tuple[int, JSONDict] | None = None
    for index, message in enumerate(messages):
        repair.repair_values(index, message)
        if message["role"] == "tool":
            results.append((index, message))
        else:
            repair.add_exchange(before, results)
            before, results = (index, message), []
    repair.add_exchange(before, results)
    history = [join_messages(*group) if group[1:] else group[0] for group in repair.groups]
    return history, tuple(repair.repairs)


class _Repair:
    def __init__(self, taken: Iterable[str]) -> None:
        self.groups: list[list[JSONDict]] = []  # of messages that become one
        self.repairs: list[str] = []
        self._taken = dict.fromkeys(taken, 1)
        self._new_ids = History()

    def _report(self, index: int, what: str) -> None:
        self.repairs.append(f"messages[{index}]: {what}")

    def repair_values(self, index: int, message: JSONDict) -> None:
        """Replace what cannot be sent, but for calls and their ids."""
        values = {key: message[key] for key in message if key not in _FIELDS_OF_CALLS}
        if all(value.__class__ is str and value.isascii() for value in values.values()):
            return
        sent, parts = sendable_json(values), values.get("content")
        if is_list(parts) and parts:
            nothing = None if message["role"] == "assistant" else ""
            sent["content"] = sendable_parts(parts) or nothing
        if sent != values:
            self._report(index, "it had values that cannot be sent; replaced or removed")
        others = {key: message[key] for key in message if key in _FIELDS_OF_CALLS}
        message.clear()
        message.update(sent, **others)

    def add_exchange(
        self, before: tuple[int, JSONDict] | None, results: Sequence[tuple[int, JSONDict]]
    ) -> None:
        """Append a message with exactly one result for each of its calls, in order; other results follow."""
        waiting: defaultdict[str, deque[tuple[int, JSONDict]]] = defaultdict(deque)
        for index, result in results:
            waiting[result["tool_call_id"]].append((index, result))
        if before is not None:
            self._add(*before, waiting)
        others = itertools.chain.from_iterable(waiting.values())
        for index, message in sorted(others, key=operator.itemgetter(0)):
            self._report(index, "it answers no call; it was kept as a user message")
            content = joined_contents(("Result of an earlier tool call: ", message["content"]), "")
            self.groups.append([{"role": "user", "content": content}])

    def _add(
        self, index: int, message: JSONDict, waiting: defaultdict[str, deque[tuple[int, JSONDict]]]
    ) -> None:
        """Append a message and the results of its calls, or join it to the message before it."""
        is_assistant = message["role"] == "assistant"
        if is_assistant and not message.get("tool_calls"):
            if message.get("tool_calls") is not None:
                del message["tool_calls"]
                self._report(index, "its list of calls was empty; it was removed")
            has_content = message.get("refusal") or message.get("extra_content")
            if is_blank(message.get("content")) and not has_content:
                self._report(index, "it was an empty assistant message; it was removed")
                return
        places: list[int] = []
        results: list[JSONDict] = []
        for call in (is_assistant and message.get("tool_calls")) or ():
            given, result = waiting[call["id"]], {"role": "tool", "content": NO_RESULT}
            if given:
                place, result = given.popleft()
                places.append(place)
            else:
                what = f"call {call['id']!r} had no answer; it was answered as interrupted"
                self._report(index, what)
            self._repair_call(index, call)
            results.append({**result, "tool_call_id": call["id"]})
        if places != sorted(places):
            self._report(index, "its answers were put in the order of its calls")
        if self.groups and can_join(self.groups[-1][-1], message):
            self._report(index, "it followed another assistant message; the two were joined")
            self.groups[-1].append(message)
        else:
            self.groups.append([message])
        self.groups += ([result] for result in results)

    def _repair_call(self, index: int, call: JSONDict) -> None:
        """Give a call a unique id, a valid name, arguments that can be parsed, and text that can be encoded."""
        sent = sendable_json(call)
        if call.get("type", "function") == "function":
            function, made = call["function"], sent["function"]
            name, text = function["name"], function.get("arguments", "")
            function["name"] = made["name"] = valid = valid_name(name)
            made["arguments"] = valid_arguments(text)
            if valid != name:
                shown = short_name(name)
                self._report(index, f"the name {shown!r} is invalid; it became {valid!r}")
            if made["arguments"] != text and not is_object(text):
                function["arguments"] = made["arguments"]
                if text.strip():
                    self._report(index, f"arguments of {name!r} were not a JSON object; wrapped")
        if sent != call:
            self._report(index, f"call {call['id']!r} had values that cannot be sent; replaced")
            call.clear()
            call.update(sent)
        unique = self._new_ids.unused_id(call["id"], self._taken)
        self._taken.setdefault(unique, 1)
        if unique != call["id"]:
            self._report(index, f"the id {call['id']!r} was in use; renamed to {unique!r}")
            call["id"] = unique


_FIELDS_OF_CALLS = frozenset({"tool_calls", "tool_call_id"})


def is_blank(content: Any) -> bool:
    """Whether message content is only white space, and has no parts of types other than text."""
    if is_list(content):
        texts = [part.get("text") for part in content]
        return all(isinstance(text, str) and not text.strip() for text in texts)
    return not content or (isinstance(content, str) and not content.strip())


def can_join(before: Mapping[str, Any], message: Mapping[str, Any]) -> bool:
    """Whether an assistant message can be joined to the one before it without a loss.

    Signed reasoning, and the tools that ran at the provider in a response that paused, have places in the content
    of their message; and a message has one origin.
    """
    if before["role"] != "assistant" or message["role"] != "assistant" or before.get("tool_calls"):
        return False
    if ORIGIN in before and ORIGIN in message and before[ORIGIN] != message[ORIGIN]:
        return False
    return _PLACED.isdisjoint(before) and _PLACED.isdisjoint(message)


_PLACED = frozenset({"extra_content", "reasoning_details", "thinking_blocks"})
