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

    All other attributes are those of the stream.
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
    originals = {id(one): one for one in (sys.stdout, sys.stderr) if is_terminal(one)}
    above: dict[int, Any] = {
        key: RedirectedStream(stream, show, board) for key, stream in originals.items()
    }
    try:
        _replace_streams(above)
        yield
    finally:
        # If another stream was set in the meantime, it stays.
        below = {id(above[key]): stream for key, stream in originals.items()}
        _replace_streams(below)
        for one in above.values():
            one.finish()


def _replace_streams(streams: Mapping[int, Any]) -> None:
    """Replace stdout, stderr and the streams of all log handlers, by the id of the current stream."""
    sys.stdout = streams.get(id(sys.stdout), sys.stdout)
    sys.stderr = streams.get(id(sys.stderr), sys.stderr)
    root = logging.getLogger()
    loggers = [root, *root.manager.loggerDict.values()]
    handlers: list[Any] = [
        handler
        for logger in loggers
        for handler in (logger.handlers if isinstance(logger, logging.Logger) else ())
        if isinstance(handler, logging.StreamHandler)
    ]
    for handler in handlers:
        # Handlers with a `stream` property look the stream up each time.
        stream = streams.get(id(handler.stream)) if "stream" in vars(handler) else None
        if stream is not None:
            handler.setStream(stream)


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal. A closed stream and None are not."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError, OSError):
        return False
