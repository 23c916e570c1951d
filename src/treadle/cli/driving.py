"""Drives one run: its recording, its progress on stderr, and its result on stdout. With a journal, it survives."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Generator, Sequence
from typing import Any

from treadle.cli.approvals import ask, question_lines
from treadle.cli.arguments import given_options
from treadle.cli.exits import Exit, UsageError
from treadle.cli.interrupts import interrupts_end
from treadle.cli.journals import CommandJournal, quoted_resume
from treadle.cli.line_editor import LineEditor
from treadle.cli.output import answer, as_json, summary, transcript, warn, why
from treadle.cli.parts import close_model, open_model, tools_of, usage_errors
from treadle.cli.progress import make_progress
from treadle.cli.streams import note, show
from treadle.cli.targets import same_file, writing
from treadle.durable import SQLiteJournal
from treadle.errors import JournalError
from treadle.files import check_replaceable, replace_file
from treadle.loop import Loop, RunHandle
from treadle.pauses import Pauses
from treadle.reports import Recorder, RecordingError, render_report
from treadle.reports.text import one_line
from treadle.results import Ok, Paused, Result


def prepared(args: argparse.Namespace, servers: contextlib.ExitStack) -> tuple[Loop, Any]:
    """The loop and the model of a run.

    Raises:
        UsageError: the model, the tools or a limit are invalid.
    """
    with usage_errors():
        options = given_options(args)
        if args.on_unknown is not None:
            options["pauses"] = Pauses(on_unknown=args.on_unknown)
        # Opening a model can take seconds, so the other checks are done first.
        tools = tools_of(args, servers)
        loop = Loop(name="treadle run", tools=tools, **options)
        model = open_model(args)
    return loop, model


def drive(args: argparse.Namespace, loop: Loop, model: Any, messages: Any) -> Exit:
    """Drive a run without a journal. Ctrl-C cancels it."""
    handle = RunHandle()
    with (
        recording(args.record, args.report) as recorder,
        _observers(args, recorder) as observers,
        interrupts_end(handle),
    ):
        result = loop.run_sync(messages, model, handle=handle, on_event=observers)
    close_model(model, result)
    return report(result, args)


class StoredRun:
    """A run in a journal that this process is to drive.

    Args:
        args: the arguments.
        journal: the journal.
        run_id: the id of the run.
    """

    def __init__(self, args: argparse.Namespace, journal: SQLiteJournal, run_id: str) -> None:
        self._args = args
        self._journal = journal
        self._id = run_id

    def drive(self, loop: Loop, model: Any, *messages: Any) -> Exit:
        """Drive the run until it ends, or waits. Ctrl-C leaves it, so that it can be continued.

        Args:
            loop: the loop.
            model: the model; None means that of the loop.
            *messages: the messages; none if the run exists.
        """
        args = self._args
        if not args.quiet:
            note(f"run {self._id} in {self._journal.path}")
        try:
            with recording(args.record, args.report) as recorder:
                result = self._result(loop, model, messages, recorder)
        except KeyboardInterrupt:
            warn(f"interrupted; to continue the run: {self._resume()}")
            return Exit.INTERRUPTED
        except JournalError as error:
            warn(str(error))
            return Exit.FAILED
        close_model(model, result)
        if isinstance(result, Paused):
            return self._report_paused(result)
        code = report(result, args)
        return Exit.FAILED if code == Exit.INTERRUPTED else code  # another process has cancelled it

    def _result(
        self, loop: Loop, model: Any, messages: Sequence[Any], recorder: Recorder | None
    ) -> Result:
        editor = LineEditor()
        journal = CommandJournal(self._journal, self._args)
        run: Any = loop.run_sync  # the messages may be left out
        while True:
            with _observers(self._args, recorder) as observers:
                given = loop.settings.on_event or ()
                result: Result = run(
                    *messages,
                    llm_send_fn=model,
                    journal=journal,
                    run_id=self._id,
                    on_event=[*((given,) if callable(given) else given), *observers],
                )
            decisions = None
            if isinstance(result, Paused) and editor.is_terminal:
                decisions = ask(result.pending, editor)
            if not decisions:
                return result
            self._journal.decide(self._id, decisions)
            messages = ()

    def _report_paused(self, result: Paused) -> Exit:
        if self._args.json:
            show(as_json(result))
        warn(f"{why(result)}; to decide: {self._resume()} with")
        for call in result.pending:
            for line in question_lines(
                call, sys.stderr, f"  --approve {one_line(call.id, 500)}   "
            ):
                note(line)
        return Exit.FAILED

    def _resume(self) -> str:
        return quoted_resume(self._id, self._args, None)


@contextlib.contextmanager
def _observers(args: argparse.Namespace, recorder: Recorder | None) -> Generator[list[Any]]:
    """The observers of a run. A tool may print; stdout is for the answer."""
    with (
        contextlib.redirect_stdout(sys.stderr),
        make_progress(sys.stderr, quiet=args.quiet) as progress,
    ):
        yield [one for one in (recorder, progress) if one is not None]


@contextlib.contextmanager
def recording(record: str | None, page: str | None) -> Generator[Recorder | None]:
    """Record a run, and render its report at the end; None is no file. It yields the observer for the run.

    Raises:
        UsageError: a file cannot be written. This is checked before the run.
    """
    if record is None and page is None:
        yield None
        return
    if record is not None and page is not None and same_file(record, page):
        raise UsageError("--record and --report: expected two files, got one")
    with contextlib.ExitStack() as stack:
        if page is not None:
            with writing("--report", page):
                check_replaceable(page)
        target = record or f"{stack.enter_context(tempfile.TemporaryDirectory())}/run.jsonl"
        with writing("--record", record):
            recorder = stack.enter_context(Recorder(target))
        try:
            yield recorder
        finally:
            recorder.close()
            if recorder.failure is not None:
                warn(f"the recording {record or ''} is incomplete: {recorder.failure}")
            if page is not None:
                try:
                    replace_file(page, render_report(target).encode("ascii"))
                except (OSError, RecordingError) as error:
                    warn(f"the report was not written: {error}")


def report(result: Result, args: argparse.Namespace) -> Exit:
    """Print how a run ended: the answer on stdout, else the reason on stderr."""
    if args.json:
        show(as_json(result))
    if isinstance(result, Ok):
        if not args.json:
            show(answer(result))
        return Exit.OK
    was_cancelled = result.stop_reason == "cancelled"
    if was_cancelled and not args.json:
        for line in transcript(result.messages):
            note(line)
    advice = "; only a run with --journal can go on" if isinstance(result, Paused) else ""
    warn(f"{why(result)}{advice} ({summary(result)})")
    return Exit.INTERRUPTED if was_cancelled else Exit.FAILED
