"""`treadle report`: renders a recording as an HTML report."""

from __future__ import annotations

import argparse
from pathlib import Path

from treadle.cli.exits import Exit, UsageError
from treadle.cli.output import warn
from treadle.cli.streams import note, show
from treadle.cli.targets import same_file, writing
from treadle.files import replace_file
from treadle.recording import Recording
from treadle.recording.divergence import diff
from treadle.reports import RecordingError, read_recording, render_report


def report(args: argparse.Namespace) -> Exit:
    """Execute `treadle report`. The name of the report, or the report itself, is printed on stdout.

    Raises:
        UsageError: the recording is missing or broken, or the report cannot be written.
        OutputError: stdout cannot be written.
    """
    recording = _read(args.recording)
    other = None if args.diff is None else _read(args.diff)
    target = args.output or str(Path(args.recording).with_suffix(".html"))
    for given in (args.recording, args.diff):
        if given is not None and target != "-" and same_file(target, given):
            raise UsageError(f"-o: {target} is the recording itself")
    for problem in recording.problems + ([] if other is None else other.problems):
        warn(problem)
    if other is not None:
        found = diff(recording, other)
        text = "there is no difference" if found is None else f"the first difference is in {found}"
        note(text)
    page = render_report(recording, diff=other, names=(args.recording, args.diff or ""))
    if target == "-":
        show(page, end="")
        return Exit.OK
    with writing("-o", target):
        replace_file(target, page.encode("ascii"))
    show(target)
    return Exit.OK


def _read(path: str) -> Recording:
    try:
        return read_recording(path, log=False)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except RecordingError as error:
        raise UsageError(str(error)) from error
