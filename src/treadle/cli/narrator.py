"""Puts the events of a run in words: what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from treadle.events import (
    Event,
    IterationFinished,
    IterationStarted,
    ModelResponded,
    ModelRetried,
    RunFinished,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from treadle.reports.text import counted, one_line, timed


@dataclass(frozen=True, slots=True)
class Line:
    """Something to tell.

    Args:
        text: one line, without control characters.
        style: ``plain``, ``good``, ``bad`` or ``faint``.
        passing: it only tells that something began; where that can be seen, it need not be told.
    """

    text: str
    style: str = "plain"
    passing: bool = False


class Narrator:
    """Follows one run."""

    def __init__(self) -> None:
        self._started = 0.0
        self._tell: Mapping[type, Callable[[Any], Iterator[Line]]] = {
            RunStarted: self._run_started,
            IterationStarted: self._iteration_started,
            ModelRetried: self._model_retried,
            ModelResponded: self._model_responded,
            ToolStarted: self._tool_started,
            ToolFinished: self._tool_finished,
            IterationFinished: self._iteration_finished,
            RunFinished: self._run_finished,
        }

    def lines(self, event: Event) -> Iterator[Line]:
        """What there is to tell of an event; of many there is nothing."""
        tell = self._tell.get(type(event))
        return tell(event) if tell is not None else iter(())

    def _run_started(self, event: RunStarted) -> Iterator[Line]:
        self._started = event.at
        yield from ()

    def _iteration_started(self, event: IterationStarted) -> Iterator[Line]:
        yield Line(f"iteration {event.iteration}: asking the model", passing=True)

    def _model_retried(self, event: ModelRetried) -> Iterator[Line]:
        error = one_line(f"{event.error_type}: {event.error}")
        again = f"again in {timed(event.delay)}"
        yield Line(
            f"iteration {event.iteration}: try {event.attempt} failed, {again}: {error}", "bad"
        )

    def _model_responded(self, event: ModelResponded) -> Iterator[Line]:
        calls, usage = event.response.tool_calls, event.response.usage
        made = counted(len(calls), "tool call") if calls else "an answer"
        tokens = f", {usage.input_tokens} + {usage.output_tokens} tokens" if usage else ""
        took = f"{tokens}, {timed(event.duration)}"
        yield Line(f"iteration {event.iteration}: {made}{took}")

    def _tool_started(self, event: ToolStarted) -> Iterator[Line]:
        yield Line(f"  {_shown(event.call)}", passing=True)

    def _tool_finished(self, event: ToolFinished) -> Iterator[Line]:
        told = f"  {_shown(event.call)}: "
        if event.result.is_error:
            why = one_line(event.result.content)
            yield Line(f"{told}failed in {timed(event.duration)}: {why}", "bad")
        else:
            yield Line(f"{told}done in {timed(event.duration)}", "good")

    def _iteration_finished(self, event: IterationFinished) -> Iterator[Line]:
        """Calls that made no sense have no events of their own: they never started."""
        context = event.context
        for call in context.tool_calls:
            problems = context.validation_errors.get(call.id)
            if problems:
                yield Line(f"  {_shown(call)}: not run: {one_line('; '.join(problems))}", "bad")

    def _run_finished(self, event: RunFinished) -> Iterator[Line]:
        iterations = counted(event.total_iterations, "iteration")
        calls = counted(event.tool_calls_count, "tool call")
        took = timed(event.at - self._started)
        yield Line(f"{event.stop_reason}: {iterations}, {calls}, {took}", "faint")


def _shown(call: Any) -> str:
    """A call as one would write it: its name and its arguments, as the model gave them."""
    return one_line(f"{call.name} {call.arguments}", 80)
