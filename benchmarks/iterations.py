"""Microseconds per iteration, against a hand-written loop with the same validator; ratios from one run.

Run it with ``make bench``. Both loops ask the same async model, which answers from memory, and run the same
async tools; what is measured is the loop alone. Times are CPU time, the best of several rounds, side by side.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from jsonschema import Draft202012Validator

from treadle import Loop, tool

Model = Callable[..., Awaitable[dict[str, Any]]]


@tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


TOOLS = [add]
PAYLOAD = [one.as_openai() for one in TOOLS]
VALIDATOR = Draft202012Validator(dict(add.input_schema))


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


async def by_treadle(model: Model, iterations: int) -> str:
    """The same with treadle, every guard on."""
    result = await Loop.run(
        [{"role": "user", "content": "go"}], model, tools=TOOLS, max_iterations=iterations
    )
    return str(result.unwrap().content)


async def timed(run: Callable[[], Awaitable[str]]) -> float:
    """Seconds of CPU time that a run takes."""
    gc.collect()
    started = time.process_time()
    assert await run() == "done"
    return time.process_time() - started


async def compare(iterations: int, calls: int, rounds: int) -> tuple[float, float]:
    """Microseconds per iteration: by hand, and by treadle."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        theirs.append(await timed(lambda: by_hand(model_of(iterations, calls))))
        ours.append(await timed(lambda: by_treadle(model_of(iterations, calls), iterations)))
    return min(theirs) / iterations * 1e6, min(ours) / iterations * 1e6


async def concurrent(runs: int) -> tuple[float, float]:
    """Microseconds per iteration with many runs at once: by hand, and by treadle."""
    length = 10

    async def all_of(run: Callable[[], Awaitable[str]]) -> float:
        started = time.process_time()
        await asyncio.gather(*(run() for _ in range(runs)))
        return (time.process_time() - started) / (runs * length) * 1e6

    hand = await all_of(lambda: by_hand(model_of(length, 1)))
    ours = await all_of(lambda: by_treadle(model_of(length, 1), length))
    return hand, ours


async def main(rounds: int) -> None:
    """Print the table."""
    await compare(50, 1, 2)  # warm up
    print("| case | by hand, µs/iteration | treadle, µs/iteration | ratio |")
    print("|---|---:|---:|---:|")
    ours: dict[int, float] = {}
    for calls in (1, 8):
        for iterations in (50, 200, 800):
            repeats = max(3, rounds * 50 // iterations)
            hand, treadle = await compare(iterations, calls, repeats)
            if calls == 1:
                ours[iterations] = treadle
            plural = "calls" if calls > 1 else "call"
            case = f"{iterations} iterations, {calls} {plural} each"
            print(f"| {case} | {hand:.1f} | {treadle:.1f} | {treadle / hand:.2f} |")
    pairs = [await concurrent(1000) for _ in range(3)]
    hand, treadle = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(
        f"| 1,000 runs at once, 10 iterations each | {hand:.1f} | {treadle:.1f} | {treadle / hand:.2f} |"
    )
    print(
        f"\nOne call, 800 iterations against 50: {ours[800] / ours[50]:.2f} times the cost of one iteration."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="rounds of the shortest case")
    asyncio.run(main(parser.parse_args().rounds))
