"""A run, made ready: its steps, and who is told of its events."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from treadle.loop.ask import Asker
from treadle.loop.backend import Backend, LLMSendFn
from treadle.loop.handle import EventStream, RunHandle
from treadle.loop.logs import RunLog, is_logged
from treadle.loop.observers import Observer, Observers, for_run, of_completion, of_iterations
from treadle.loop.options import Settings
from treadle.loop.pause import Resumption
from treadle.loop.plant import Around, Plant
from treadle.loop.run import Run
from treadle.pipeline import Steps
from treadle.telemetry import active_telemetry
from treadle.types import OptionError, Result, RunState

if TYPE_CHECKING:
    from treadle.loop.loop import Loop


class Prepared:
    """A run, ready to be driven.

    Args:
        loop: what it is a run of.
        given: messages, as the caller gave them, or a paused run.
        llm_send_fn: the model.
        stream: the handle of a stream; None where it is none.
        tell: an observer beside those of the loop; None is nobody.

    Attributes:
        steps: the run.
        emit: is told its events; None is nobody.
    """

    def __init__(
        self,
        loop: Loop,
        given: Any,
        llm_send_fn: LLMSendFn,
        stream: EventStream | None = None,
        tell: Observer | None = None,
    ) -> None:
        settings = loop.settings
        observers = _observers_of(settings)
        if tell is not None:  # last: it may wait for a reader, and be cancelled there
            observers.append(tell)
        telemetry = active_telemetry(
            settings.tracer_provider,
            settings.meter_provider,
            settings.logger_provider,
            capture_content=settings.capture_content,
            chat_telemetry=settings.chat_telemetry,
        )
        watched = bool(observers) or telemetry is not None or is_logged(logging.INFO)
        handles = [handle for handle in (stream, settings.handle) if handle is not None]
        if len(handles) > 1:
            raise OptionError("handle: a stream is the handle of its run; leave it out")
        handle = handles[0] if handles else None
        plant = _plant(loop, llm_send_fn, watched=watched, handle=handle)
        state = _state_for(settings, given)
        if is_logged(logging.WARNING):
            observers.insert(0, RunLog(state.run_id, state.agent_name))
        run = Run(plant, given, state)
        if handle is not None:
            handle.bind(run)
        self.emit = Observers(observers) if observers else None
        self.steps = run.steps()
        if telemetry is not None:
            self.steps = telemetry.layer(self.steps)
        for layer in reversed(settings.layers):
            self.steps = layer(self.steps)


def prepare_child(
    loop: Loop,
    given: Any,
    llm_send_fn: LLMSendFn,
    state: RunState,
    around: Around,
    *,
    watched: bool,
) -> tuple[Steps[Result], Observers | None]:
    """Make the steps of a run that is a call of another.

    Args:
        loop: what it is a run of.
        given: messages, or a paused run.
        llm_send_fn: its model.
        state: its record.
        around: what it has of the run around it.
        watched: whether anybody listens to that.

    Returns:
        The steps, and who of its own is told of its events.
    """
    settings = loop.settings
    observers = _observers_of(settings)
    plant = _plant(
        loop, llm_send_fn, watched=watched or bool(observers), handle=None, around=around
    )
    steps = Run(plant, given, state).steps()
    for layer in reversed(settings.layers):
        steps = layer(steps)
    return steps, Observers(observers) if observers else None


def _observers_of(settings: Settings) -> list[Observer]:
    given = settings.on_event or ()
    asked = map(for_run, (given,) if callable(given) else given)
    observers = [observer for observer in asked if observer is not None]
    if settings.on_iteration is not None:
        observers.append(of_iterations(settings.on_iteration))
    if settings.on_complete is not None:
        observers.append(of_completion(settings.on_complete))
    return observers


def _state_for(settings: Settings, given: Any) -> RunState:
    if isinstance(given, Resumption):
        if settings.state is not None:
            raise OptionError("state: a paused run has a record of its own; leave it out")
        return given.run_state
    return settings.state if settings.state is not None else RunState(settings.name)


def _plant(
    loop: Loop,
    llm_send_fn: LLMSendFn,
    *,
    watched: bool,
    handle: RunHandle | None,
    around: Around | None = None,
) -> Plant:
    settings = loop.settings
    is_bounded = settings.limits.max_seconds is not None or handle is not None
    return Plant(
        pipeline=loop.pipeline,
        asker=Asker(
            Backend(llm_send_fn, settings.llm_opts),
            [tool.as_openai() for tool in loop.tools.values()],
            settings.max_retries,
            settings.retry_delay,
            watched,
            is_bounded or (around is not None and around.is_bounded),
        ),
        tools=dict(loop.tools),
        resolver=loop.resolver,
        limits=settings.limits,
        loop_threshold=settings.loop_threshold,
        finishes=settings.on_limit == "finish",
        tell_budget=settings.tell_budget,
        price=settings.price,
        watched=watched,
        handle=handle,
        locks=settings.locks,
        breaker=settings.breaker,
        pause_secret=loop.pause_secret,
        around=around,
    )
