"""Warnings, and the result of a run as JSON, as the answer, and as a summary."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from treadle.cli.streams import note
from treadle.reports.text import format_bound, format_count, one_line
from treadle.results import Err, Ok, Result


def warn(text: str) -> None:
    """Print a line on stderr that starts with the name of the command."""
    note(f"treadle: {text}")


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def as_json(result: Result) -> str:
    """The whole result on one line of JSON.

    In ASCII: it survives any encoding, and has no control characters for a terminal.
    """
    return json.dumps(as_document(result), default=jsonable)


def as_document(result: Result) -> dict[str, Any]:
    """The whole result, for JSON. It has each call that ran, with durations in seconds."""
    return {
        "ok": isinstance(result, Ok),
        "reason": why(result),
        "stop_reason": result.stop_reason,
        "content": result.response.text if isinstance(result, Ok) else None,
        "output": result.output if isinstance(result, Ok) and result.has_data else None,
        "messages": result.messages,
        "usage": dataclasses.asdict(result.usage),
        "iterations": result.iterations,
        "tool_calls_count": result.tool_calls_count,
        "calls": list(_calls(result)),
        "run_id": result.run.run_id,
    }


def why(result: Result) -> str | None:
    """Why there is no answer; None if there is one."""
    if isinstance(result, Ok):
        return None
    if isinstance(result, Err):
        return str(result.reason)
    waiting = ", ".join(call.name for call in result.pending)
    return f"the run waits for approval of {waiting}"


def _calls(result: Result) -> Iterator[dict[str, Any]]:
    arguments = {
        call["id"]: call["function"]["arguments"]
        for message in result.messages
        for call in message.get("tool_calls") or ()
    }
    for iteration in result.run.nodes:
        for node in iteration.tool_calls:
            yield {
                "iteration": iteration.step_index + 1,
                "id": node.group_id,
                "name": node.name,
                "arguments": _parsed(arguments.get(node.group_id or "", "")),
                "status": node.status.value,
                "duration": node.duration,
                "error": node.error,
            }


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def jsonable(value: Any) -> Any:
    """A value that JSON does not know, as one that it does."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def answer(result: Ok) -> str:
    """The answer as text; other output as JSON."""
    if result.has_data:
        return json.dumps(result.output, default=jsonable, ensure_ascii=False)
    return str(result.response.text)


def transcript(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The messages and calls so far, each on one line."""
    for message in messages:
        role = message.get("role", "")
        content = message.get("content")
        if content:
            yield f"{role}: {one_line(content if isinstance(content, str) else str(content))}"
        for call in message.get("tool_calls") or ():
            function = call["function"]
            made = f"{function['name']} {function['arguments']}"
            yield f"{role}: calls {one_line(made)}"


def summary(result: Result) -> str:
    """Iterations, calls and tokens, on one line."""
    tokens = f"{format_bound(result.usage)}{result.usage.total_tokens}"
    iterations = format_count(result.iterations, "iteration")
    return f"{iterations}, {format_count(result.tool_calls_count, 'tool call')}, {tokens} tokens"
