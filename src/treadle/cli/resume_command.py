"""`treadle resume`: continues a run of a journal in this process."""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import Any

from treadle.cli.approvals import decisions_of
from treadle.cli.driving import StoredRun, prepared, report
from treadle.cli.exits import Exit, UsageError
from treadle.cli.interrupts import closed_in_order
from treadle.cli.journals import open_journal, options_of_run, with_stored
from treadle.cli.load_tools import load_loop
from treadle.cli.output import warn
from treadle.cli.parts import open_model, usage_errors
from treadle.durable import SQLiteJournal
from treadle.errors import RunBusyError
from treadle.loop import Loop


def resume(args: argparse.Namespace) -> Exit:
    """Execute `treadle resume`.

    Raises:
        UsageError: there is no such run, it cannot be read, or what it needs is missing.
        OutputError: stdout cannot be written.
        KeyboardInterrupt: it was interrupted before the run continued.
    """
    with usage_errors():
        journal = open_journal(args)
        found = journal.run(args.id)
        part = journal.part(args.id)
    if found.driver is not None:
        warn(f"run {args.id!r} is driven by {found.driver}")
        return Exit.FAILED
    with usage_errors():
        result = part.result
    if found.status in {"ok", "error"} and result is not None:
        return report(result, args)
    decisions = decisions_of(args, found.waiting)
    with closed_in_order() as servers:
        loop, model = _made(args, journal, servers)
        try:
            with usage_errors(RunBusyError):
                if decisions:
                    journal.decide(args.id, decisions)
                for text in args.steer or ():
                    journal.steer(args.id, text)
        except RunBusyError as error:  # another process was faster
            warn(str(error))
            return Exit.FAILED
        return StoredRun(args, journal, args.id).drive(loop, model)


def _made(
    args: argparse.Namespace, journal: SQLiteJournal, servers: contextlib.ExitStack
) -> tuple[Loop, Any]:
    """The loop and the model of the run: those that were named when it was started, unless others are given."""
    if args.loop is not None:
        with usage_errors():
            loop = load_loop(args.loop)
            return loop, None if args.model is None else open_model(args)
    with usage_errors():
        stored = options_of_run(journal, args.id)
    if stored is None and args.model is None and not (args.tools or args.mcp):
        raise UsageError(
            f"{args.id}: it was not started by treadle run, so name its loop: --loop MODULE:NAME"
        )
    merged = with_stored(args, stored or {})
    if merged.model is None:
        merged.model = "local"
    folder = (stored or {}).get("folder")
    if folder is not None:
        _enter(folder, args)
    return prepared(merged, servers)


def _enter(folder: str, args: argparse.Namespace) -> None:
    """Go to the folder in which the run was started: the tools are of that folder."""
    for name in ("record", "report"):
        if getattr(args, name) is not None:
            setattr(args, name, os.path.abspath(getattr(args, name)))  # noqa: PTH100 - a text, as given
    try:
        os.chdir(folder)
    except OSError as error:
        raise UsageError(
            f"{args.id}: it was started in the folder {folder}, which cannot be entered: {error.strerror}"
        ) from error
