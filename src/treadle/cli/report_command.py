"""`treadle report`: a page of recorded runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from treadle.cli.exits import Exit, UsageError
from treadle.cli.recording import same_file
from treadle.reports.record.reading import RecordError, read_record
from treadle.reports.report.render import render_report
from treadle.reports.text import clean


def report(args: argparse.Namespace) -> Exit:
    """Carry out `treadle report`; the name of the page goes to stdout, or the page itself.

    Args:
        args: what the parser made of the command line.

    Returns:
        The exit code.

    Raises:
        UsageError: there is no such record, it is broken, or the page cannot be written.
    """
    try:
        record = read_record(args.record)
    except OSError as error:
        raise UsageError(f"cannot read {args.record}: {error.strerror}") from error
    except RecordError as error:
        raise UsageError(clean(str(error))) from error
    target = args.output or str(Path(args.record).with_suffix(".html"))
    if target != "-" and same_file(target, args.record):
        raise UsageError(f"-o: {target} is the record itself")
    for problem in record.problems:
        print(f"treadle: {clean(problem)}", file=sys.stderr)
    page = render_report(record)
    if target == "-":
        sys.stdout.write(page)
        return Exit.OK
    try:
        Path(target).write_text(page, encoding="ascii")
    except OSError as error:
        raise UsageError(f"-o: cannot write {target}: {error.strerror}") from error
    print(target)
    return Exit.OK
