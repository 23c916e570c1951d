"""Fills the memory of repeated calls in tests."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.messages import ToolCall, ToolResult
from treadle.tools import Repeats, Tool


def learn(
    repeats: Repeats,
    iteration: int,
    answered: Iterable[tuple[str, str, bool]],
    tools: Iterable[Tool] = (),
) -> None:
    """Record results of an iteration.

    Args:
        repeats: the memory.
        iteration: the number of the iteration.
        answered: of each call the fingerprint, which is also the name of its tool, the result, whether it failed.
        tools: the tools that are more than read-only.
    """
    calls: list[ToolCall] = []
    results: dict[str, ToolResult] = {}
    known = {name: Tool(name, read_only=True) for name, _, _ in answered}
    known.update({tool.name: tool for tool in tools})
    for place, (name, content, is_error) in enumerate(answered):
        calls.append(ToolCall(f"c{place}", name, "{}", {}, name))
        results[f"c{place}"] = ToolResult(f"c{place}", content, is_error)
    repeats.learn(iteration, calls, results, known)
