"""`treadle run --record` and `--report`: what is kept of a run, however it ends."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli.exits import UsageError

if TYPE_CHECKING:
    from treadle.reports.record.recorder import Recorder


@contextlib.contextmanager
def recording(record: str | None, report: str | None) -> Generator[Recorder | None]:
    """Record a run, and make a page of it at the end.

    Args:
        record: the file to write down the run in; None is none.
        report: the file for the page; None is none.

    Returns:
        A context manager of the observer to give to the run; of None where there is to be none.

    Raises:
        UsageError: a file cannot be written. That is found out before anything runs.
    """
    if record is None and report is None:
        yield None
        return
    if record is not None and report is not None and same_file(record, report):
        raise UsageError("--record and --report: expected two files, got one")
    from treadle.reports.record.recorder import Recorder  # noqa: PLC0415 - most runs are not recorded

    with contextlib.ExitStack() as stack:
        if report is not None:
            check_writable(report, "--report")
        target = record or f"{stack.enter_context(tempfile.TemporaryDirectory())}/run.jsonl"
        try:
            recorder = stack.enter_context(Recorder(target))
        except OSError as error:
            raise UsageError(f"--record: cannot write {record}: {error.strerror}") from error
        try:
            yield recorder
        finally:
            recorder.close()
            if recorder.failure is not None:
                _warn(f"the record {record or ''} is not whole: {recorder.failure}")
            if report is not None:
                _make_report(target, report)


def same_file(one: str, other: str) -> bool:
    """Whether two paths are of the same file, or would be."""
    return os.path.realpath(one) == os.path.realpath(other)


def check_writable(path: str, option: str) -> None:
    """Find out whether a file can be written, and leave it as it is; a new one is empty.

    Raises:
        UsageError: it cannot.
    """
    try:
        with Path(path).open("ab"):
            pass
    except OSError as error:
        raise UsageError(f"{option}: cannot write {path}: {error.strerror}") from error


def _make_report(record: str, report: str) -> None:
    from treadle.reports.record.reading import RecordError  # noqa: PLC0415 - as above
    from treadle.reports.report.render import render_report  # noqa: PLC0415 - as above

    try:
        Path(report).write_text(render_report(record), encoding="ascii")
    except (OSError, RecordError) as error:
        _warn(f"there is no report: {error}")


def _warn(what: str) -> None:
    print(f"treadle: {what}", file=sys.stderr)
