"""Starting a run: its state and services, and its listeners."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any

from treadle.context import EventCounter, RunServices
from treadle.effects import Steps
from treadle.errors import OptionError
from treadle.loop.built_loop import BuiltLoop
from treadle.loop.event_stream import EventStream
from treadle.loop.handle import RunHandle
from treadle.loop.logs import RunLog, is_logged
from treadle.loop.observers import Deliver, Observer, Observers, for_run, of_callbacks
from treadle.loop.options import Settings
from treadle.loop.pause import PausedRun
from treadle.loop.run import Run
from treadle.model import Model
from treadle.results import Result
from treadle.run_state import RunState
from treadle.telemetry import active_telemetry

MISSING: Any = ...
"""The default of the messages, which a run needs."""


def start_run(
    loop: BuiltLoop, given: Any, llm_send_fn: Model | None, stream: EventStream[Any] | None = None
) -> tuple[Steps[Result], Deliver | None]:
    """Make a run of messages or of a paused run; a stream receives its events, too.

    Returns its steps, and the function to which a driver passes events; None without listeners.
    """
    settings, journal = loop.settings, loop.settings.journal
    if given is MISSING and journal is None:
        raise OptionError(
            "messages: there are none; pass a text, or a list of chat messages, as the first argument of the run"
        )
    observers, streams = _observers_of(settings)
    if stream is not None:  # last: it may wait for a reader, and be cancelled there
        observers.append(stream.put)
        if settings.handle is not None:
            raise OptionError("handle: a stream is the handle of its run; leave it out")
    telemetry, counter = active_telemetry(settings.telemetry), EventCounter()
    is_heard = bool(observers) or telemetry is not None or is_logged(logging.INFO)
    handle, is_resumable = stream or settings.handle, journal is not None
    if handle is None and is_resumable:
        handle = RunHandle()

    def make(
        given: Any, state: RunState, streams_to_user: bool = stream is not None or streams
    ) -> Run:
        # With a journal as with listeners, so that the effects of a run do not depend on them.
        return Run(
            loop, given, llm_send_fn, state,
            handle=handle, counter=counter, has_listeners=is_heard or is_resumable,
            streams_to_user=streams_to_user, is_resumable=is_resumable,
        )  # fmt: skip

    if journal is None:
        run = make(given, _state_for(settings, given))
        run_id, steps = run.state.run_id, _recorded(run, loop, observers)
    else:
        run_id = settings.run_id or RunState().run_id
        steps = journal.steps(loop, run_id, given, make, handle)
    if is_logged(logging.WARNING):
        observers.insert(0, RunLog(run_id, settings.name))
    if telemetry is not None:
        steps = telemetry.middleware(steps)
    deliver = Observers(observers, counter).deliver if observers else None
    return _wrapped(steps, settings), deliver


def start_subagent(
    loop: BuiltLoop,
    given: Any,
    state: RunState,
    *,
    parent: RunServices,
    call_id: str,
    handle: RunHandle | None = None,
) -> tuple[Steps[Result], Deliver | None]:
    """Make the run of a subagent, which is a call of another run, as `start_run` makes one."""
    (observers, streams), counter = _observers_of(loop.settings), EventCounter()
    run = Run(
        loop, given, None, state,
        handle=handle, counter=counter, has_listeners=parent.has_listeners or bool(observers),
        streams_to_user=parent.streams_to_user or streams, parent=parent, call_id=call_id,
    )  # fmt: skip
    deliver = Observers(observers, counter).deliver if observers else None
    return _wrapped(run.steps(), loop.settings), deliver


def _recorded(run: Run, loop: BuiltLoop, observers: list[Observer]) -> Steps[Result]:
    """The steps of a run, wrapped by the observers that record their outcome."""
    steps = run.steps()
    for observer in observers:
        middleware_of = getattr(type(observer), "middleware_of", None)
        if callable(middleware_of):
            middleware: Any = middleware_of(observer, loop, run)
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


def _observers_of(settings: Settings) -> tuple[list[Observer], bool]:
    """The observers of a run; and whether one may show text that it does not discard at a retry."""
    given = settings.on_event or ()
    given = (given,) if callable(given) else given
    streams = not all(getattr(one, "discards_on_retry", False) is True for one in given)
    observers = [one for each in given if (one := for_run(each)) is not None]
    if settings.on_iteration is not None or settings.on_complete is not None:
        observers.append(of_callbacks(settings.on_iteration, settings.on_complete))
    return observers, streams


def _state_for(settings: Settings, given: Any) -> RunState:
    if isinstance(given, PausedRun):
        if settings.state is not None:
            raise OptionError("state: a paused run continues in its own state; leave this out")
        return given.run_state
    if settings.state is None:
        ids = () if settings.run_id is None else (settings.run_id,)
        return RunState(settings.name, *ids)
    if settings.run_id is not None:
        raise OptionError("run_id: the given state has an id; leave this out")
    return settings.state
