"""What others write while a view is live: it goes above the picture, line by line."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TextIO

from treadle.reports.live.board import Board

Show = Callable[[str], None]
"""Puts whole lines above the picture."""


class Above:
    """Stands for a stream; what is written to it goes above a picture once its line is whole.

    Args:
        stream: what it stands for, and is like in all else.
        show: puts lines above the picture.
        board: what the picture shows.
    """

    def __init__(self, stream: TextIO, show: Show, board: Board) -> None:
        self.live_board = board
        self._stream = stream
        self._show = show
        self._begun: dict[int, str] = {}
        self._is_over = False

    def write(self, text: str) -> int:
        """Take in text; what comes after the last line end waits for the next, thread by thread."""
        if self._is_over:
            return self._stream.write(text)
        thread = threading.get_ident()
        whole, end, rest = text.rpartition("\n")
        begun = self._begun.pop(thread, "")
        if end:
            self._show(begun + whole)
        else:
            rest = begun + text
        if rest:
            self._begun[thread] = rest
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Nothing yet: half a line could not be continued above the picture."""
        if self._is_over:
            self._stream.flush()

    def finish(self) -> None:
        """Write what waits for its line's end; from here on all goes straight to the stream."""
        self._is_over = True
        begun, self._begun = self._begun, {}
        if begun:
            self._stream.write("".join(begun.values()))
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def redirected(show: Show, board: Board) -> Generator[None]:
    """Have what is printed and logged go above a picture, as far as it would go to a terminal.

    What goes to a file or a pipe goes there still.

    Args:
        show: puts lines above the picture.
        board: what the picture shows.
    """
    stdout, stderr = sys.stdout, sys.stderr
    originals = {id(stream): stream for stream in (stdout, stderr) if is_terminal(stream)}
    above: dict[int, Any] = {key: Above(stream, show, board) for key, stream in originals.items()}
    try:
        sys.stdout = above.get(id(stdout), stdout)
        sys.stderr = above.get(id(stderr), stderr)
        _hand_over(above)
        yield
    finally:
        # Where somebody has put another stream there in the meantime, it stays.
        below = {id(above[key]): stream for key, stream in originals.items()}
        sys.stdout = below.get(id(sys.stdout), sys.stdout)
        sys.stderr = below.get(id(sys.stderr), sys.stderr)
        _hand_over(below)
        for one in above.values():
            one.finish()


def _hand_over(streams: Mapping[int, Any]) -> None:
    """Have handlers of logs write to other streams, by the ids of those that they write to."""
    for handler in _handlers():
        stream = streams.get(id(handler.stream))
        if stream is not None:
            handler.setStream(stream)


def _handlers() -> list[logging.StreamHandler[Any]]:
    """The handlers that write to a stream which they were given, of all loggers."""
    root = logging.getLogger()
    found: dict[logging.StreamHandler[Any], None] = {}
    for logger in (root, *list(root.manager.loggerDict.values())):
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            # A property instead of an attribute looks the stream up each time, and needs no help.
            if isinstance(handler, logging.StreamHandler) and "stream" in vars(handler):
                found[handler] = None  # pyright: ignore[reportUnknownArgumentType]
    return list(found)


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal; one that is closed, or none at all, is not."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError, OSError):
        return False
