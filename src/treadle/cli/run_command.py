"""`treadle run`: one run of the loop, its progress on stderr, its answer on stdout."""

from __future__ import annotations

import argparse
import os

from treadle.cli.driving import StoredRun, drive, prepared
from treadle.cli.exits import Exit, UsageError
from treadle.cli.interrupts import closed_in_order
from treadle.cli.journals import is_journaled, open_journal
from treadle.cli.parts import usage_errors
from treadle.cli.stdin import is_piped, read_stdin
from treadle.messages import JSONDict


def run(args: argparse.Namespace) -> Exit:
    """Execute `treadle run`.

    Raises:
        UsageError: the model, the tools or a limit are invalid, or a file cannot be written.
        OutputError: stdout cannot be written.
        KeyboardInterrupt: it was interrupted twice, or before the run started.
    """
    with closed_in_order() as servers:
        loop, model = prepared(args, servers)
        messages: list[JSONDict] = []
        if args.system:
            messages.append({"role": "system", "content": args.system})
        messages.append({"role": "user", "content": _prompt(args)})
        if not is_journaled(args):
            return drive(args, loop, model, messages)
        with usage_errors():
            journal = open_journal(args, create=True)
        stored = StoredRun(args, journal, args.run_id or os.urandom(6).hex())
        return stored.drive(loop, model, messages)


def _prompt(args: argparse.Namespace) -> str:
    """The question; with an input on stdin, the question, a blank line, and the input."""
    texts = [] if args.prompt == "-" else [args.prompt]
    if args.prompt == "-" or is_piped():
        texts.append(read_stdin("PROMPT", args.max_seconds, is_quiet=args.quiet))
    prompt = "\n\n".join(filter(str.strip, texts))
    if not prompt.strip():
        raise UsageError("PROMPT: expected a question, got nothing")
    return prompt
