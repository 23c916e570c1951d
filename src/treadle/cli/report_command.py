"""`treadle report`: renders a recording as an HTML report."""

from __future__ import annotations

import argparse
from pathlib import Path

from treadle.cli.exits import Exit, UsageError
from treadle.cli.output import warn
from treadle.cli.streams import show
from treadle.cli.targets import same_file, writing
from treadle.files import replace_file
from treadle.reports import RecordingError, read_recording, render_report
from treadle.reports.text import escape_controls


def report(args: argparse.Namespace) -> Exit:
    """Execute `treadle report`. The name of the report, or the report itself, is printed on stdout.

    Raises:
        UsageError: the recording is missing or broken, or the report cannot be written.
        OutputError: stdout cannot be written.
    """
    try:
        recording = read_recording(args.recording)
    except OSError as error:
        raise UsageError(f"cannot read {args.recording}: {error.strerror}") from error
    except RecordingError as error:
        raise UsageError(escape_controls(str(error))) from error
    target = args.output or str(Path(args.recording).with_suffix(".html"))
    if target != "-" and same_file(target, args.recording):
        raise UsageError(f"-o: {target} is the recording itself")
    for problem in recording.problems:
        warn(problem)
    page = render_report(recording)
    if target == "-":
        show(page, end="")
        return Exit.OK
    with writing("-o", target):
        replace_file(target, page.encode("ascii"))
    show(target)
    return Exit.OK
