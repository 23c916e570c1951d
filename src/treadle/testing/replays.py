"""Recorded runs again: `replay` without model and tools, and `fork` from an iteration with something changed."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from treadle import effects
from treadle.effects import Cancelled, Emit, Steps, close_steps, is_sync_callable
from treadle.errors import OptionError, ReplayError
from treadle.events import Event, IterationStarted, UserMessageAdded
from treadle.loop import Loop
from treadle.loop.observers import Observer, Observers, for_run
from treadle.loop.run import Run as LoopRun
from treadle.messages import JSONDict, is_dict, problems_of, to_message
from treadle.model import Model
from treadle.recording import Recorder, Recording, RecordingError, Run, read_recording
from treadle.recording.configuration import changes_between
from treadle.recording.configuration_of import configuration_of
from treadle.recording.divergence import Divergence, diff_so_far, has_events
from treadle.recording.log import Entry
from treadle.recording.middleware import LogMiddleware
from treadle.recording.model import Segment
from treadle.recording.reader import read_lines
from treadle.recording.replay import Replay
from treadle.recording.run_start import RecordedModel, restarted
from treadle.results import Result
from treadle.run_state import RunState

T = TypeVar("T")
Recorded: TypeAlias = Run | Recording | str | os.PathLike[str]
"""A run of a recording, a recording, or its path."""
Changes: TypeAlias = str | Mapping[str, Any]
"""What `fork` changes: a user message, or options of the loop; see `fork`."""
_FIXED = frozenset(
    {
        "handle",
        "journal",
        "max_seconds",
        "middleware",
        "on_complete",
        "on_event",
        "on_iteration",
        "pauses",
        "run_id",
        "session",
        "state",
    }
)
"""Options that a run cannot change while it runs."""
_KEPT = (
    "state", "in_flight", "repeats", "ledger", "locks", "held_locks", "has_listeners", "streams_to_user",
    "check_kept",
)  # fmt: skip
"""The services that a run keeps when it goes on with the settings of another one."""


class DivergedError(ReplayError):
    """A replayed run does something else than what was recorded, since its loop has changed.

    Args:
        error: the effect that did not fit.
        divergence: the difference, with the values of both.
    """

    def __init__(self, error: ReplayError, divergence: Divergence) -> None:
        super().__init__(error.recorded, error.found, error.iteration)
        self.changes = error.changes
        self.divergence = divergence

    def __str__(self) -> str:
        return f"the run differs from its recording: {self.divergence}"


def replay(
    recording: Recorded,
    loop: Loop[T],
    *,
    run: str | None = None,
    on_event: Observer | None = None,
) -> Result[T]:
    """Run a recorded run again, from what became of its effects: no model and no tool is called.

    Stages, validators, rules of approvals and the like are, so that a change of them shows. The loop has to have
    the options that the recorded run had. Its observers are not called, and its session is left alone.

    Args:
        recording: a run of a recording, a recording, or its path.
        loop: the loop of the run. It needs no model.
        run: the id of the run; None means the only one.
        on_event: a sync observer, which receives the events as they were.

    Returns:
        The result of the run; of one that was paused and resumed, that of its last part.

    Raises:
        DivergedError: the run does something else than what was recorded, and where.
        RecordingError: the recording ends before the run does, or cannot be replayed.
        OptionError: there is no such run.
    """
    recorded = _run_of(recording, run)
    if not recorded.segments:
        raise _no_log(recorded)
    observers = () if on_event is None else (on_event,)
    parts = (ReplayedSegment(recorded, part, loop, *observers) for part in recorded.segments)
    try:
        *_, result = (part.result() for part in parts)
    except ReplayError as error:
        raise diverged(recorded, loop, error) from None
    return result


async def fork(
    recording: Recorded,
    loop: Loop[Any],
    *,
    at: int,
    with_: Changes = "",
    llm_send_fn: Model | None = None,
    run: str | None = None,
    on_event: Observer | None = None,
) -> Result[Any]:
    """Replay a recorded run up to the start of an iteration, and go on from there with a model and tools.

    Args:
        recording: a run of a recording, a recording, or its path.
        loop: the loop of the run, as for `replay`.
        at: the number of the iteration, from 1.
        with_: what is changed from there. A text is a user message, which the model sees in this iteration. A
            mapping has options of the loop, such as ``instructions``, ``tools``, ``stages`` or ``max_iterations``;
            its key ``message`` is a user message as well.
        llm_send_fn: the model from there; None means that of the loop.
        run: the id of the run; None means the only one.
        on_event: a sync observer, which receives the events of the whole run.

    Returns:
        The result of the changed run, with everything from its start. It is not stored in a session.

    Raises:
        DivergedError, RecordingError: as `replay`, before that iteration.
        OptionError: the run has no such iteration, there is no model, or an option cannot be changed.
    """
    return await effects.drive(*_forked(recording, loop, at, with_, llm_send_fn, run, on_event))


def fork_sync(
    recording: Recorded,
    loop: Loop[Any],
    *,
    at: int,
    with_: Changes = "",
    llm_send_fn: Model | None = None,
    run: str | None = None,
    on_event: Observer | None = None,
) -> Result[Any]:
    """As `fork`, in this thread, without an event loop."""
    return effects.drive_sync(*_forked(recording, loop, at, with_, llm_send_fn, run, on_event))


def _forked(  # noqa: PLR0917 - the parameters of `fork`
    recording: Recorded,
    loop: Loop[Any],
    at: int,
    with_: Changes,
    llm_send_fn: Model | None,
    run: str | None,
    on_event: Observer | None,
) -> tuple[Steps[Result[Any]], Callable[[Event], Any]]:
    recorded = _run_of(recording, run)
    options: dict[str, Any] = {"message": with_} if isinstance(with_, str) else dict(with_)
    messages = _user_messages(options.pop("message", ""))
    fixed = ", ".join(sorted(_FIXED & options.keys()))
    if fixed:
        raise OptionError(f"with_: a run that has started cannot change {fixed}")
    changed = loop.with_options(**options)
    model = changed.model_for(llm_send_fn)
    observers = () if on_event is None else (on_event,)
    if not recorded.segments:
        raise _no_log(recorded)
    try:
        for part in recorded.segments:
            replayed = ReplayedSegment(recorded, part, loop, *observers)
            if replayed.reaches(at):
                _go_on_with(replayed.run, LoopRun(changed, (), model, RunState()))
                replayed.run.add_messages(messages)
                return replayed.continued(at, messages), replayed.deliver
            replayed.result()
    except ReplayError as error:
        raise diverged(recorded, loop, error) from None
    raise OptionError(
        f"at: expected the number of an iteration of the run, which has {recorded.total_iterations}, got {at!r}"
    )


def _go_on_with(run: LoopRun, other: LoopRun) -> None:
    """Let a run that is between two iterations go on with the settings of a run that has not started.

    What it has used so far counts against the limits of the other one. Its session, its handle and the time that
    is left for it stay as they are.
    """
    now, used, budget = run.context.tools, run.services.budget, other.services.budget
    removed = run.tools.keys() - now.keys()
    tools = {name: tool for name, tool in other.tools.items() if name not in removed}
    # Those of a stage, from then on.
    tools |= {name: tool for name, tool in now.items() if run.tools.get(name) is not tool}
    budget.restore(used.used())
    budget.started_at = used.started_at
    if used.is_finishing:
        budget.finish()
    kept: Any = {name: getattr(run.services, name) for name in _KEPT}
    run.services = dataclasses.replace(other.services, **kept)
    run.pipeline, run.tools = other.pipeline, other.tools
    run.context = run.context.evolve(tools=tools, run=run.services)


def _user_messages(given: Any) -> tuple[JSONDict, ...]:
    if not given:
        return ()
    message = {"role": "user", "content": given} if isinstance(given, str) else to_message(given)
    if not is_dict(message) or message.get("role") != "user" or [*problems_of([message])]:
        raise OptionError(f"with_: message: expected a text or a user message, got {given!r:.80}")
    return (message,)


def _run_of(recording: Recorded, run_id: str | None) -> Run:
    if isinstance(recording, Run):
        return recording
    if not isinstance(recording, Recording):
        recording = read_recording(recording)
    found = [one for one in recording.runs if run_id in {None, one.run_id}]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(repr(one.run_id) for one in recording.runs) or "none"
    what = (
        "there is no such run in the recording" if not found else "the recording has several runs"
    )
    raise OptionError(f"run: {what}; its runs are {ids}")


def _no_log(run: Run) -> RecordingError:
    return RecordingError(
        f"run {run.run_id!r} cannot be replayed: its log was not recorded, as with "
        "Recorder(..., replayable=False), with a journal, or if its events were handed on one by one"
    )


class _Reached(Exception):  # noqa: N818 - it is no error
    """Raised when the iteration at which a run is forked starts."""


class ReplayedSegment:
    """One part of a recorded run, replayed.

    Args:
        recorded: the run.
        part: the part of it.
        loop: its loop.
        *observers: receive the events; sync.

    Attributes:
        run: the run that is made anew.

    Raises:
        RecordingError: it cannot be replayed.
        OptionError: an observer is async.
    """

    def __init__(self, recorded: Run, part: Segment, loop: Loop[Any], *observers: Observer) -> None:
        if not all(map(is_sync_callable, observers)):
            raise OptionError("on_event: expected a sync observer: a replay waits for nothing")
        self._recorded, self._part, self._loop = recorded, part, loop
        if "problem" in part.start:
            raise self._error(part.start["problem"])
        try:
            self.run = restarted(loop, part.start)
        except KeyError as error:
            raise self._error(f"its start has no {error}") from error
        made = [one for one in map(for_run, observers) if one is not None]
        self._observers = Observers(made, self.run.services.ledger.event_counter)
        self._stops_at: int | None = None
        self._steps = self.run.steps()
        self._replay: Replay[Result[Any]] = Replay(self._steps, self._emit, self._explain)
        self._log = iter(part.log)

    def deliver(self, event: Event) -> None:
        """Hand an event to the observer."""
        self._observers.deliver(event)

    def result(self) -> Result[Any]:
        """Replay it to its end."""
        self._advance()
        self._replay.finish()
        if not self._replay.is_over:
            close_steps(self._steps)
            raise self._ends_early()
        try:
            return self._replay.result
        except Cancelled:
            raise self._error(f"it was cancelled in iteration {self._replay.iteration}") from None

    def reaches(self, iteration: int) -> bool:
        """Replay it to the start of an iteration; returns whether it has that iteration."""
        self._stops_at = iteration
        try:
            self._advance()
        except _Reached:
            return True
        finally:
            self._stops_at = None
        return False

    def continued(self, iteration: int, messages: tuple[JSONDict, ...]) -> Steps[Result[Any]]:
        """The steps from there, to be performed by a driver."""
        if messages:
            yield Emit(UserMessageAdded(iteration=iteration, messages=messages))
        return (yield from self._replay.continued(LogMiddleware(_drop, self._replay.digests)))

    def _emit(self, event: Any) -> None:
        if isinstance(event, IterationStarted) and event.iteration == self._stops_at:
            raise _Reached
        self.deliver(event)

    def _advance(self) -> None:
        """Replay the entries that are left."""
        for line in self._log:
            try:
                entry = Entry.from_json(line)
            except (KeyError, TypeError, ValueError) as error:
                raise self._error(f"an entry of its log is malformed: {error}") from error
            if "problem" in line:
                break
            try:
                self._replay.advance(entry)
            except ReplayError:
                close_steps(self._steps)
                raise

    def _error(self, text: str) -> RecordingError:
        return RecordingError(
            f"run {self._recorded.run_id!r} cannot be replayed to its end: {text}"
        )

    def _ends_early(self) -> RecordingError:
        replay, problem = self._replay, self._part.problem
        where = (
            f"in iteration {replay.iteration}" if replay.iteration else "before its first iteration"
        )
        text = f"its recording ends {where}, without the outcome of {replay.waits_for}"
        return self._error(f"{text}: {problem}" if problem else text)

    def _explain(self, error: ReplayError) -> None:
        before = self._part.start["configuration"]
        model = None
        if self._loop.settings.llm_send_fn is None:
            model = RecordedModel(self._part.start.get("model", {}))
        error.changes = changes_between(before, configuration_of(self._loop, model))


def diverged(recorded: Run, loop: Loop[Any], error: ReplayError) -> DivergedError:
    """The error with what differs: the first event that is another one, or else the effect."""
    found = _first_event(recorded, loop) if has_events(recorded) else None
    if found is None:
        found = Divergence(error.iteration, "what happens next", "", error.recorded, error.found)
    changes = tuple(error.changes)
    return DivergedError(
        error, dataclasses.replace(found, names=("recorded", "now"), changes=changes)
    )


def _first_event(recorded: Run, loop: Loop[Any]) -> Divergence | None:
    """Replay the run once more, record its events meanwhile, and compare them as far as they come."""
    file = io.StringIO()
    recorder = Recorder(file, replayable=False)
    with contextlib.suppress(ReplayError):
        for part in recorded.segments:
            ReplayedSegment(recorded, part, loop, recorder).result()
    lines = file.getvalue().encode("ascii").splitlines(keepends=True)
    return next((diff_so_far(recorded, run) for run in read_lines(lines, "replay").runs), None)


def _drop(_entry: Entry) -> None:
    """Keep no log: that of a changed run is no log of its loop."""
