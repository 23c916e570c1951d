"""`treadle runs`: the runs of a journal."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time

from treadle.cli.exits import Exit, UsageError
from treadle.cli.journals import open_journal
from treadle.cli.output import aligned, jsonable
from treadle.cli.parts import usage_errors
from treadle.cli.streams import note, show
from treadle.durable import StoredRun
from treadle.messages import JSONDict
from treadle.reports.text import one_line


def runs(args: argparse.Namespace) -> Exit:
    """Execute `treadle runs`.

    Raises:
        UsageError: the journal cannot be read.
        OutputError: stdout cannot be written.
    """
    if args.limit is not None and args.limit < 1:
        raise UsageError(f"--limit: expected a number above 0, got {args.limit}")
    with usage_errors():
        journal = open_journal(args)
        found = journal.runs("running" if args.status == "interrupted" else args.status)
    chosen = [one for one in found if args.status in {None, status_of(one)}][: args.limit]
    if args.json:
        show(json.dumps({"runs": [facts_of(one) for one in chosen]}, default=jsonable))
        return Exit.OK
    if not chosen:
        note(f"there are no {args.status or ''} runs in {journal.path}".replace("  ", " "))
        return Exit.OK
    for line in aligned([_HEAD, *map(_row, chosen)]):
        show(line)
    return Exit.OK


def status_of(run: StoredRun) -> str:
    """The status of a run; one that no process drives, and that has not ended, is interrupted."""
    return "interrupted" if run.status == "running" and run.driver is None else run.status


def facts_of(run: StoredRun) -> JSONDict:
    """What is known about a run, as JSON data."""
    return {
        "id": run.id,
        "status": status_of(run),
        "stop_reason": run.stop_reason,
        "agent_name": run.agent_name,
        "iterations": run.iterations,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "is_cancelled": run.is_cancelled,
        "driver": run.driver and dataclasses.asdict(run.driver),
        "waiting": [dataclasses.asdict(call) for call in run.waiting],
    }


_HEAD = ("RUN", "STATUS", "AGENT", "ITERATIONS", "STARTED", "LAST STORED", "")


def _row(run: StoredRun) -> tuple[str, ...]:
    return (
        one_line(run.id, _WIDTH),
        status_of(run),
        one_line(run.agent_name, _WIDTH),
        str(run.iterations),
        time_of(run.created_at),
        time_of(run.updated_at),
        one_line(_remark(run)),
    )


def _remark(run: StoredRun) -> str:
    if run.driver is not None:
        where = f" on {run.driver.host}" if run.driver.host else ""
        return f"process {run.driver.pid}{where}"
    if run.status == "paused":
        return f"waits: {', '.join(call.name for call in run.waiting)}"
    return "" if run.status == "ok" else run.stop_reason


def time_of(seconds: float) -> str:
    """A time, in the time zone of the user."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


_WIDTH = 60
"""How much of an id and of a name is shown, in characters."""
