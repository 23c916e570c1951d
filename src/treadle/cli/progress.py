"""The progress of a run on stderr: live on a terminal, plain lines in a pipe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import TextIO

from treadle.cli.narrator import Narrator
from treadle.errors import MissingExtraError
from treadle.events import Event
from treadle.reports.live import LiveView, can_show

OnEvent = Callable[[Event], None]

_STYLES = {"plain": "", "good": "green", "bad": "yellow", "faint": "dim"}


def make_progress(stream: TextIO, *, quiet: bool = False) -> AbstractContextManager[OnEvent | None]:
    """Show the progress of one run.

    Args:
        stream: where to. A terminal is shown a live view if rich is installed.
        quiet: show nothing.

    Returns:
        A context manager of the observer to give to the run; of None where there is to be none.
    """
    if quiet:
        return contextlib.nullcontext()
    if can_show(stream):
        with contextlib.suppress(MissingExtraError):  # plain lines tell the same
            return _live(LiveView(stream, transient=True))
    return contextlib.nullcontext(_plain(stream))


def _plain(stream: TextIO) -> OnEvent:
    narrator = Narrator()

    def on_event(event: Event) -> None:
        for line in narrator.lines(event):
            print(line.text, file=stream, flush=True)

    return on_event


@contextlib.contextmanager
def _live(view: LiveView) -> Generator[OnEvent]:
    """Lines of what happened, and below them a view of what is under way, which goes when the run is over."""
    narrator = Narrator()

    def on_event(event: Event) -> None:
        view(event)
        for line in narrator.lines(event):
            if not line.passing:
                view.print(line.text, _STYLES[line.style])

    with view:
        yield on_event
