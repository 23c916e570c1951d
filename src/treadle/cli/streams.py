"""Writes to stdout and stderr, each of which may be a full disk, a closed pipe, or closed."""

from __future__ import annotations

import contextlib
import os
import sys

from treadle.cli.exits import OutputError


def show(text: str, end: str = "\n") -> None:
    """Write a text to stdout now.

    Raises:
        OutputError: stdout cannot be written, or is closed.
        BrokenPipeError: its reader has closed the pipe.
    """
    if sys.stdout is None:
        raise OutputError("cannot write the output: stdout is closed")
    try:
        sys.stdout.write(f"{text}{end}")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write the output: {error.strerror}") from error


def note(text: str) -> None:
    """Print a line on stderr. The command goes on if that is not possible: its result is on stdout."""
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
