"""The area of a terminal that is redrawn several times a second. Needs rich."""

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
from treadle.reports.live.redirect import redirected

FRAMES = 8
"""Maximum number of redraws a second."""

Picture = Callable[[int, int, str], list[Text]]
"""Returns the lines for a width, a height and an encoding."""

log = logging.getLogger("treadle.reports")


class Screen:
    """Redraws lines in place until it is closed, and prints other output above them.

    If it is ``transient``, the lines are erased at the end; otherwise the last ones stay.
    """

    def __init__(self, stream: TextIO, picture: Picture, board: Board, *, transient: bool) -> None:
        self._picture = picture
        self._board = board
        self._drawn: tuple[object, ...] = ()
        self._lock = threading.Lock()  # held while writing to the terminal
        self._output: deque[tuple[str, str]] = deque()
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
        """Start drawing."""
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
        """Draw a last time and restore the terminal. Calling this again does nothing."""
        try:
            self._opened.close()
        except Exception:  # a lost terminal must not fail the caller
            log.debug("closing the live view failed", exc_info=True)

    def show(self, text: str, style: str = "") -> None:
        """Print lines above the drawn area.

        This never blocks: if another thread is writing, that thread writes these lines as well. It may be called
        by a finalizer that runs during drawing, or while the caller holds a lock that drawing waits for. ANSI
        colours of the text are kept.
        """
        self._output.append((text, style))
        self._flush()

    def _flush(self) -> None:
        encoding = self._console.encoding
        while self._output and self._lock.acquire(blocking=False):
            try:
                while self._output:
                    text, style = self._output.popleft()
                    # Text that cannot be encoded would block everything queued after it.
                    text = text.encode(encoding, "backslashreplace").decode(encoding)
                    self._console.print(Text.from_ansi(text, style=style))
            finally:
                self._lock.release()

    def tick(self) -> None:
        """Draw if anything has changed."""
        size = self._console.size
        # Without the terminal's lock: the picture waits for runs, and runs print.
        lines = self._picture(size.width, size.height - 1, self._console.encoding)
        with self._lock:
            # Always draw what was made: it may be the last state.
            if self._live.is_started and (size, lines) != self._drawn:
                self._drawn = (size, lines)
                self._live.update(Group(*lines), refresh=True)
        self._flush()

    def _tick_on(self) -> None:
        while not self._done.wait(1 / FRAMES):
            try:
                self.tick()
            except Exception:  # such as a lost terminal; the runs continue without a view
                self._done.set()
                log.debug("the live view stops: drawing failed", exc_info=True)

    def _end_ticks(self) -> None:
        self._done.set()
        self._ticker.join(1.0)  # it may be blocked by a stopped terminal

    def _stop(self) -> None:
        """Draw the last state or erase it. The cursor is shown again in any case."""
        try:
            with contextlib.suppress(Exception):
                self.tick()
            with self._lock:
                self._live.stop()
            self._flush()
        finally:
            self._console.show_cursor(True)
