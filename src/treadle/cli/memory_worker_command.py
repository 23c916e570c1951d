"""`treadle memory-worker`: extracts facts from stored conversations until it is stopped."""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from treadle.cli.chat_sessions import REDIS, open_sessions
from treadle.cli.exits import Exit, UsageError
from treadle.cli.interrupts import ENDING, handled, stopped_by
from treadle.cli.output import warn
from treadle.cli.parts import close_model, open_model, usage_errors
from treadle.cli.streams import note, show
from treadle.reports.text import format_count
from treadle.sessions.memory import (
    MemoryReport,
    MemoryStore,
    MemoryWorker,
    RedisMemories,
    SQLiteMemories,
)


def memory_worker(args: argparse.Namespace) -> int:
    """Execute `treadle memory-worker`.

    Raises:
        UsageError: the model, a store or a number is invalid, or a store cannot be read.
        OutputError: stdout cannot be written.
        KeyboardInterrupt: it was interrupted twice, or before it started.
    """
    if args.poll <= 0:
        raise UsageError(f"--poll: expected a number above 0, got {args.poll:g}")
    with _logged():
        worker, model = _prepared(args)
        with _stopped_by_signals(worker) as received:
            code = _once(worker) if args.once else _forever(worker, args.poll)
        close_model(model, None)
    return stopped_by(received[0]) if received else code


def _once(worker: MemoryWorker) -> Exit:
    with usage_errors():
        report = worker.run_once_sync()
    show(_formatted(report))
    return Exit.FAILED if report.failed else Exit.OK


def _forever(worker: MemoryWorker, poll_seconds: float) -> Exit:
    note("Reading sessions. Press Ctrl-C to stop.")
    worker.run_forever_sync(poll_seconds=poll_seconds, on_pass=_show_work)
    return Exit.OK


def _prepared(args: argparse.Namespace) -> tuple[MemoryWorker, Any]:
    with usage_errors():
        sessions, memories = open_sessions(args.sessions), _memories(args.memories)
        for info in sessions.sessions(limit=1):
            memories.cursors([info.id])
        model = open_model(args)
        worker = MemoryWorker(
            sessions,
            memories,
            model,
            scope_of=_scope_before(args.scope_separator),
            max_tokens=args.max_tokens,
            lease_seconds=args.lease_seconds,
        )
    return worker, model


def _memories(place: str) -> MemoryStore:
    if place.startswith(REDIS):
        return RedisMemories(place)
    return SQLiteMemories(Path(place).expanduser())


def _scope_before(separator: str | None) -> Callable[[str], str] | None:
    def scope_of(session_id: str) -> str:
        return session_id.partition(separator or "")[0]

    return scope_of if separator else None


def _show_work(report: MemoryReport) -> None:
    if report.sessions:
        note(_formatted(report))


def _formatted(report: MemoryReport) -> str:
    """What was done, on one line."""
    where = f"{format_count(report.pieces, 'piece')} of {format_count(report.sessions, 'session')}"
    parts = [f"{format_count(report.facts, 'fact')} in {where}"]
    if report.retractions:
        parts.append(f"{format_count(report.retractions, 'session')} changed and read again")
    if report.busy:
        parts.append(f"{format_count(report.busy, 'session')} read by other workers")
    if report.failed:
        parts.append(f"{format_count(len(report.failed), 'session')} failed")
    return ", ".join(parts)


@contextlib.contextmanager
def _stopped_by_signals(worker: MemoryWorker) -> Generator[list[int]]:
    """Stop the worker on the first Ctrl-C, SIGTERM or SIGHUP, and raise KeyboardInterrupt on the second.

    It yields the list of the signals that were received.
    """
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        worker.stop()

    with handled(stop, *ENDING):
        yield received


class _Warnings(logging.Handler):
    """Prints what the worker logs."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


@contextlib.contextmanager
def _logged() -> Generator[None]:
    log, handler = logging.getLogger("treadle.memory"), _Warnings(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
