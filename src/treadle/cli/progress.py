"""The progress of a run on stderr: a live view on a terminal, plain lines otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TextIO

from treadle.errors import MissingExtraError
from treadle.events import (
    Event,
    IterationFinished,
    ModelRequested,
    ModelResponded,
    ModelRetried,
    RunFinished,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from treadle.reports.live import LiveView, can_show
from treadle.reports.text import format_count, format_seconds, one_line

OnEvent = Callable[[Event], None]
_BAD = "yellow"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of progress.

    Args:
        text: one line, without control characters.
        style: its style in a live view, as rich names it.
        is_start: it reports the start of something, which a live view shows already.
    """

    text: str
    style: str = ""
    is_start: bool = False


class ProgressLines:
    """Describes the events of one run."""

    def __init__(self) -> None:
        self._started = 0.0
        self._handlers: Mapping[type, Callable[[Any], Iterator[Line]]] = {
            ModelRequested: self._model_requested,
            ModelRetried: self._model_retried,
            ModelResponded: self._model_responded,
            ToolStarted: self._tool_started,
            ToolFinished: self._tool_finished,
            IterationFinished: self._iteration_finished,
            RunFinished: self._run_finished,
        }

    def lines(self, event: Event) -> Iterator[Line]:
        """The lines for an event. Most kinds of events have none."""
        if isinstance(event, RunStarted):
            self._started = event.at
        describe = self._handlers.get(type(event))
        return describe(event) if describe is not None else iter(())

    def _model_requested(self, event: ModelRequested) -> Iterator[Line]:
        yield Line(f"iteration {event.iteration}: calling the model", is_start=True)

    def _model_retried(self, event: ModelRetried) -> Iterator[Line]:
        error = one_line(f"{event.error_type}: {event.error}")
        retry = f"retry in {format_seconds(event.delay)}"
        yield Line(
            f"iteration {event.iteration}: attempt {event.attempt} failed, {retry}: {error}", _BAD
        )

    def _model_responded(self, event: ModelResponded) -> Iterator[Line]:
        calls, usage = event.response.tool_calls, event.response.usage
        made = format_count(len(calls), "tool call") if calls else "an answer"
        tokens = f", {usage.input_tokens} + {usage.output_tokens} tokens" if usage else ""
        took = format_seconds(event.duration)
        yield Line(f"iteration {event.iteration}: {made}{tokens}, {took}")

    def _tool_started(self, event: ToolStarted) -> Iterator[Line]:
        yield Line(f"  {_shown(event.call)}", is_start=True)

    def _tool_finished(self, event: ToolFinished) -> Iterator[Line]:
        call, took = _shown(event.call), format_seconds(event.duration)
        if event.result.is_error:
            yield Line(f"  {call}: failed in {took}: {one_line(event.result.content)}", _BAD)
        else:
            yield Line(f"  {call}: done in {took}", "green")

    def _iteration_finished(self, event: IterationFinished) -> Iterator[Line]:
        """Report invalid calls, which have no events because they never started."""
        context = event.context
        for call in context.tool_calls:
            problems = context.validation_errors.get(call.id)
            if problems:
                yield Line(f"  {_shown(call)}: not run: {one_line('; '.join(problems))}", _BAD)

    def _run_finished(self, event: RunFinished) -> Iterator[Line]:
        iterations = format_count(event.total_iterations, "iteration")
        calls = format_count(event.tool_calls_count, "tool call")
        took = format_seconds(event.at - self._started)
        yield Line(f"{event.stop_reason}: {iterations}, {calls}, {took}", "dim")


def _shown(call: Any) -> str:
    """The name and the arguments of a call, as the model wrote them."""
    return one_line(f"{call.name} {call.arguments}", 80)


def make_progress(stream: TextIO, *, quiet: bool = False) -> AbstractContextManager[OnEvent | None]:
    """Show the progress of one run; a terminal shows a live view if rich is installed.

    Returns:
        A context manager that returns the observer for the run, or None if nothing is shown.
    """
    if quiet:
        return contextlib.nullcontext()
    if can_show(stream):
        with contextlib.suppress(MissingExtraError):  # plain lines have the same content
            return _live(LiveView(stream, transient=True))
    return contextlib.nullcontext(_plain(stream))


def _plain(stream: TextIO) -> OnEvent:
    described = ProgressLines()

    def on_event(event: Event) -> None:
        for line in described.lines(event):
            print(line.text, file=stream, flush=True)

    return on_event


@contextlib.contextmanager
def _live(view: LiveView) -> Generator[OnEvent]:
    """Lines of what has happened, and below them a live view, which is erased at the end."""
    described = ProgressLines()

    def on_event(event: Event) -> None:
        view(event)
        for line in described.lines(event):
            if not line.is_start:
                view.print(line.text, line.style)

    with view:
        yield on_event
