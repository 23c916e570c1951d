"""The text of stdin, read whole: from a pipe or a file, or from what the argument ``-`` names."""

from __future__ import annotations

import codecs
import os
import select
import stat
import sys

from treadle.cli.exits import UsageError
from treadle.cli.streams import note

MAX_BYTES = 4_000_000
"""More than a million tokens, which no model takes."""
SILENT_SECONDS = 600.0
"""How long a pipe may deliver nothing: a program before it in a pipeline may run for minutes."""
_NOTICE_SECONDS = 3.0


def is_piped() -> bool:
    """Whether stdin is a pipe, a socket or a file, not a terminal, a device such as /dev/null, or closed."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or replaced by something in memory
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def read_stdin(name: str, silent_seconds: float | None = None, *, is_quiet: bool = False) -> str:
    """Read stdin to its end.

    Args:
        name: the name of the argument, for errors.
        silent_seconds: how long a pipe may deliver nothing; None means `SILENT_SECONDS`.
        is_quiet: whether it does not say that it waits.

    Raises:
        UsageError: it is closed, cannot be read, is not text in its encoding, has more than `MAX_BYTES`, or
            delivers nothing for too long.
    """
    if sys.stdin is None:
        raise UsageError(f"{name}: expected text on stdin, which is closed")
    seconds = SILENT_SECONDS if silent_seconds is None else silent_seconds
    encoding = codecs.lookup(sys.stdin.encoding or "utf-8").name
    text = bytearray()
    try:
        if not is_piped():  # a terminal, where a person types, or something in memory
            return sys.stdin.read(MAX_BYTES)
        while piece := _next_piece(name, seconds, is_quiet=is_quiet or bool(text)):
            text += piece
            if len(text) > MAX_BYTES:
                raise UsageError(f"{name}: stdin has more than {MAX_BYTES:,} bytes")
        return text.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: expected text in {encoding} on stdin, got the byte "
            f"0x{error.object[error.start]:02x} at offset {error.start:,}"
        ) from error
    except OSError as error:
        raise UsageError(f"{name}: cannot read stdin: {error.strerror}") from error


def _next_piece(name: str, seconds: float, *, is_quiet: bool) -> bytes:
    """The next bytes of stdin; empty at its end."""
    fd = sys.stdin.fileno()
    if sys.platform == "win32":  # where `select` takes sockets only
        return os.read(fd, _PIECE)
    first = min(seconds, _NOTICE_SECONDS)
    for wait in (first, seconds - first):
        if select.select([fd], [], [], wait)[0]:
            return os.read(fd, _PIECE)
        if not is_quiet and seconds > first:
            note("treadle: waiting for the end of stdin; without input, start it with < /dev/null")
            is_quiet = True
    raise UsageError(
        f"{name}: stdin delivered nothing for {seconds:g} s and did not end; without input, start it with "
        "< /dev/null"
    )


_PIECE = 1 << 16
