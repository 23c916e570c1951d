"""The middleware of a run: it handles each event, and makes the span of a call the current one in that call.

Code that runs between effects, such as a plain stage, finds the span of its run as the current one.
Listeners find the span of the program around the run, never one of treadle's.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from opentelemetry.context import Context, attach, detach, get_current

from treadle.effects import (
    Bounded,
    Call,
    Effect,
    Emit,
    Parallel,
    Reporter,
    Steps,
    intercept,
    is_awaitable,
    is_thrown_here,
    map_nested,
    with_reporter,
)
from treadle.effects.coroutines import Frameless, coroutine_of
from treadle.events import RunStarted
from treadle.telemetry.handlers import handle_event, innermost
from treadle.telemetry.run_telemetry import RunTelemetry

R = TypeVar("R")

log = logging.getLogger("treadle.telemetry")


def observe(steps: Steps[R], run: RunTelemetry) -> Steps[R]:
    """Wrap the steps of a run, so that its telemetry is complete on every exit.

    Args:
        steps: a generator of effects that has not been started.
        run: the telemetry of the run; updated while the steps run.
    """
    try:
        return (yield from _Branch(run, run).wrap(steps))
    finally:
        _safely(run.abandon, time.time())  # nothing is open if the last event was emitted


def _safely(fn: Callable[..., Any], *args: Any) -> None:
    """Call a function; log what an exporter or a span processor raises, and continue the run."""
    try:
        fn(*args)
    except Exception:
        log.exception("telemetry failed; the run continues")


class _Branch:
    """Steps that run one after another, and the runs that they belong to: a subagent may start and end in them."""

    __slots__ = ("_root", "_runs")

    def __init__(self, root: RunTelemetry, run: RunTelemetry) -> None:
        self._root = root  # the outermost run: events of subagents arrive there, with their path
        self._runs = [run]

    def wrap(self, steps: Steps[R]) -> Steps[R]:
        return intercept(steps, self._change, self._resume)

    def _run(self) -> RunTelemetry:
        """The innermost run that has not ended."""
        runs = self._runs
        while len(runs) > 1 and runs[-1].agent is None:
            runs.pop()
        return runs[-1]

    def _resume(self, advance: Callable[..., Any], *value: Any) -> Any:
        runs = self._runs
        agent = (runs[0] if len(runs) == 1 else self._run()).agent
        if agent is None:
            return advance(*value)
        token = attach(agent.context)
        try:
            return advance(*value)
        finally:
            detach(token)

    def _change(self, effect: Effect) -> Effect:
        if isinstance(effect, Emit):
            _safely(handle_event, self._root, effect.event)
            run, event = innermost(self._root, effect.event)
            if isinstance(event, RunStarted) and run is not self._runs[-1]:
                self._runs.append(run)  # a subagent starts here
            return effect
        if isinstance(effect, Call):
            return self._in_span(effect)
        if not isinstance(effect, (Parallel, Bounded)):
            return effect
        # A single branch is performed in sequence with these steps, so a run may start or end in it.
        if isinstance(effect, Parallel) and len(effect.steps) == 1:
            return map_nested(effect, self.wrap)
        return map_nested(effect, lambda steps: _Branch(self._root, self._run()).wrap(steps))

    def _in_span(self, call: Call) -> Call:
        """Copy a call so that its span is the current one in it, and that what it emits is handled."""
        context = self._run().context_for(call.label, call.key)
        if context is None:
            return call
        copy = call.replace(fn=_in_context(context, call.fn))
        return with_reporter(copy, functools.partial(_HandlingReporter, self._root))


class _HandlingReporter:
    """The reporter of a call: handles the events that the call emits, and passes them on.

    It is created where the call runs, before the span of the call becomes the current one there.
    """

    __slots__ = ("_emit", "_root", "now")

    def __init__(self, root: RunTelemetry, reporter: Reporter) -> None:
        self._root = root
        self._emit = _in_context(get_current(), reporter.emit)
        self.now = reporter.now

    def emit(self, event: Any, listener: Callable[[Any], Any] | None = None) -> Any:
        """Hand an event to the listeners of the run."""
        emitted = self._emit(event, listener)  # raises if the call was abandoned: the event is void
        if listener is None:
            _safely(handle_event, self._root, event)
        return emitted


def _in_context(context: Context, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it runs in a context, in whichever thread or task it is called.

    An awaitable that it returns is awaited in that context, too.
    """

    def run(*args: Any) -> Any:
        token = attach(context)
        try:
            value = fn(*args)
        finally:
            detach(token)
        if not is_awaitable(value):
            return value
        inner = coroutine_of(value)
        return Frameless(inner, _attached(inner, context))

    return run


def _attached(inner: Coroutine[Any, Any, Any], context: Context) -> Generator[Any, Any, Any]:
    """Await something with a context attached from its first step to its last.

    It uses the context variables of its task and not a copy of them, so that telemetry does not change which
    variables the awaitable sees.
    """
    token = attach(context)
    try:
        value = yield from inner.__await__()
    except BaseException as error:
        # One that is dropped is closed in a context in which this was not attached.
        if not (isinstance(error, GeneratorExit) and is_thrown_here(error)):
            detach(token)
        raise
    detach(token)
    return value
