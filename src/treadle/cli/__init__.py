"""The `treadle` command."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from treadle.cli.arguments import make_parser
from treadle.cli.exits import Exit, UsageError

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
    args = make_parser().parse_args(argv)
    try:
        # The module of a command imports what it needs, so it is imported here: --help is fast.
        module = importlib.import_module(f"treadle.cli.{args.command}_command")
        code: int = getattr(module, args.command)(args)
        sys.stdout.flush()
    except UsageError as error:
        args.parser.error(str(error))
        raise  # not reached: error() exits
    except KeyboardInterrupt:
        print("treadle: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe, as in `treadle ... | head`. Python flushes again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    return code
