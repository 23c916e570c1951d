"""`treadle run --record` and `--report`: the recording and the report of a run."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli.exits import UsageError, writing

if TYPE_CHECKING:
    from treadle.reports.recording.recorder import Recorder


@contextlib.contextmanager
def recording(record: str | None, report: str | None) -> Generator[Recorder | None]:
    """Record a run, and render its report at the end.

    Args:
        record: the file of the recording; None for none.
        report: the file of the report; None for none.

    Returns:
        A context manager that returns the observer for the run, or None.

    Raises:
        UsageError: a file cannot be written. This is checked before the run.
    """
    if record is None and report is None:
        yield None
        return
    if record is not None and report is not None and same_file(record, report):
        raise UsageError("--record and --report: expected two files, got one")
    from treadle.reports.recording.recorder import Recorder  # noqa: PLC0415 - not needed without these options

    with contextlib.ExitStack() as stack:
        if report is not None:  # a new file is empty; one that exists does not change yet
            with writing("--report", report), Path(report).open("ab"):
                pass
        target = record or f"{stack.enter_context(tempfile.TemporaryDirectory())}/run.jsonl"
        with writing("--record", record):
            recorder = stack.enter_context(Recorder(target))
        try:
            yield recorder
        finally:
            recorder.close()
            if recorder.failure is not None:
                _warn(f"the recording {record or ''} is incomplete: {recorder.failure}")
            if report is not None:
                _make_report(target, report)


def same_file(one: str, other: str) -> bool:
    """Whether two paths name the same file."""
    return os.path.realpath(one) == os.path.realpath(other)


def _make_report(record: str, report: str) -> None:
    from treadle.reports.recording.reader import RecordingError  # noqa: PLC0415 - as above
    from treadle.reports.report.render import render_report  # noqa: PLC0415 - as above

    try:
        Path(report).write_text(render_report(record), encoding="ascii")
    except (OSError, RecordingError) as error:
        _warn(f"the report was not written: {error}")


def _warn(what: str) -> None:
    print(f"treadle: {what}", file=sys.stderr)
