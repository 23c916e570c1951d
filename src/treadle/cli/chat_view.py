"""`ChatView`: shows a turn while it happens: text as it arrives, the tools that run, what it used."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TextIO

from treadle.cli.exits import OutputError
from treadle.cli.output import answer, why
from treadle.cli.progress import ProgressLines
from treadle.cli.streams import escaped, note
from treadle.events import (
    CompactionFailed,
    Event,
    HistoryCompacted,
    IterationFinished,
    ModelResponded,
    ModelRetried,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.messages import Usage
from treadle.reports.text import (
    format_bound,
    format_count,
    format_dollars,
    format_seconds,
    one_line,
)
from treadle.results import Err, Ok, Paused, Result


class ChatView:
    """An observer of the runs of a chat. Answers are written to a stream, everything else to stderr.

    Args:
        out: the stream.
    """

    discards_on_retry = True
    """It says that the text so far is void."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines = ProgressLines()
        self._started = 0.0
        self._has_text = False
        self._is_in_line = False
        self._held = ""
        self._failure: OSError | None = None

    def begin(self) -> None:
        """Begin a turn."""
        self._started = time.monotonic()
        self._has_text = False

    def __call__(self, event: Event) -> None:
        """Show an event. Those of subagents are not shown."""
        match event:
            case TextDelta():
                self._write(event.text)
            case ModelResponded():
                self._responded(event)
            case ModelRetried():
                self._retried(event)
            case ToolStarted() | ToolFinished() | IterationFinished():
                self._progress(event)
            case HistoryCompacted():
                self.note(_compacted(event))
            case CompactionFailed():
                self.note(f"[the conversation was not summarised: {one_line(event.problem)}]")
            case _:
                pass

    def end(self, result: Result) -> None:
        """Show how a run ended, and what it used.

        Raises:
            OutputError: the answers cannot be written.
            BrokenPipeError: their reader has closed the pipe.
        """
        if isinstance(result, Ok) and result.has_data:
            self._write(answer(result))
        self._end_line()
        if result.stop_reason == "cancelled":
            self.note("[interrupted; what was done so far is kept]")
        elif isinstance(result, Err):
            self.note(f"[{why(result)}]")
        if not isinstance(result, Paused):
            self.note(_used(result, time.monotonic() - self._started))
        if isinstance(self._failure, BrokenPipeError):
            raise self._failure
        if self._failure is not None:
            raise OutputError(f"cannot write the answer: {self._failure.strerror}")

    def note(self, text: str) -> None:
        """Print a text on stderr, after the end of the line of an answer."""
        self._end_line()
        note(text, is_dim=True)

    def _responded(self, event: ModelResponded) -> None:
        if not event.response.is_streamed:
            self._write(event.response.text)
        self._end_line()
        self._has_text = False

    def _retried(self, event: ModelRetried) -> None:
        if self._has_text:
            self.note("[the answer broke off: the text above is void, it starts again]")
        self._has_text = False
        self._progress(event)

    def _progress(self, event: Event) -> None:
        for line in self._lines.lines(event):
            self.note(line.text)

    def _write(self, text: str) -> None:
        if not text:
            return
        text = self._held + text
        self._held = ""
        if text.endswith("\r"):  # a line end, if a line feed follows
            text, self._held = text[:-1], "\r"
        self._put(text)
        self._has_text = True

    def _put(self, text: str) -> None:
        """Write a text now. An observer must not raise, so a failure is raised at the end."""
        if not text or self._failure is not None:
            return
        try:
            self._out.write(escaped(text, self._out))
            self._out.flush()
        except OSError as error:
            self._failure = error
        self._is_in_line = not text.endswith("\n")

    def _end_line(self) -> None:
        self._held = ""
        if self._is_in_line:
            self._put("\n")


def _compacted(event: HistoryCompacted) -> str:
    how = "earlier messages were summarised" if event.is_summarized else "old results were left out"
    tokens = f"about {event.tokens_before:,} to {event.tokens_after:,} tokens"
    return f"[{how} for the model: {tokens}; /history still has all of them]"


def _used(result: Result, seconds: float) -> str:
    parts = [
        format_count(result.iterations, "iteration"),
        format_count(result.tool_calls_count, "tool call"),
        *used(result.usage),
        format_seconds(seconds),
    ]
    return f"({', '.join(parts)})"


def used(usage: Usage) -> Iterator[str]:
    """The tokens and their cost, as far as they are known."""
    if usage.total_tokens:
        counts = f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens"
        yield f"{format_bound(usage)}{counts}"
    if usage.cost is not None:
        yield format_dollars(usage.cost)
