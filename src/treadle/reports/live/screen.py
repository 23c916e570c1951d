"""The place on a terminal where a picture is drawn anew, some times a second. Needs rich."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from treadle.reports.live.board import Board
from treadle.reports.live.streams import redirected

FRAMES = 8
"""Pictures a second."""

Picture = Callable[[int, int, str], list[Text] | None]
"""Draws for a width, a height and an encoding; None where it would be the same as before."""

log = logging.getLogger("treadle.reports")


class Screen:
    """Draws a picture in place until it is closed, and puts above it what others write.

    Args:
        stream: where to; it is taken for a terminal.
        picture: what to draw.
        board: what the picture shows.
        transient: wipe the picture away at the end; else the last one stays.
    """

    def __init__(self, stream: TextIO, picture: Picture, board: Board, *, transient: bool) -> None:
        self._picture = picture
        self._board = board
        self._drawn: tuple[object, ...] = ()
        self._lock = threading.Lock()  # held by whoever writes to the terminal
        self._said: deque[tuple[str, str]] = deque()
        self._done = threading.Event()
        self._console = Console(
            file=stream,
            force_terminal=True,
            force_jupyter=False,
            soft_wrap=True,
            markup=False,
            emoji=False,
            highlight=False,
        )
        self._live = Live(
            Group(),
            console=self._console,
            auto_refresh=False,
            transient=transient,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._ticker = threading.Thread(target=self._tick_on, name="treadle-live", daemon=True)
        self._opened = contextlib.ExitStack()

    def open(self) -> None:
        """Begin to draw."""
        try:
            self._opened.enter_context(redirected(self.show, self._board))
            self._opened.callback(self._stop)
            self._live.start()
            self._ticker.start()
            self._opened.callback(self._end_ticks)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Draw a last time, and leave the terminal as it was; a second time it does nothing."""
        try:
            self._opened.close()
        except Exception:  # a terminal that has gone is not what the caller wants to hear of
            log.debug("the live view could not be closed in order", exc_info=True)

    def show(self, text: str, style: str = "") -> None:
        """Put whole lines above the picture.

        It never waits: whoever writes just now writes this as well. For it may be called from anywhere, even
        by what tidies up in the midst of drawing, or by somebody who holds what drawing waits for.

        Args:
            text: the lines, without the last line end. They may have colours, as terminals know them.
            style: how they look, in rich's words.
        """
        self._said.append((text, style))
        self._say()

    def _say(self) -> None:
        encoding = self._console.encoding
        while self._said and self._lock.acquire(blocking=False):
            try:
                while self._said:
                    text, style = self._said.popleft()
                    # What cannot be written would stay in the way of all that comes after it.
                    text = text.encode(encoding, "backslashreplace").decode(encoding)
                    self._console.print(Text.from_ansi(text, style=style))
            finally:
                self._lock.release()

    def tick(self) -> None:
        """Draw, if there is anything new."""
        lines = self._lines()
        with self._lock:
            if self._live.is_started:  # a picture that was made is drawn: it may be the last one
                self._draw(lines)
        self._say()

    def _lines(self) -> list[Text] | None:
        """The picture; whoever makes it must not hold the terminal, since runs wait for it, too."""
        size = self._console.size
        return self._picture(size.width, size.height, self._console.encoding)

    def _draw(self, lines: list[Text] | None) -> None:
        size = self._console.size
        if lines is not None and (size, lines) != self._drawn:
            self._drawn = (size, lines)
            self._live.update(Group(*lines), refresh=True)

    def _tick_on(self) -> None:
        while not self._done.wait(1 / FRAMES):
            try:
                self.tick()
            except Exception:  # the terminal has gone, perhaps; the runs go on without a view
                self._done.set()
                log.debug("the live view ends, since it could not be drawn", exc_info=True)

    def _end_ticks(self) -> None:
        self._done.set()
        self._ticker.join(1.0)  # it may be stuck on a terminal that somebody has stopped

    def _stop(self) -> None:
        """Leave the last picture, or wipe it away; whatever comes in between, the cursor is there again."""
        try:
            with contextlib.suppress(Exception):
                lines = self._lines()
                with self._lock:
                    self._draw(lines)
            with self._lock:
                self._live.stop()
            self._say()
        finally:
            self._console.show_cursor(True)
