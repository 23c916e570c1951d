"""`treadle run --record` and `--report`: the recording and the report of a run."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

from treadle.cli.exits import UsageError, writing
from treadle.cli.output import warn
from treadle.reports import Recorder, RecordingError, render_report


@contextlib.contextmanager
def recording(record: str | None, report: str | None) -> Generator[Recorder | None]:
    """Record a run, and render its report at the end; None is no file. It yields the observer for the run.

    Raises:
        UsageError: a file cannot be written. This is checked before the run.
    """
    if record is None and report is None:
        yield None
        return
    if record is not None and report is not None and same_file(record, report):
        raise UsageError("--record and --report: expected two files, got one")
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
                warn(f"the recording {record or ''} is incomplete: {recorder.failure}")
            if report is not None:
                try:
                    Path(report).write_text(render_report(target), encoding="ascii")
                except (OSError, RecordingError) as error:
                    warn(f"the report was not written: {error}")


def same_file(one: str, other: str) -> bool:
    """Whether two paths name the same file."""
    return os.path.realpath(one) == os.path.realpath(other)
