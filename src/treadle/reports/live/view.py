"""`LiveView`: shows on a terminal what each run is doing, for how long, and its usage."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TextIO

from treadle.errors import MissingExtraError
from treadle.events import Event
from treadle.reports.live.board import Board, RunObserver
from treadle.reports.live.progress import Clock
from treadle.reports.live.redirect import is_terminal
from treadle.reports.text import escape_controls

if TYPE_CHECKING:
    from rich.text import Text

    from treadle.loop import Observer
    from treadle.reports.live.screen import Screen


class LiveView:
    """Shows runs while they are active: a context manager, and an observer for their loops.

    One view shows any number of runs, in any number of threads and tasks:
    ``with LiveView() as live: Loop(on_event=live, ...).run_sync(...)``. Everything else that is printed or logged
    meanwhile appears above it. It never delays a run for longer than one redraw, and never fails a run.

    It is also a renderable of rich, which shows the current state.

    Args:
        stream: the stream to draw on; None is stderr.
        enabled: whether it shows anything. None: only on a terminal that can move its cursor, and not in CI. A
            disabled view prints nothing and does not need rich.
        transient: erase the view at the end; otherwise its last state stays.
        clock: returns monotonic seconds.

    Raises:
        MissingExtraError: it is enabled, and rich is not installed.
    """

    discards_on_retry = True
    """It shows the length of what is streamed, which starts again at 0."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        enabled: bool | None = None,
        transient: bool = False,
        clock: Clock = time.monotonic,
    ) -> None:
        self.enabled = can_show(stream) if enabled is None else enabled
        self._stream = stream
        self._transient = transient
        self._board = Board(clock)
        self._screen: Screen | None = None
        self._around: TextIO | None = None
        self._direct = self.for_run()
        if self.enabled and importlib.util.find_spec("rich") is None:
            raise MissingExtraError("rich", "pip install 'treadle[cli]'")

    def __enter__(self) -> Self:
        if not self.enabled:
            return self
        if self._screen is not None:
            raise RuntimeError("this view is live already")
        stream = sys.stderr if self._stream is None else self._stream
        board: Board | None = getattr(stream, "live_board", None)
        if board is not None:
            # A terminal has room for one view: the one that is live there shows these runs as well.
            self._board, self._around = board, stream
            self._direct = RunObserver(self._board)
            return self
        from treadle.reports.live.screen import Screen  # noqa: PLC0415 - needs an extra

        screen = Screen(stream, self._lines, self._board, transient=self._transient)
        screen.open()
        self._screen = screen
        return self

    def __exit__(self, *_: object) -> None:
        screen, self._screen, self._around = self._screen, None, None
        if screen is not None:
            screen.close()

    def __call__(self, event: Event) -> None:
        """Handle an event of one run after another. For concurrent runs, use `for_run`."""
        if self._direct is not None:
            self._direct(event)

    def for_run(self) -> Observer | None:
        """An observer of one run; None if the view is disabled, so that no events are made for it."""
        return RunObserver(self._board) if self.enabled else None

    def print(self, text: str, style: str = "") -> None:
        """Print a line above the view. Does nothing if the view is not live.

        Args:
            text: the line. Control characters are escaped.
            style: a style of rich, such as ``green``.
        """
        if self._screen is not None:
            self._screen.show(escape_controls(text), style)
        elif self._around is not None:
            self._around.write(f"{escape_controls(text)}\n")

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Text]:
        """The current state, for rich."""
        yield from self._lines(options.max_width, options.size.height, options.encoding)

    def _lines(self, width: int, height: int, encoding: str) -> list[Text]:
        from treadle.reports.live.table import Table  # noqa: PLC0415 - needs an extra

        board = self._board
        with board.lock:
            return Table(width, height, board.clock(), encoding).lines(board)


def can_show(stream: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a live view can be shown: on a terminal that can move its cursor, and not in CI.

    ``NO_COLOR`` only removes the colours. Without a stream, it is stderr.
    """
    if environ.get("TERM", "").lower() in {"dumb", "unknown"}:
        return False
    if environ.get("CI", "").lower() not in {"", "0", "false", "no"}:
        return False
    return is_terminal(sys.stderr if stream is None else stream)
