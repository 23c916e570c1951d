"""The `treadle` command."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from treadle.cli.arguments import make_parser
from treadle.cli.exits import Exit, OutputError, UsageError
from treadle.cli.streams import finish, note, show

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
        return make_parser().parse_args(argv)
    except SystemExit:
        show("", end="")  # the text of --help was written, but may not have left the process
        raise


def _execute(args: argparse.Namespace) -> int:
    try:
        # The module of a command imports what it needs, so it is imported here: --help is fast.
        module = importlib.import_module(f"treadle.cli.{args.module}")
        code: int = getattr(module, args.command.replace("-", "_"))(args)
    except UsageError as error:
        args.parser.error(str(error))
        raise  # not reached: error() exits
    return code
