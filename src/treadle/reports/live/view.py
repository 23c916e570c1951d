"""A live view of runs on a terminal: what each is at, how long it has been, and what it has used."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from treadle.errors import MissingExtraError
from treadle.events import Event
from treadle.reports.live.board import Board, Watcher, ignore
from treadle.reports.live.state import Clock
from treadle.reports.live.streams import is_terminal
from treadle.reports.text import clean

if TYPE_CHECKING:
    from rich.text import Text

    from treadle.loop import Observer
    from treadle.reports.live.screen import Screen


class LiveView:
    """Shows runs while they go on: a context manager, and an observer to give to their loops.

    One view shows any number of runs, in any number of threads and tasks:
    ``with LiveView() as live: Loop(on_event=live, ...).run_sync(...)``. What else is printed and logged while
    it is live goes above it. It never holds a run up for longer than it takes to draw a picture, and never fails
    one.

    It can also be printed by rich, or be a part of what rich draws: it shows how things stand.

    Args:
        stream: where to; None is stderr.
        enabled: whether it shows anything. None is where somebody can see it: on a terminal that is not a dumb
            one, and not in CI. One that is not enabled prints nothing at all, and needs no rich.
        transient: wipe it away at the end; else the last picture stays.
        clock: tells the time, in seconds that never go back.

    Raises:
        MissingExtraError: it is enabled, and rich is not installed.
    """

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
        self._direct: Observer = Watcher(self._board) if self.enabled else ignore
        self._drawn: tuple[object, ...] = ()
        if self.enabled:
            _need_rich()

    def __enter__(self) -> Self:
        if not self.enabled:
            return self
        if self._screen is not None:
            raise RuntimeError("this view is live already")
        stream = sys.stderr if self._stream is None else self._stream
        board: Board | None = getattr(stream, "live_board", None)
        if board is not None:
            # A terminal has room for one view: that which is live there shows these runs too.
            self._board, self._around = board, stream
            self._direct = Watcher(self._board)
            return self
        from treadle.reports.live.screen import Screen  # noqa: PLC0415 - needs an extra

        screen = Screen(stream, self._picture, self._board, transient=self._transient)
        screen.open()
        self._screen = screen
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        screen, self._screen, self._around = self._screen, None, None
        if screen is not None:
            screen.close()

    def __call__(self, event: Event) -> None:
        """Take in an event. Runs one after another can be told like this; `for_run` tells them apart."""
        self._direct(event)

    def for_run(self) -> Observer | None:
        """An observer of one run; None where the view is quiet, so that no event is made for it."""
        return Watcher(self._board) if self.enabled else None

    def print(self, text: str, style: str = "") -> None:
        """Print a line above the view; nothing where it is not live.

        Args:
            text: is made safe.
            style: how it looks, in rich's words, such as ``green``.
        """
        if self._screen is not None:
            self._screen.show(clean(text), style)
        elif self._around is not None:
            self._around.write(f"{clean(text)}\n")

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Text]:
        """How things stand, for rich to draw."""
        yield from self._lines(options.max_width, options.size.height, options.encoding)

    def _picture(self, width: int, height: int, encoding: str) -> list[Text] | None:
        """The picture where it may be another one than before."""
        board = self._board
        # While nothing goes on, and nothing comes, there is nothing to draw.
        state = (board.changes, width, height)
        if state == self._drawn and not board.active:
            return None
        self._drawn = state
        return self._lines(width, height - 1, encoding)

    def _lines(self, width: int, height: int, encoding: str) -> list[Text]:
        from treadle.reports.live.table import Table  # noqa: PLC0415 - needs an extra

        board = self._board
        with board.lock:
            return Table(width, height, board.clock(), encoding).lines(board)


_DUMB = frozenset({"dumb", "unknown"})
_OFF = frozenset({"", "0", "false", "no"})


def can_show(stream: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether somebody can see a live view: a terminal that is not a dumb one, and not in CI.

    ``NO_COLOR`` says nothing of it: the view has no colours then.

    Args:
        stream: where to; None is stderr.
        environ: the environment.
    """
    if environ.get("TERM", "").lower() in _DUMB or environ.get("CI", "").lower() not in _OFF:
        return False
    return is_terminal(sys.stderr if stream is None else stream)


def _need_rich() -> None:
    if importlib.util.find_spec("rich") is None:
        raise MissingExtraError("rich", "pip install 'treadle[cli]'")
