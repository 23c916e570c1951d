"""`treadle decide`, `steer`, `cancel` and `delete`: change a run in a journal, whichever process drives it."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

from treadle.cli.approvals import decisions_of
from treadle.cli.exits import Exit, UsageError
from treadle.cli.journals import open_journal, quoted_resume
from treadle.cli.output import warn
from treadle.cli.parts import usage_errors
from treadle.cli.stdin import read_stdin
from treadle.cli.streams import note
from treadle.durable import SQLiteJournal
from treadle.errors import RunBusyError


class _TooLateError(Exception):
    """The run has ended. The message is one line."""


def _changing(
    change: Callable[[argparse.Namespace, SQLiteJournal], None],
) -> Callable[[argparse.Namespace], Exit]:
    """Make a command of a function that changes a run, and says what happens next.

    The command raises UsageError if there is no such run or call, or the journal cannot be read or written.
    """

    @functools.wraps(change)
    def command(args: argparse.Namespace) -> Exit:
        try:
            with usage_errors(RunBusyError):
                change(args, open_journal(args))
        except (RunBusyError, _TooLateError) as error:
            warn(str(error))
            return Exit.FAILED
        return Exit.OK

    return command


@_changing
def decide(args: argparse.Namespace, journal: SQLiteJournal) -> None:
    """Execute `treadle decide`."""
    waiting = journal.run(args.id).waiting
    decisions = decisions_of(args, waiting)
    if not decisions:
        ids = ", ".join(call.id for call in waiting) or "none"
        raise UsageError(f"expected --approve, --deny or --edit; the calls that wait: {ids}")
    journal.decide(args.id, decisions)
    start = journal.part(args.id, 1).start
    note(f"stored; to continue the run: {quoted_resume(args.id, args, start)}")


@_changing
def steer(args: argparse.Namespace, journal: SQLiteJournal) -> None:
    """Execute `treadle steer`."""
    text = read_stdin("TEXT") if args.text == "-" else args.text
    if not journal.steer(args.id, text):
        raise _TooLateError(f"run {args.id!r} has ended")
    _say_when(args, journal, "the run takes the message before its next request")


@_changing
def cancel(args: argparse.Namespace, journal: SQLiteJournal) -> None:
    """Execute `treadle cancel`."""
    if not journal.cancel(args.id):
        raise _TooLateError(f"run {args.id!r} has ended")
    _say_when(args, journal, "the run ends")


@_changing
def delete(args: argparse.Namespace, journal: SQLiteJournal) -> None:
    """Execute `treadle delete`."""
    journal.delete(args.id)


def _say_when(args: argparse.Namespace, journal: SQLiteJournal, what: str) -> None:
    """Say what happens next: soon, if a process drives the run."""
    if journal.run(args.id).driver is not None:
        note(what)
    else:
        resume = quoted_resume(args.id, args, journal.part(args.id, 1).start)
        note(f"no process drives the run; {what} when it is resumed: {resume}")
