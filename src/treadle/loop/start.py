"""Starting a run: its state and services, and its listeners."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from treadle.context import RunContext
from treadle.effects import Steps
from treadle.errors import OptionError
from treadle.limits import Budget
from treadle.loop.event_stream import EventStream
from treadle.loop.handle import RunHandle
from treadle.loop.logs import RunLog, is_logged
from treadle.loop.observers import (
    Deliver,
    Observer,
    Observers,
    for_run,
    of_completion,
    of_iterations,
)
from treadle.loop.options import Settings
from treadle.loop.pause import PausedRun
from treadle.loop.run import Run, RunConfig
from treadle.model import Model, ModelClient
from treadle.results import Result
from treadle.run_state import RunState
from treadle.telemetry import active_telemetry
from treadle.tools import Locks, ToolCallTable

if TYPE_CHECKING:
    from treadle.loop.loop import Loop


class Missing:
    """The default of an argument that a run needs."""

    def __repr__(self) -> str:
        return "<required>"


MISSING: Any = Missing()


def start_run(
    loop: Loop[Any],
    given: Any,
    llm_send_fn: Model | None,
    stream: EventStream[Any] | None = None,
) -> tuple[Steps[Result], Deliver | None]:
    """Make a run, ready to be driven.

    Args:
        loop: the loop.
        given: the messages of the caller, or a paused run.
        llm_send_fn: the model; None means that of the loop.
        stream: the handle of a stream, which receives the events too; None if there is none.

    Returns:
        The steps of the run, and the function to which a driver passes events; None without listeners.

    Raises:
        OptionError: there are no messages or there is no model, or an option does not fit this run.
    """
    settings = loop.settings
    if given is MISSING and settings.journal is None:
        raise OptionError(
            "messages: there are none; pass a text, or a list of chat messages, as the first argument of the run"
        )
    observers = _observers_of(settings)
    if stream is not None:  # last: it may wait for a reader, and be cancelled there
        observers.append(stream.put)
        if settings.handle is not None:
            raise OptionError("handle: a stream is the handle of its run; leave it out")
    telemetry = active_telemetry(settings.telemetry)
    handle = stream or settings.handle
    has_listeners = bool(observers) or telemetry is not None or is_logged(logging.INFO)
    streams_to_user = stream is not None or _shows_text(settings)
    numbers = [given.last_seq if isinstance(given, PausedRun) else 0]

    def make(given: Any, state: RunState) -> Run:
        run = make_run(loop, given, llm_send_fn, state, handle=handle, numbers=numbers)
        run.run.has_listeners = has_listeners
        run.run.streams_to_user = streams_to_user
        return run

    if settings.journal is None:
        state = _state_for(settings, given)
        run_id = state.run_id
        run = make(given, state)
        if handle is not None:
            handle.bind(run)
        steps = _recorded(run.steps(), observers, loop, run)
    else:
        from treadle.loop import journaled  # noqa: PLC0415 - few runs need it

        journaled.check_options(loop, given)
        handle = handle or RunHandle()
        has_listeners = True  # so that the effects of a run do not depend on its listeners
        run_id = settings.run_id or RunState().run_id
        steps = journaled.steps_of(loop, run_id, given, make, handle)
    if is_logged(logging.WARNING):
        observers.insert(0, RunLog(run_id, settings.name))
    if telemetry is not None:
        steps = telemetry.middleware(steps)
    deliver = Observers(observers, numbers).deliver if observers else None
    return _wrapped(steps, settings), deliver


def make_run(
    loop: Loop[Any],
    given: Any,
    llm_send_fn: Model | None,
    state: RunState,
    *,
    handle: RunHandle | None,
    numbers: list[int],
) -> Run:
    """Make a run of messages, or of a paused run.

    Args:
        loop: the loop.
        given: the messages, or the paused run.
        llm_send_fn: the model; None means that of the loop.
        state: its state.
        handle: will be attached to it; None if there is none.
        numbers: a list with the number of the latest event.
    """
    context = _run_context(loop, numbers, llm_send_fn, state, handle)
    return Run(_config_of(loop), context, given, handle)


def start_subagent(
    loop: Loop[Any],
    given: Any,
    llm_send_fn: Model | None,
    state: RunState,
    *,
    parent: RunContext,
    call_id: str,
    handle: RunHandle | None = None,
) -> tuple[Steps[Result], Deliver | None]:
    """Make the run of a subagent, which is a call of another run.

    Args:
        loop: the loop of the subagent.
        given: messages, or a paused run.
        llm_send_fn: its model.
        state: its state.
        parent: the state and services of the run that makes the call.
        call_id: the id of the call.
        handle: may end it, if it is driven apart from the outer run; None if there is none.

    Returns:
        The steps, and the listeners of the subagent; None if it has none.
    """
    settings = loop.settings
    observers = _observers_of(settings)
    numbers = [given.last_seq if isinstance(given, PausedRun) else 0]
    context = _run_context(
        loop, numbers, llm_send_fn, state, handle, parent=parent, call_id=call_id
    )
    context.has_listeners = parent.has_listeners or bool(observers)
    context.streams_to_user = parent.streams_to_user or _shows_text(settings)
    run = Run(_config_of(loop), context, given, handle)
    if handle is not None:
        handle.bind(run)
    steps = run.steps()
    deliver = Observers(observers, numbers).deliver if observers else None
    return _wrapped(steps, settings), deliver


def _recorded(
    steps: Steps[Result], observers: list[Observer], loop: Loop[Any], run: Run
) -> Steps[Result]:
    """The steps of a run, wrapped by those observers that record what becomes of them."""
    for observer in observers:
        middleware_of = getattr(type(observer), "middleware_of", None)
        if callable(middleware_of):
            from treadle.loop.run_start import start_of  # noqa: PLC0415 - which imports this module

            middleware: Any = middleware_of(observer, start_of(loop, run))
            steps = middleware(steps)
    return steps


def _wrapped(steps: Steps[Result], settings: Settings) -> Steps[Result]:
    for index in reversed(range(len(settings.middleware))):
        middleware = settings.middleware[index]
        steps = middleware(steps)
        if not isinstance(steps, Generator):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                f"middleware[{index}]: expected it to take the steps of the run and return steps, which are a "
                f"generator; it returned {type(steps).__name__}"
            )
    return steps


def _shows_text(settings: Settings) -> bool:
    """Whether an observer may show text that it would not take back when the model is asked again."""
    given = settings.on_event or ()
    observers = (given,) if callable(given) else given
    return not all(getattr(one, "discards_on_retry", False) is True for one in observers)


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
    if isinstance(given, PausedRun):
        if settings.state is not None:
            raise OptionError("state: a paused run continues in its own state; leave this out")
        return given.run_state
    if settings.state is None:
        if settings.run_id is None:
            return RunState(settings.name)
        return RunState(settings.name, settings.run_id)
    if settings.run_id is not None:
        raise OptionError("run_id: the given state has an id; leave this out")
    return settings.state


def _config_of(loop: Loop[Any]) -> RunConfig:
    settings = loop.settings
    return RunConfig(
        loop.pipeline,
        loop.tools,
        settings.loop_threshold,
        settings.limits.on_limit == "finish",
        settings.pauses.key,
        settings.session,
    )


def _options_of(loop: Loop[Any]) -> Mapping[str, Any]:
    """The options of every request of a loop."""
    options = loop.settings.llm_opts
    return options if loop.output is None else {**options, **loop.output.options}


def _run_context(
    loop: Loop[Any],
    numbers: list[int],
    llm_send_fn: Model | None,
    state: RunState,
    handle: RunHandle | None,
    *,
    parent: RunContext | None = None,
    call_id: str = "",
) -> RunContext:
    settings = loop.settings
    locks = settings.locks
    held: Mapping[str, str] = {}
    if parent is not None and locks is None:  # keys of another table are not held here
        locks = parent.locks
        held = parent.in_flight.held_locks.get(call_id, parent.held_locks)
    limits = settings.limits
    cost_of = limits.cost_of
    if cost_of is not None:  # events have the limits, as data
        limits = dataclasses.replace(limits, cost_of=None)
    elif parent is not None:
        cost_of = parent.cost_of
    return RunContext(
        state=state,
        provides=loop.pipeline.provides,
        numbers=numbers,
        budget=Budget(
            limits,
            None if parent is None else parent.budget,
            settings.name,
            state.agent_name,
        ),
        in_flight=ToolCallTable(can_cancel=handle is not None),
        locks=Locks() if locks is None else locks,
        held_locks=held,
        breaker=settings.breaker,
        resolver=loop.resolver,
        catalog=loop.catalog,
        model=ModelClient(loop.model_for(llm_send_fn), _options_of(loop)),
        instructions=settings.instructions,
        show_budget=limits.show_budget,
        deps=settings.deps,
        asks_unknown=settings.pauses.on_unknown == "ask",
        output=loop.output,
        cost_of=cost_of,
    )
