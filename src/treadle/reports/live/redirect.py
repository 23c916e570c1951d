"""Redirects stdout, stderr and log handlers while a live view is active, so that their lines appear above it."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TextIO

from treadle.reports.live.board import Board

Show = Callable[[str], None]
"""Prints complete lines above the live view."""


class RedirectedStream:
    """Replaces a stream. Each line that is written to it appears above the live view once it is complete.

    Args:
        stream: the original stream, to which all other attributes are delegated.
        show: prints lines above the live view.
        board: the runs that the live view shows.
    """

    def __init__(self, stream: TextIO, show: Show, board: Board) -> None:
        self.live_board = board
        self._stream = stream
        self._show = show
        self._partial: dict[int, str] = {}
        self._is_over = False

    def write(self, text: str) -> int:
        """Write text. An incomplete last line is kept until its end is written, separately for each thread."""
        if self._is_over:
            return self._stream.write(text)
        thread = threading.get_ident()
        whole, end, rest = text.rpartition("\n")
        partial = self._partial.pop(thread, "")
        if end:
            self._show(partial + whole)
        else:
            rest = partial + text
        if rest:
            self._partial[thread] = rest
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Do nothing while the view is live: an incomplete line could not be continued above it."""
        if self._is_over:
            self._stream.flush()

    def finish(self) -> None:
        """Write incomplete lines, and write directly to the stream from now on."""
        self._is_over = True
        partial, self._partial = self._partial, {}
        if partial:
            self._stream.write("".join(partial.values()))
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def redirected(show: Show, board: Board) -> Generator[None]:
    """Show everything that is printed or logged to the terminal above the live view.

    Output to files and pipes is not changed.
    """
    stdout, stderr = sys.stdout, sys.stderr
    originals = {id(stream): stream for stream in (stdout, stderr) if is_terminal(stream)}
    above: dict[int, Any] = {
        key: RedirectedStream(stream, show, board) for key, stream in originals.items()
    }
    try:
        sys.stdout = above.get(id(stdout), stdout)
        sys.stderr = above.get(id(stderr), stderr)
        _replace_streams(above)
        yield
    finally:
        # If another stream was set in the meantime, it stays.
        below = {id(above[key]): stream for key, stream in originals.items()}
        sys.stdout = below.get(id(sys.stdout), sys.stdout)
        sys.stderr = below.get(id(sys.stderr), sys.stderr)
        _replace_streams(below)
        for one in above.values():
            one.finish()


def _replace_streams(streams: Mapping[int, Any]) -> None:
    """Replace the streams of log handlers, by the id of the current stream."""
    for handler in _handlers():
        stream = streams.get(id(handler.stream))
        if stream is not None:
            handler.setStream(stream)


def _handlers() -> list[logging.StreamHandler[Any]]:
    """The stream handlers of all loggers."""
    root = logging.getLogger()
    found: dict[logging.StreamHandler[Any], None] = {}
    for logger in (root, *list(root.manager.loggerDict.values())):
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            # Handlers with a `stream` property look the stream up each time.
            if isinstance(handler, logging.StreamHandler) and "stream" in vars(handler):
                found[handler] = None  # pyright: ignore[reportUnknownArgumentType]
    return list(found)


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal. A closed stream and None are not."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError, OSError):
        return False
