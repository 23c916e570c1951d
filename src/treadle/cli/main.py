"""The command's entry: reads the arguments, runs, and ends with an exit code."""

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
        argv: the arguments, without the command's own name; None are those of the process.

    Returns:
        An exit code, see `Exit`.

    Raises:
        SystemExit: bad usage, ``--help`` or ``--version``.
    """
    for stream in (sys.stdout, sys.stderr):
        # A model may write what the terminal's encoding lacks; that must not end in a traceback.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    parser = make_parser()
    args = parser.parse_args(argv)
    try:
        code = _carry_out(args)
        sys.stdout.flush()
    except UsageError as error:
        args.parser.error(str(error))
        raise  # it has exited already
    except KeyboardInterrupt:
        print("treadle: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever reads has gone, as in `treadle ... | head`; Python would flush once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    return code


def _carry_out(args: argparse.Namespace) -> int:
    # What a command needs is imported with it: nothing of it is needed for --help.
    if args.command == "report":
        from treadle.cli.report_command import report  # noqa: PLC0415 - as said above

        return report(args)
    if args.command == "dashboard":
        from treadle.cli.dashboard_command import dashboard  # noqa: PLC0415 - as said above

        return dashboard(args)
    from treadle.cli.run import run  # noqa: PLC0415 - as said above

    return run(args)
