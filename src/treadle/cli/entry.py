"""The entry point of the command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from treadle.cli.arguments import make_parser
from treadle.cli.exits import Exit, UsageError


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
    parser = make_parser()
    args = parser.parse_args(argv)
    try:
        code = _execute(args)
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


def _execute(args: argparse.Namespace) -> int:
    # Imported here to keep --help fast.
    if args.command == "report":
        from treadle.cli.report_command import report  # noqa: PLC0415 - as above

        return report(args)
    if args.command == "dashboard":
        from treadle.cli.dashboard_command import dashboard  # noqa: PLC0415 - as above

        return dashboard(args)
    from treadle.cli.run_command import run  # noqa: PLC0415 - as above

    return run(args)
