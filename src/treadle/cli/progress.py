"""The progress of a run on stderr: a live view on a terminal, plain lines otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TextIO

from treadle.cli.streams import escaped
from treadle.context import Context
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
from treadle.messages import Response, ToolCall
from treadle.reports.live import LiveView, can_show
from treadle.reports.text import (
    format_bound,
    format_count,
    format_dollars,
    format_seconds,
    one_line,
)

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

    def lines(self, event: Event) -> Iterator[Line]:
        """The lines for an event. Most kinds of events have none."""
        match event:
            case RunStarted():
                self._started = event.at
            case ModelRequested():
                yield Line(f"iteration {event.iteration}: calling the model", is_start=True)
            case ModelRetried():
                error = one_line(f"{event.error_type}: {event.error}")
                what = f"attempt {event.attempt} failed, retry in {format_seconds(event.delay)}"
                if event.next_model is not None:
                    what = one_line(f"{event.model} failed, calling {event.next_model}")
                yield Line(f"iteration {event.iteration}: {what}: {error}", _BAD)
            case ModelResponded():
                yield _responded(event)
            case ToolStarted():
                yield Line(f"  {call_line(event.call)}", is_start=True)
            case ToolFinished():
                yield _finished(event)
            case IterationFinished():
                yield from _invalid_calls(event.context)
            case RunFinished():
                iterations = format_count(event.total_iterations, "iteration")
                calls = format_count(event.tool_calls_count, "tool call")
                took = format_seconds(event.at - self._started)
                yield Line(f"{event.stop_reason}: {iterations}, {calls}, {took}", "dim")
            case _:
                pass


def _responded(event: ModelResponded) -> Line:
    return Line(response_line(event.iteration, event.response, event.duration))


def response_line(iteration: int, response: Response, duration: float) -> str:
    """What a response is, what it used, and how long it took, in seconds."""
    calls, usage = response.tool_calls, response.usage
    made = format_count(len(calls), "tool call") if calls else "an answer"
    tokens = ""
    if usage is not None:
        tokens = f", {format_bound(usage)}{usage.input_tokens} + {usage.output_tokens} tokens"
    first, cost = response.time_to_first_token, None if usage is None else usage.cost
    took = format_seconds(duration)
    if first is not None:
        took += f" (first token after {format_seconds(first)})"
    if cost is not None:
        took += f", {format_dollars(cost)}"
    return f"iteration {iteration}: {made}{tokens}, {took}"


def _finished(event: ToolFinished) -> Line:
    call, took = call_line(event.call), format_seconds(event.duration)
    if event.result.is_error:
        return Line(f"  {call}: failed in {took}: {one_line(event.result.content)}", _BAD)
    return Line(f"  {call}: done in {took}", "green")


def _invalid_calls(context: Context) -> Iterator[Line]:
    """The calls that never started, and so have no events."""
    for call in context.tool_calls:
        problems = context.validation_errors.get(call.id)
        if problems:
            yield Line(f"  {call_line(call)}: not run: {one_line('; '.join(problems))}", _BAD)


def call_line(call: ToolCall) -> str:
    """The name and the arguments of a call, as the model wrote them."""
    return one_line(f"{call.name} {call.arguments}", 80)


@contextlib.contextmanager
def make_progress(stream: TextIO, *, quiet: bool = False) -> Generator[OnEvent | None]:
    """Show the progress of one run; a terminal shows a live view if rich is installed.

    Yields:
        The observer for the run, or None if nothing is shown.
    """
    if quiet:
        yield None
        return
    view: LiveView | None = None
    if can_show(stream):
        with contextlib.suppress(MissingExtraError):  # plain lines have the same content
            view = LiveView(stream, transient=True)
    with view or contextlib.nullcontext():
        yield _Progress(stream, view)


class _Progress:
    """An observer that writes lines, and updates the live view, if there is one."""

    discards_on_retry = True
    """It shows no text of the model."""

    def __init__(self, stream: TextIO, view: LiveView | None) -> None:
        self._stream = stream
        self._view = view
        self._described = ProgressLines()

    def __call__(self, event: Event) -> None:
        view = self._view
        if view is not None:
            view(event)
        for line in self._described.lines(event):
            if view is None:
                print(escaped(line.text), file=self._stream, flush=True)
            elif not line.is_start:  # the view, which is below the lines, shows what has started
                view.print(line.text, line.style)
