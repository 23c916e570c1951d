"""`treadle worker`: runs the workflows and activities of loops on Temporal until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.cli.chat_sessions import REDIS
from treadle.cli.exits import Exit, UsageError
from treadle.cli.interrupts import ENDING, not_ignored, stopped_by
from treadle.cli.load_tools import load_loops
from treadle.cli.output import warn
from treadle.cli.parts import usage_errors
from treadle.cli.streams import note

if TYPE_CHECKING:
    from treadle.durable.temporal import BlobStore
    from treadle.loop import Loop


def worker(args: argparse.Namespace) -> int:
    """Execute `treadle worker`.

    Raises:
        UsageError: a loop, the store or a number is invalid, or the Temporal SDK is not installed.
        OutputError: stderr cannot be written.
    """
    if args.max_activities is not None and args.max_activities < 1:
        raise UsageError(
            f"--max-activities: expected a number of at least 1, got {args.max_activities}"
        )
    loops = load_loops(args.loops)
    with usage_errors():
        store = _store_of(args.store)
        return asyncio.run(_work(args, loops, store))


def _store_of(place: str | None) -> BlobStore | None:
    from treadle.durable.temporal import RedisBlobStore, SQLiteBlobStore  # noqa: PLC0415 - an extra

    if place is None:
        return None
    return (
        RedisBlobStore(place)
        if place.startswith(REDIS)
        else SQLiteBlobStore(Path(place).expanduser())
    )


async def _work(
    args: argparse.Namespace, loops: dict[str, Loop[Any]], store: BlobStore | None
) -> int:
    from treadle.durable.temporal import make_worker  # noqa: PLC0415 - an extra
    from treadle.durable.temporal.client import connect  # noqa: PLC0415 - an extra

    options: dict[str, Any] = {}
    if args.max_activities is not None:
        options["max_concurrent_activities"] = args.max_activities
    try:
        client = await connect(args.address, args.namespace)
    except ConnectionError as error:
        warn(str(error))
        return Exit.FAILED
    made = make_worker(client, loops, task_queue=args.task_queue, store=store, **options)
    stopped = asyncio.get_running_loop().create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in not_ignored(*ENDING):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    async with made:
        note(f"Running {', '.join(loops)} from queue {args.task_queue}. Press Ctrl-C to stop.")
        number = await stopped
        note("Stopping: waiting for the calls that run.")
    return stopped_by(number)
