"""`treadle run`: one run of the loop, its progress on stderr, its answer on stdout."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Generator
from typing import Any

from treadle.cli.arguments import given_options
from treadle.cli.exits import Exit, UsageError
from treadle.cli.interrupts import interrupts_end
from treadle.cli.output import answer, as_json, summary, transcript, warn, why
from treadle.cli.parts import close_model, open_model, tools_of, usage_errors
from treadle.cli.progress import make_progress
from treadle.cli.streams import note, show
from treadle.cli.targets import same_file, writing
from treadle.files import check_replaceable, replace_file
from treadle.loop import Loop, RunHandle
from treadle.reports import Recorder, RecordingError, render_report
from treadle.reports.text import escape_controls
from treadle.results import Ok, Result


def run(args: argparse.Namespace) -> Exit:
    """Execute `treadle run`.

    Raises:
        UsageError: the model, the tools or a limit are invalid, or a file cannot be written.
        OutputError: stdout cannot be written.
        KeyboardInterrupt: it was interrupted twice, or before the run started.
    """
    with contextlib.ExitStack() as servers:
        return _run(args, *_prepared(args, servers))


def _run(args: argparse.Namespace, loop: Loop, model: Any) -> Exit:
    messages = [{"role": "system", "content": args.system}] if args.system else []
    messages.append({"role": "user", "content": _prompt(args.prompt)})
    handle = RunHandle()
    # A tool may print; stdout is for the answer.
    with (
        _recording(args.record, args.report) as recorder,
        contextlib.redirect_stdout(sys.stderr),
        make_progress(sys.stderr, quiet=args.quiet) as progress,
        interrupts_end(handle),
    ):
        observers = [one for one in (recorder, progress) if one is not None]
        result = loop.run_sync(messages, model, handle=handle, on_event=observers)
    close_model(model, result)
    return _report(result, args)


def _prepared(args: argparse.Namespace, servers: contextlib.ExitStack) -> tuple[Loop, Any]:
    with usage_errors():
        # Opening a model can take seconds, so the other checks are done first.
        tools = tools_of(args, servers)
        loop = Loop(name="treadle run", tools=tools, **given_options(args))
        model = open_model(args)
    return loop, model


def _prompt(given: str) -> str:
    prompt = sys.stdin.read() if given == "-" else given
    if not prompt.strip():
        raise UsageError("PROMPT: expected a question, got nothing")
    return prompt


@contextlib.contextmanager
def _recording(record: str | None, report: str | None) -> Generator[Recorder | None]:
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
        if report is not None:
            with writing("--report", report):
                check_replaceable(report)
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
                    replace_file(report, render_report(target).encode("ascii"))
                except (OSError, RecordingError) as error:
                    warn(f"the report was not written: {error}")


def _report(result: Result, args: argparse.Namespace) -> Exit:
    if args.json:
        show(as_json(result))
    if isinstance(result, Ok):
        if not args.json:
            text = answer(result)
            is_terminal = sys.stdout is not None and sys.stdout.isatty()
            show(escape_controls(text) if is_terminal else text)
        return Exit.OK
    was_cancelled = result.stop_reason == "cancelled"
    if was_cancelled and not args.json:
        for line in transcript(result.messages):
            note(line)
    warn(f"{why(result)} ({summary(result)})")
    return Exit.INTERRUPTED if was_cancelled else Exit.FAILED
