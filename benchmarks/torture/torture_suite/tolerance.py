"""Which histories a provider takes: the most tolerant one, and the strictest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torture_suite.script import JSONDict


def problems_of_history(messages: Sequence[Mapping[str, Any]], *, is_strict: bool) -> Iterator[str]:
    """Yield the reasons why a provider would refuse a history.

    `treadle.testing.history_problems` states what *every* provider accepts. If not strict, a history may have
    what OpenAI's own API accepts: results in another order than their calls, assistant messages in a row or
    without text, arguments of past calls that are not a JSON object, ids that are used again in another batch;
    and names with any characters.

    Args:
        messages: OpenAI chat dicts.
        is_strict: forgive nothing.

    Yields:
        One line for each problem.
    """
    from treadle.testing.history import history_problems  # noqa: PLC0415 - its import is slow

    given = [dict(message) for message in messages]
    yield from history_problems(given if is_strict else list(_forgiven(given)))
    for index, message in enumerate(given):
        if not _can_be_sent(message):
            yield f"messages[{index}]: it has a lone surrogate, and cannot be encoded"


def _can_be_sent(message: Mapping[str, Any]) -> bool:
    try:
        json.dumps(message, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    except (TypeError, ValueError, RecursionError):
        return True  # not what is asked here
    return True


def _forgiven(messages: Sequence[JSONDict]) -> Iterator[JSONDict]:
    """The history with all that is forgiven put right."""
    batch = 0
    index = 0
    is_after_assistant = False
    while index < len(messages):
        message = messages[index]
        index += 1
        if message.get("role") != "assistant":
            is_after_assistant = False
            yield message
            continue
        if is_after_assistant:
            yield {"role": "user", "content": "(go on)"}
        is_after_assistant = True
        if not message.get("tool_calls"):
            yield {**message, "content": "(blank)"} if _is_blank(message) else message
            continue
        batch += 1
        answers: list[JSONDict] = []
        while index < len(messages) and messages[index].get("role") == "tool":
            answers.append(messages[index])
            index += 1
        yield _with_calls(message, batch)
        yield from _in_order(message, answers, batch)
        is_after_assistant = is_after_assistant and not answers


def _is_blank(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return not content or (isinstance(content, str) and not content.strip())


def _with_calls(message: JSONDict, batch: int) -> JSONDict:
    calls: list[Any] = message["tool_calls"]
    return {**message, "tool_calls": [_with_own_id(call, batch) for call in calls]}


def _with_own_id(call: Any, batch: int) -> Any:
    """The call with an id that is unique among batches, a valid name and arguments; unchanged if malformed."""
    if not _is_call(call):
        return call
    function = {**call["function"], "arguments": "{}"}
    if isinstance(function.get("name"), str) and function["name"]:
        function["name"] = "name"
    return {**call, "id": f"{batch}:{call['id']}", "function": function}


def _is_call(call: Any) -> bool:
    """Whether a call is of the usual form, and has an id."""
    if not isinstance(call, dict):
        return False
    fields: JSONDict = call  # pyright: ignore[reportUnknownVariableType]
    return isinstance(fields.get("function"), dict) and bool(fields.get("id"))


def _in_order(message: JSONDict, answers: list[JSONDict], batch: int) -> list[JSONDict]:
    order: list[Any] = [call["id"] for call in message["tool_calls"] if _is_call(call)]

    def place(answer: JSONDict) -> int:
        answered = answer.get("tool_call_id")
        return order.index(answered) if answered in order else len(order)

    return [
        {**answer, "tool_call_id": f"{batch}:{answer['tool_call_id']}"}
        if answer.get("tool_call_id")
        else answer
        for answer in sorted(answers, key=place)
    ]
