"""The invariants of a history: what every provider demands of it, stated once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from treadle.messages import problems_of, to_message


class InvalidHistoryError(AssertionError):
    """A history that some provider would reject; each problem says where."""


def check_history(messages: Sequence[Mapping[str, Any]]) -> None:
    """Assert that a history is one that every provider takes.

    Every call has exactly one tool message, directly after its assistant message, in order; no tool
    message is without its call; ids are unique; arguments are JSON objects; no assistant message is
    empty or follows another that called nothing; all that a message needs is there.

    Args:
        messages: OpenAI chat dicts.

    Raises:
        InvalidHistoryError: it is not; the text names every problem.
    """
    problems = list(history_problems(messages))
    if problems:
        raise InvalidHistoryError("; ".join(problems))


def history_problems(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line for each violation; see `check_history`."""
    messages = [to_message(message) for message in messages]
    malformed = list(problems_of(messages))
    yield from malformed
    if malformed:
        return
    ids: set[str] = set()
    waiting: list[str] = []
    before: Mapping[str, Any] = {}
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if message["role"] == "tool":
            yield from _check_answer(message, waiting, where)
        else:
            if waiting:
                yield f"{where}: calls {', '.join(waiting)} have no answer before it"
                waiting = []
            if message["role"] == "assistant":
                yield from _check_assistant(message, before, ids, where)
                waiting = [call["id"] for call in message.get("tool_calls") or ()]
        before = message
    if waiting:
        yield f"messages: calls {', '.join(waiting)} have no answer at the end"


def _check_answer(message: Mapping[str, Any], waiting: list[str], where: str) -> Iterator[str]:
    answered = message["tool_call_id"]
    if answered not in waiting:
        yield f"{where}: it answers {answered!r}, which no call before it waits for"
    else:
        if waiting[0] != answered:
            yield f"{where}: it answers {answered!r}, but {waiting[0]!r} is first"
        waiting.remove(answered)


def _check_assistant(
    message: Mapping[str, Any], before: Mapping[str, Any], ids: set[str], where: str
) -> Iterator[str]:
    calls = message.get("tool_calls") or ()
    content = message.get("content")
    is_blank = not content or (isinstance(content, str) and not content.strip())
    if is_blank and not calls and not message.get("refusal"):
        yield f"{where}: an assistant message that says and calls nothing"
    if before.get("role") == "assistant":
        yield f"{where}: an assistant message directly after another"
    for call in calls:
        if call["id"] in ids:
            yield f"{where}: the id {call['id']!r} is used twice"
        ids.add(call["id"])
        if "function" in call and not _is_object(call["function"].get("arguments", "")):
            yield f"{where}: the arguments of {call['id']!r} are no JSON object"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
