"""What an iteration adds to the history of a workflow, while the conversation grows to 200,000 tokens.

Run it with ``make bench-temporal-history``. It runs 1,000 iterations on a real Temporal server, each with a call
of a tool, and measures the bytes of the events of each iteration: the server stores them, and each worker that
takes the run over reads them. Beside it is what an iteration would add if its request carried the whole
conversation; ``--whole N`` runs so many iterations that do, to check that number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from treadle import Loop, Ok, tool
from treadle.durable.temporal import SQLiteBlobStore, make_worker, start_on_temporal
from treadle.messages import JSONDict, estimate_tokens

sys.path.append(str(Path(__file__).parents[1]))
from tests.durable.temporal.servers import TemporalServer

TOKENS = 200_000
"""Those of the history at the end."""
WORDS = ["the", "train", "is", "late", "and", "the", "next", "one", "leaves", "at", "noon"]


def loop_of(iterations: int, tokens: int) -> Loop[Any]:
    """A loop whose model calls a tool in each iteration; the results make up the tokens."""
    size = (
        max(tokens // iterations - 31, 1) * 4
    )  # a call and the frame of two messages are the rest

    @tool(read_only=True)
    async def read(page: int) -> str:
        """Read a page."""
        text = " ".join(WORDS[(page + word) % len(WORDS)] for word in range(size // 4))
        return text[:size]

    async def model(messages: list[JSONDict], **_options: Any) -> JSONDict:
        page = sum(message["role"] == "assistant" for message in messages)
        if page == iterations:
            return {"role": "assistant", "content": "That is all."}
        function = {"name": "read", "arguments": json.dumps({"page": page})}
        call = {"id": f"call_{page}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    return Loop(tools=[read], llm_send_fn=model, name="reader", max_iterations=iterations + 1)


@dataclass
class Measured:
    """What a run has added to the histories of its workflow.

    Args:
        sizes: the bytes of the events of each iteration.
        starts: the bytes of the events before the first iteration of each history.
        messages: those of the result.
        seconds: what the run took.
    """

    sizes: list[int]
    starts: list[int]
    messages: list[JSONDict]
    seconds: float


async def measured(
    client: Client, folder: Path, name: str, iterations: int, tokens: int, *, by_reference: bool
) -> Measured:
    """Run a loop, and measure its histories."""
    store = SQLiteBlobStore(folder / f"{name}.db") if by_reference else None
    loop = loop_of(iterations, tokens)
    async with make_worker(client, loop, task_queue=name, store=store):
        started = time.perf_counter()
        run = await start_on_temporal(
            client, loop, "Read all pages.", run_id=name, task_queue=name, store=store
        )
        result = await run.result()
    assert isinstance(result, Ok), result
    made = Measured([], [], result.messages, time.perf_counter() - started)
    async for history in histories(client, name):
        made.starts.append(0)
        is_begun = False
        for event in history:
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                if scheduled.activity_type.name == "treadle.chat":
                    made.sizes.append(0)
                    is_begun = True
            size = event.ByteSize()
            if is_begun:
                made.sizes[-1] += size
            else:
                made.starts[-1] += size
    del made.sizes[-1]  # that of the answer, and of the result
    return made


async def histories(client: Client, workflow_id: str) -> AsyncIterator[Sequence[Any]]:
    """The events of each history of a workflow, in order: a long run goes on in a new one."""
    run_id: str | None = (
        await client.get_workflow_handle(workflow_id).describe()
    ).raw_description.workflow_execution_info.first_run_id
    while run_id:
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        events = [event async for event in handle.fetch_history_events()]
        yield events
        run_id = events[
            -1
        ].workflow_execution_continued_as_new_event_attributes.new_execution_run_id


def whole_sizes(made: Measured) -> list[int]:
    """What each iteration would add if its request carried all messages, in bytes.

    What it carries now is about the two messages that are new: they are taken off.
    """
    sizes = [len(json.dumps(message, separators=(",", ":"))) + 1 for message in made.messages]
    totals: list[int] = []
    for iteration, size in enumerate(made.sizes):
        count = 1 + 2 * iteration
        new = sum(sizes[max(count - 2, 0) : count])
        totals.append(size - new + sum(sizes[:count]))
    return totals


def table(made: Measured, whole: Sequence[int], parts: int = 10) -> list[str]:
    """The medians of some parts of the run, with bars."""
    count = len(made.sizes)
    rows = ["| iterations | bytes | | whole conversation, bytes | |", "|---|---:|---|---:|---|"]
    most = statistics.median(whole[-count // parts :])
    for part in range(parts):
        chosen = slice(part * count // parts, (part + 1) * count // parts)
        sizes = statistics.median(made.sizes[chosen]), statistics.median(whole[chosen])
        bars = ["█" * max(round(20 * size / most), 1) for size in sizes]
        cells = [f"{size:,.0f} | {bar}" for size, bar in zip(sizes, bars, strict=True)]
        rows.append(f"| {chosen.start + 1:,} to {chosen.stop:,} | {' | '.join(cells)} |")
    return rows


def chart(made: Measured, whole: Sequence[int]) -> str:
    """An SVG of what each iteration adds, on a logarithmic scale."""
    count, width, height = len(made.sizes), 480, 260
    powers = range(3, math.ceil(math.log10(max(whole))) + 1)

    def place(iteration: float, size: float) -> tuple[float, float]:
        up = (math.log10(size) - powers[0]) / (powers[-1] - powers[0])
        return 70 + width * iteration / count, 40 + height * (1 - up)

    def text(x: float, y: float, content: str, more: str = "") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{content}</text>'

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 340" font-family="sans-serif" font-size="12">',
        '<rect width="720" height="340" fill="white"/>',
        text(
            70, 20, "Bytes that an iteration adds to the history of its workflow", 'font-size="14"'
        ),
    ]
    for power in powers:
        x, y = place(0, 10**power)
        parts.append(f'<path d="M{x} {y:.1f}h{width}" stroke="#ddd"/>')
        parts.append(text(x - 6, y + 4, f"{10**power:,}", 'text-anchor="end"'))
    for quarter in range(5):
        x, y = place(count * quarter / 4, 10 ** powers[0])
        parts.append(text(x, y + 18, f"{count * quarter // 4:,}", 'text-anchor="middle"'))
    lines = (("new messages", "#06c", made.sizes), ("all messages", "#555", whole))
    for name, colour, sizes in lines:
        chosen = [*range(0, count - 1, max(count // 100, 1)), count - 1]
        points = [place(at + 1, sizes[at]) for at in chosen]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(text(points[-1][0] + 6, points[-1][1] + 4, name, f'fill="{colour}"'))
    return "\n".join([*parts, "</svg>", ""])


async def run(iterations: int, tokens: int, whole: int, chart_path: Path | None) -> None:
    """Run both, and print what was measured."""
    with tempfile.TemporaryDirectory() as name, TemporalServer(Path(name)) as server:
        folder = Path(name)
        client = await Client.connect(server.address)
        made = await measured(client, folder, "chain", iterations, tokens, by_reference=True)
        expected = whole_sizes(made)
        print(
            f"{iterations:,} iterations, {estimate_tokens(made.messages):,} tokens at the end, "
            f"{made.seconds:.0f} s, {len(made.starts)} histories of a workflow\n"
        )
        print("\n".join(table(made, expected)))
        print(
            f"\nin all: {sum(made.sizes) + sum(made.starts):,} bytes; with the whole conversation in each request "
            f"{sum(expected):,} bytes; the largest iteration adds {max(made.sizes):,} bytes"
        )
        if chart_path is not None:
            chart_path.write_text(chart(made, expected), encoding="utf-8")  # noqa: ASYNC240
        if whole:
            tokens = tokens * whole // iterations
            real = await measured(client, folder, "whole", whole, tokens, by_reference=False)
            print(
                f"{whole:,} iterations with the whole conversation: {sum(real.sizes):,} bytes measured, "
                f"{sum(expected[:whole]):,} expected, {real.seconds:.0f} s"
            )


def main() -> None:
    """Read the arguments, and run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=1_000)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of the history, at the end")
    parser.add_argument(
        "--whole", type=int, default=100, help="iterations to run without references"
    )
    parser.add_argument("--chart", type=Path, help="where to write the chart, as SVG")
    given = parser.parse_args()
    asyncio.run(run(given.iterations, given.tokens, given.whole, given.chart))


if __name__ == "__main__":
    main()
