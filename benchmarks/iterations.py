"""Microseconds per iteration, against a hand-written loop with the same validator; ratios from one run.

Run it with ``make bench``. Both loops ask the same async model, which answers from memory, and run the same
async tool; what is measured is the loop alone. Times are CPU time. All cases take turns, round after round,
so that other load on the machine affects all of them alike; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from jsonschema import Draft202012Validator

from treadle import Loop, LoopOptions, RunHandle, Tool, tool

Model = Callable[..., Awaitable[dict[str, Any]]]


@tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


PAYLOAD = [add.as_openai()]
SCHEMA = dict(add.input_schema)
VALIDATOR = Draft202012Validator(SCHEMA)
RAW = Tool("add", "Add two integers.", SCHEMA, add.fn)
"""The same tool from its bare schema: it is checked by jsonschema alone, as the hand-written loop checks."""


def model_of(iterations: int, calls: int) -> Model:
    """A model that calls ``add`` in every iteration but the last, with new arguments each time."""
    place = 0

    async def send(messages: list[dict[str, Any]], **opts: Any) -> dict[str, Any]:  # noqa: ARG001
        nonlocal place
        place += 1
        if place == iterations:
            return {"role": "assistant", "content": "done"}
        made = [
            {
                "id": f"c{place}_{index}",
                "type": "function",
                "function": {"name": "add", "arguments": f'{{"a": {place}, "b": {index}}}'},
            }
            for index in range(calls)
        ]
        return {"role": "assistant", "content": None, "tool_calls": made}

    return send


async def by_hand(model: Model) -> str:
    """The loop as one writes it by hand, with the checks that nobody should leave out."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    while True:
        message = await model(messages, tools=PAYLOAD)
        messages.append(message)
        calls = message.get("tool_calls")
        if not calls:
            return str(message["content"])
        outcomes = (
            await asyncio.gather(*map(run_by_hand, calls))
            if len(calls) > 1
            else [await run_by_hand(calls[0])]
        )
        for call, content in zip(calls, outcomes, strict=True):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


async def run_by_hand(call: dict[str, Any]) -> str:
    """Check a call and run it."""
    arguments = json.loads(call["function"]["arguments"])
    errors = list(VALIDATOR.iter_errors(arguments))
    if errors:
        return "; ".join(error.message for error in errors)
    try:
        return str(await add.fn(**arguments))  # type: ignore[misc]
    except Exception as error:  # noqa: BLE001 - as any loop has to
        return f"Error: {error}"


async def by_treadle(
    model: Model, iterations: int, one: Tool = add, **options: Unpack[LoopOptions]
) -> str:
    """The same with treadle, every guard on."""
    result = await Loop.run("go", model, tools=[one], max_iterations=iterations, **options)
    return str(result.unwrap().content)


async def by_stream(model: Model, iterations: int) -> str:
    """The same with treadle, its events read as they happen."""
    async with Loop.stream("go", model, tools=[add], max_iterations=iterations) as events:
        async for _ in events:
            pass
    assert events.result is not None
    return str(events.result.unwrap().content)


def ignore(_event: object) -> None:
    """A listener that does nothing."""


async def timed(run: Callable[[], Awaitable[str]]) -> float:
    """Seconds of CPU time that a run takes."""
    gc.collect()
    started = time.process_time()
    assert await run() == "done"
    return time.process_time() - started


async def at_once(run: Callable[[], Awaitable[str]], runs: int) -> str:
    """Many runs at the same time."""
    await asyncio.gather(*(run() for _ in range(runs)))
    return "done"


class Case:
    """One row of the table: the same work by hand and by treadle.

    Args:
        name: what the row is called.
        by_hand: does the work by hand.
        by_treadle: does it by treadle.
        units: how many iterations, or calls, each of them makes.
    """

    def __init__(
        self,
        name: str,
        by_hand: Callable[[], Awaitable[str]],
        by_treadle: Callable[[], Awaitable[str]],
        units: int,
    ) -> None:
        self.name = name
        self._runs = (by_hand, by_treadle)
        self._units = units
        self.times: tuple[list[float], list[float]] = ([], [])

    async def take_turns(self, number: int) -> None:
        """Measure both once more: in turns, and the fastest of each, as other programs only slow them down."""
        turns = [[await timed(run) for run in self._runs] for _ in range(number)]
        for times, seconds in zip(self.times, map(min, zip(*turns, strict=True)), strict=True):
            times.append(seconds / self._units * 1e6)

    @property
    def medians(self) -> tuple[float, float]:
        """Microseconds by hand and by treadle, each the median of all rounds."""
        return statistics.median(self.times[0]), statistics.median(self.times[1])

    def row(self) -> str:
        """The row, in Markdown."""
        hand, treadle = self.medians
        return f"| {self.name} | {hand:.1f} | {treadle:.1f} | {treadle / hand:.2f} |"


LENGTH = 200
"""Iterations of the rows that do not say how many."""


def case(
    name: str, run: Callable[[Model, int], Awaitable[str]], iterations: int = LENGTH, calls: int = 1
) -> Case:
    """A run of so many iterations with so many calls each, by hand and in one mode of treadle."""
    return Case(
        name,
        lambda: by_hand(model_of(iterations, calls)),
        lambda: run(model_of(iterations, calls), iterations),
        iterations * calls,
    )


def crowd(runs: int, length: int) -> Case:
    """Many runs at once."""
    return Case(
        f"{runs:,} runs of {length} iterations",
        lambda: at_once(lambda: by_hand(model_of(length, 1)), runs),
        lambda: at_once(lambda: by_treadle(model_of(length, 1), length), runs),
        runs * length,
    )


async def main(rounds: int, turns: int) -> None:
    """Print the table."""
    short, long = case("50 iterations", by_treadle, 50), case("800 iterations", by_treadle, 800)
    cases = [
        case("plain, one call", by_treadle),
        case("one call, tool from a bare schema", lambda m, n: by_treadle(m, n, RAW)),
        case("`max_seconds`", lambda m, n: by_treadle(m, n, max_seconds=600)),
        case("a handle", lambda m, n: by_treadle(m, n, handle=RunHandle())),
        case("`on_event`", lambda m, n: by_treadle(m, n, on_event=ignore)),
        case("`stream()`", by_stream),
        case("eight calls at once, per call", by_treadle, calls=8),
        crowd(1_000, 5),
        short,
        long,
    ]
    for _ in range(rounds):
        for each in cases:
            await each.take_turns(turns)
    print("| case | by hand, us | treadle, us | ratio |")
    print("|---|---:|---:|---:|")
    for each in cases:
        print(each.row())
    growth = long.medians[1] / short.medians[1]
    print(f"\nAn iteration of 800 against one of 50: {growth:.2f} times the cost.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each case has its turn")
    parser.add_argument(
        "--turns", type=int, default=5, help="how often in one round it is measured"
    )
    given = parser.parse_args()
    asyncio.run(main(given.rounds, given.turns))
