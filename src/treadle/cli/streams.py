"""Writes to stdout and stderr, each of which may be a full disk, a closed pipe, or closed.

Everything that the command prints passes through here, and is escaped here: it may have text of anyone.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from treadle.cli.exits import OutputError


def escaped(text: str, stream: TextIO | None = None) -> str:
    """A text as it is written to a stream; without one, to a terminal. See `escape_controls`."""
    from treadle.reports.text import escape_controls  # noqa: PLC0415 - slow, and --help has no such text

    return escape_controls(text, is_terminal=stream is None or stream.isatty())


def show(text: str, end: str = "\n") -> None:
    """Write a text to stdout now, escaped.

    Raises:
        OutputError: stdout cannot be written, or is closed.
        BrokenPipeError: its reader has closed the pipe.
    """
    if sys.stdout is None:
        raise OutputError("cannot write the output: stdout is closed")
    try:
        sys.stdout.write(f"{escaped(text, sys.stdout) if text else text}{end}")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write the output: {error.strerror}") from error


def note(text: str, *, is_dim: bool = False) -> None:
    """Print a text on stderr, escaped; further lines of it are indented, so that none looks like a prompt.

    The command goes on if that is not possible: its result is on stdout.

    Args:
        text: the text.
        is_dim: dim it on a terminal that has colours, unless the variable NO_COLOR is set.
    """
    if sys.stderr is None:  # for which `print` would take stdout
        return
    text = escaped(text).replace("\n", "\n  ")
    is_plain = os.environ.get("TERM", "dumb") == "dumb" or os.environ.get("NO_COLOR")
    if is_dim and not is_plain and sys.stderr.isatty():
        text = f"\x1b[2m{text}\x1b[0m"
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def finish() -> None:
    """Write the rest, and drop what cannot be written: Python would report it when it exits."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device
                os.dup2(nowhere.fileno(), stream.fileno())
