"""What a limit of cost does to 1, 8 and 64 parallel subagents: by how much they exceed it, and the time they take.

Run it with ``make bench-limits``. Each response takes 50 ms and costs a dollar; each subagent makes five
iterations.
The tables are in docs/guide-control.md.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import anyio

from treadle import Limits, Loop, Response, ToolCall, Usage, tool

LATENCY, ITERATIONS, ROUNDS = 0.05, 5, 5
COUNTS = (1, 8, 64)
DOLLAR = Usage(40, 10, cost=1.0)


@tool
def note(n: int) -> str:
    """Note a number."""
    return f"noted {n}"


class Model:
    """Calls a tool in each iteration but the last. Its attribute ``model`` is its name."""

    def __init__(self, name: str | None) -> None:
        self.model = name

    async def __call__(self, messages: list[dict[str, Any]]) -> Response:
        """Answer after the latency."""
        await anyio.sleep(LATENCY)
        if len(messages) >= 2 * ITERATIONS - 1:
            return Response("done", usage=DOLLAR)
        call = ToolCall(f"n{len(messages)}", "note", f'{{"n": {len(messages)}}}')
        return Response(tool_calls=(call,), usage=DOLLAR)


def measured(count: int, max_cost: float | None, name: str | None) -> tuple[float, float]:
    """The cost and the seconds of one run.

    Args:
        count: the number of subagents.
        max_cost: the limit, in US dollars.
        name: the name of their model; with one, no price of it is known before its first response.
    """

    async def starting(messages: list[dict[str, Any]]) -> Response:
        await anyio.sleep(LATENCY)
        if len(messages) > 1:
            return Response("done", usage=DOLLAR)
        calls = (ToolCall(f"k{n}", "helper", f'{{"task": "{n}"}}') for n in range(count))
        return Response(tool_calls=tuple(calls), usage=DOLLAR)

    helper = Loop(tools=[note]).as_tool("helper", "Helps.", Model(name))
    loop = Loop(
        tools=[helper], limits=Limits(max_parallel_calls=64, max_requests=10_000), max_cost=max_cost
    )
    began = time.perf_counter()
    result = asyncio.run(loop.run("Go.", starting))
    return result.usage.cost or 0.0, time.perf_counter() - began


def main() -> None:
    """Print both tables."""
    print("| subagents | `max_cost` | price of the model | cost | beyond the limit |")
    print("|---:|---:|---|---:|---:|")
    for limit in (3.0, 20.5):
        for name, known in ((None, "known from the outer loop"), ("other", "not known")):
            for count in COUNTS:
                cost, _ = measured(count, limit, name)
                over = max(0.0, cost - limit)
                print(f"| {count} | ${limit:g} | {known} | ${cost:g} | ${over:g} |")
    print()
    print(
        "| subagents | no limit, s | far from it, price known, s | ratio | price not known, s | ratio |"
    )
    print("|---:|---:|---:|---:|---:|---:|")
    for count in COUNTS:
        cases: tuple[tuple[float | None, str | None], ...] = (
            (None, None),
            (10_000.0, None),
            (10_000.0, "other"),
        )
        times: list[list[float]] = [[], [], []]
        for _ in range(ROUNDS):  # in turns, so that other load affects all alike
            for taken, (limit_, name) in zip(times, cases, strict=True):
                taken.append(measured(count, limit_, name)[1])
        plain, known_, unknown = map(statistics.median, times)
        print(
            f"| {count} | {plain:.3f} | {known_:.3f} | {known_ / plain:.2f} "
            f"| {unknown:.3f} | {unknown / plain:.2f} |"
        )


if __name__ == "__main__":
    main()
