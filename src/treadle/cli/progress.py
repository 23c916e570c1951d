"""The progress of a run on stderr: live on a terminal, plain lines in a pipe."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TextIO

from treadle.cli.narrator import Narrator
from treadle.types import Event

OnEvent = Callable[[Event], None]

_STYLES = {"plain": "", "good": "green", "bad": "yellow", "faint": "dim"}


def make_progress(stream: TextIO, *, quiet: bool = False) -> AbstractContextManager[OnEvent | None]:
    """Show the progress of one run.

    Args:
        stream: where to. A terminal is shown live lines if rich is installed.
        quiet: show nothing.

    Returns:
        A context manager of the observer to give to the run; of None where there is to be none.
    """
    if quiet:
        return contextlib.nullcontext()
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        with contextlib.suppress(ImportError):  # rich is an extra; plain lines tell the same
            return _live(stream)
    return contextlib.nullcontext(_plain(stream))


def _plain(stream: TextIO) -> OnEvent:
    narrator = Narrator()

    def on_event(event: Event) -> None:
        for line in narrator.lines(event):
            print(line.text, file=stream, flush=True)

    return on_event


def _live(stream: TextIO) -> AbstractContextManager[OnEvent]:
    """Lines of what happened, and below them one that says what is under way, and for how long."""
    from rich.console import Console  # noqa: PLC0415 - an extra
    from rich.live import Live  # noqa: PLC0415 - an extra
    from rich.spinner import Spinner  # noqa: PLC0415 - an extra
    from rich.text import Text  # noqa: PLC0415 - an extra

    console = Console(file=stream, highlight=False, soft_wrap=True)
    narrator, spinner = Narrator(), Spinner("dots")

    def shown() -> Any:
        # Text, not markup: what a model writes has no styles to set
        spinner.update(text=Text(narrator.under_way, no_wrap=True, overflow="ellipsis"))
        return spinner

    def on_event(event: Event) -> None:
        for line in narrator.lines(event):
            if not line.passing:
                console.print(Text(line.text, style=_STYLES[line.style]))

    @contextlib.contextmanager
    def watching() -> Generator[OnEvent]:
        with Live(get_renderable=shown, console=console, transient=True, refresh_per_second=8):
            yield on_event

    return watching()
