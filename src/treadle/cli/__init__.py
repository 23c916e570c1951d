"""The `treadle` command."""

from __future__ import annotations

import argparse
import importlib
import logging
import re
import sys
from collections.abc import Sequence
from typing import Any

from treadle.cli.arguments import FILES, make_parser
from treadle.cli.exits import Exit, OutputError, UsageError
from treadle.cli.interrupts import exit_code, signals_interrupt
from treadle.cli.streams import escaped, finish, note, show

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `treadle` command.

    Args:
        argv: the arguments without the name of the command; None for those of the process.

    Returns:
        An exit code, see `Exit`.

    Raises:
        SystemExit: bad usage, ``--help`` or ``--version``.
    """
    for stream in (sys.stdout, sys.stderr):
        # Text of a model may have characters that the encoding of the terminal lacks.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    if logging.lastResort is not None:  # what is logged may be a text of anyone, too
        logging.lastResort.setFormatter(_Escaped())
    with signals_interrupt():
        return exit_code(_exit_code_of(argv))


def _exit_code_of(argv: Sequence[str] | None) -> int:
    try:
        return _execute(_parsed(argv))
    except OutputError as error:
        note(f"treadle: {error}")
        return Exit.FAILED
    except BrokenPipeError:  # the reader has closed the pipe, as in `treadle ... | head`
        return Exit.FAILED
    except KeyboardInterrupt:
        note("treadle: interrupted")
        return Exit.INTERRUPTED
    finally:
        finish()


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    try:
        args = make_parser().parse_args(argv)
        _check_text(args)
    except SystemExit:
        show("", end="")  # the text of --help was written, but may not have left the process
        raise
    return args


def _check_text(args: argparse.Namespace) -> None:
    """Refuse texts whose bytes are not in the encoding of the terminal; names of files may have any bytes."""
    for name, value in vars(args).items():
        texts: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
        for text in texts:
            if isinstance(text, str) and name not in FILES and re.search("[\ud800-\udfff]", text):
                args.parser.error(f"{name}: expected text in UTF-8, got {text!a}")


class _Escaped(logging.Formatter):
    """The form of what is logged, which Python writes to stderr if nothing else is configured."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record))


def _execute(args: argparse.Namespace) -> int:
    try:
        # The module of a command imports what it needs, so it is imported here: --help is fast.
        module = importlib.import_module(f"treadle.cli.{args.module}")
        code: int = getattr(module, args.command.replace("-", "_"))(args)
    except UsageError as error:
        args.parser.error(str(error))
        raise  # not reached: error() exits
    return code
