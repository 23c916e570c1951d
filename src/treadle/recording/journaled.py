"""A run with a journal: its log is written as it happens; one that was interrupted is replayed, and goes on."""

from __future__ import annotations

import dataclasses
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from treadle import labels
from treadle.codec import (
    JSONFormatError,
    NotDataError,
    decode,
    encode,
    encode_exactly,
    missing_classes,
    plain_data,
)
from treadle.context import EventCounter
from treadle.effects import (
    NOW,
    Bounded,
    Call,
    Effect,
    Emit,
    Mode,
    Parallel,
    Sleep,
    Steps,
    interruption_of,
)
from treadle.errors import JournalError, OptionError, OutcomeUnknownError, ReplayError
from treadle.events import RunFinished, RunStarted, SubagentEvent
from treadle.loop.built_loop import BuiltLoop
from treadle.loop.pause import PausedRun
from treadle.loop.start import MISSING
from treadle.loop.subagent import Subagent
from treadle.messages import JSONDict
from treadle.recording.configuration import changes_between
from treadle.recording.configuration_of import configuration_of
from treadle.recording.journaled_run import JournaledRun
from treadle.recording.log import RECEIVED, RESUMED, STARTED, Entry, Path, Place
from treadle.recording.middleware import LogMiddleware
from treadle.recording.replay import Replay
from treadle.recording.run_start import paused_of, start_of
from treadle.results import Err, Ok, Paused, Result
from treadle.run_state import RunState
from treadle.tools import Approval

if TYPE_CHECKING:
    from treadle.loop.handle import RunHandle
    from treadle.loop.run import Run
    from treadle.tools.output import Checked

MakeRun: TypeAlias = Callable[..., "Run"]
"""Makes the run of messages, or of a paused run, and of a state; see `treadle.loop.options.RunJournal`."""

_QUEUED = labels.OF_THE_LOOP - {
    labels.STREAMED,
    labels.STEER,
    labels.MEMORY,
    labels.LOAD_SESSION,
    labels.SAVE_SESSION,
}
"""The labels of calls of the loop itself, which neither depend on the world nor change it.

The outcome of every other call, also of one that a stage makes, is written before the run continues.
"""


class Journal(ABC):
    """Stores runs; `treadle.durable.SQLiteJournal` is one.

    Its methods and those of `JournaledRun` are called one after another for each run, and in worker threads if the
    run is on an event loop.
    """

    @abstractmethod
    def open(self, run_id: str, start: JSONDict | None) -> JournaledRun:
        """Open a run for this process, which drives it until it is closed; create it if there is none of this id.

        Args:
            run_id: the id of the run.
            start: what a new run starts from, as JSON data; it is ignored for one that exists. None opens only a
                run that exists.

        Raises:
            RunBusyError: another process drives the run.
            JournalError: the journal cannot be read or written, or there is no such run.
        """

    def steps(
        self, loop: BuiltLoop, run_id: str, given: Any, make: MakeRun, handle: RunHandle
    ) -> Steps[Result]:
        """Perform a run with this journal; see `treadle.loop.options.RunJournal.steps`.

        Raises:
            OptionError: the options of the loop do not fit.
            JournalError: the journal cannot be read or written, another process drives the run, or what was
                recorded does not fit the loop.
        """
        _check_options(loop, given)
        start: JSONDict | None = None
        if given is not MISSING:
            start = start_of(loop, make(given, RunState(loop.settings.name, run_id)))
            if "problem" in start:
                raise OptionError(f"journal: {start['problem']}")
        opening = _Opening(self, run_id, start)
        return self._opened(opening, _Unopened(loop, run_id, start, make, handle))

    @staticmethod
    def _opened(opening: _Opening, unopened: _Unopened) -> Steps[Result]:
        run_id = unopened.run_id
        try:
            opened = yield _calling(opening.open, run_id)
            opened.on_stop(unopened.handle.cancel)
            result = yield from _Journaled(opened, *unopened).steps()
        except GeneratorExit:
            opening.close()
            raise
        except BaseException:
            yield _calling(opening.close, run_id)
            raise
        yield _calling(opening.close, run_id)
        return result


class _Unopened(NamedTuple):
    """A run whose journal is not open yet; see `Journal.steps`."""

    loop: BuiltLoop
    run_id: str
    start: JSONDict | None
    make: MakeRun
    handle: RunHandle


def _calling(fn: Callable[..., Any], run_id: str, *args: Any) -> Call:
    return Call(fn, *args, mode=Mode.BRIEF, label=labels.JOURNAL, key=run_id)


class _Opening:
    """Opens a run, which is closed for sure: also if the call that opened it was abandoned meanwhile."""

    def __init__(self, journal: Journal, run_id: str, start: JSONDict | None) -> None:
        self._journal, self._run_id, self._start = journal, run_id, start
        self._mutex = threading.Lock()
        self._opened: JournaledRun | None = None
        self._is_closed = False

    def open(self) -> JournaledRun:
        opened = self._journal.open(self._run_id, self._start)
        with self._mutex:
            self._opened = opened
            is_late = self._is_closed
        if is_late:
            opened.close()
        return opened

    def close(self) -> None:
        with self._mutex:
            self._is_closed = True
            opened = self._opened
        if opened is not None:
            opened.close()


@dataclass
class _Journaled:
    """The steps of a run whose journal is open; see `Journal.steps`."""

    _opened: JournaledRun
    _loop: BuiltLoop
    _run_id: str
    _start: JSONDict | None
    _make: MakeRun
    _handle: RunHandle

    def steps(self) -> Steps[Result]:
        opened = self._opened
        self._check_messages()
        if opened.outcome is None:
            return (yield from self._part(self._run_of(_given(self._loop, opened.start))))
        result = result_from_data(opened.outcome["result"], self._loop)
        goes_on = opened.decisions or self._handle.ended.is_set  # which cancels it
        if not (isinstance(result, Paused) and goes_on):
            self._handle.bind_result(result)
            return result
        decisions = {key: Approval(**one) for key, one in opened.decisions.items()}
        run = self._run_of(PausedRun(self._loop, result.state, decisions, None))
        # The messages are those of the first part, by which a caller is known to mean this run.
        start = start_of(self._loop, run) | {"messages": opened.start["messages"]}
        yield _calling(opened.begin_part, self._run_id, start)
        return (yield from self._part(run))

    def _check_messages(self) -> None:
        if self._start is not None and self._start["messages"] != self._opened.start["messages"]:
            raise self._error(
                "it was started with other messages; leave them out to continue it, or take another run_id"
            )

    def _error(self, text: str) -> JournalError:
        error = JournalError(f"run {self._run_id!r}: {text}")
        error.run_id = self._run_id
        return error

    def _run_of(self, given: Any) -> Run:
        is_resumed = isinstance(given, PausedRun)
        state = given.run_state if is_resumed else RunState(self._loop.settings.name, self._run_id)
        return self._make(given, state, bool(self._opened.start["streams_to_user"]))

    def _part(self, run: Run) -> Steps[Result]:
        """Replay what is in the log, go on from there, and store the result."""
        log = self._opened.log
        counter = run.services.ledger.event_counter
        writer = _Writer(self._opened, self._run_id, counter, self._handle)
        steps = run.steps()
        if all(entry.kind == RESUMED for entry in log):
            steps = writer(steps)
        else:
            steps = self._replayed(run, steps, writer)
        result = yield from steps
        yield from writer.end()
        outcome = outcome_of(result)
        yield _calling(self._opened.finish, self._run_id, outcome)
        return result

    def _replayed(self, run: Run, steps: Steps[Result], writer: _Writer) -> Steps[Result]:
        running: dict[tuple[str, ...], Any] = {}

        def note(event: Any) -> None:
            call_ids, inner = _opened(event)
            if isinstance(inner, RunStarted):
                running[call_ids] = event
            elif isinstance(inner, RunFinished):
                running.pop(call_ids, None)

        replay = Replay(steps, note, self._explain)
        before: float | None = None
        try:
            for entry in self._opened.log:
                replay.advance(entry)
                if entry.kind == RESUMED and before is not None:
                    run.services.budget.idle += max(0.0, entry.at - before)
                before = entry.at
            continued = replay.continued(writer)
        except ReplayError:
            steps.close()
            raise
        counter = run.services.ledger.event_counter
        counter.latest = max([counter.latest, *(entry.last_seq for entry in self._opened.log)])
        writer.digests, writer.unknown = replay.digests, replay.unknown
        now = yield NOW
        for started in running.values():
            yield Emit(_resumed(started, now))
        return (yield from continued)

    def _explain(self, error: ReplayError) -> None:
        error.run_id = self._run_id
        error.changes = changes_between(
            self._opened.start["configuration"], configuration_of(self._loop)
        )


def _opened(event: Any) -> tuple[tuple[str, ...], Any]:
    """The ids of the calls of the subagents that an event belongs to, and the event itself."""
    call_ids: tuple[str, ...] = ()
    while isinstance(event, SubagentEvent):
        call_ids, event = (*call_ids, event.call_id), event.event
    return call_ids, event


def _resumed(event: Any, at: float) -> Any:
    """The start of a run, or of a subagent, that goes on in this process."""
    if isinstance(event, SubagentEvent):
        return SubagentEvent(call_id=event.call_id, event=_resumed(event.event, at))
    return dataclasses.replace(event, resumed=True, at=at)


def _given(loop: BuiltLoop, start: Mapping[str, Any]) -> Any:
    """The messages, or the paused run, that a part starts from."""
    if "paused" not in start:
        return decode(start["messages"])
    return paused_of(loop, start)


class _Queue:
    """The entries to be written.

    Args:
        counter: numbers the events.

    Attributes:
        entries: the entries, in order.
        is_detached: whether nothing more is written.
    """

    def __init__(self, counter: EventCounter) -> None:
        self.entries: list[Entry] = []
        self.is_detached = False
        self._counter = counter

    def add(self, entry: Entry) -> None:
        """Add an entry, with the time and the number of the latest event."""
        # A replay emits the events by itself; whether one was interrupted it cannot know.
        if not self.is_detached and (entry.kind != "emit" or entry.error is not None):
            at, last = time.time(), self._counter.latest
            self.entries.append(dataclasses.replace(entry, at=at, last_seq=last))


class _Writer(LogMiddleware):
    """Writes the log of a run to its journal.

    Outcomes of the run itself, such as the time, are queued, and written with the next outcome of a call of a
    model, a tool or a stage, or before a call that must not run twice. So a run of one iteration takes two or
    three writes. An interrupted run continues after the last write.

    Args:
        opened: the run in the journal.
        run_id: its id.
        counter: numbers the events.
        handle: the handle of the run.

    Attributes:
        unknown: see `Replay`.
    """

    def __init__(
        self, opened: JournaledRun, run_id: str, counter: EventCounter, handle: RunHandle
    ) -> None:
        self._queue = _Queue(counter)  # apart from this object, which would refer to itself
        super().__init__(self._queue.add, reports=False)
        self._opened, self._run_id, self._handle = opened, run_id, handle
        self._log: Sequence[Entry] = opened.log
        self._started = {
            entry.place: entry.at
            for entry in opened.log
            if entry.kind == STARTED and not entry.starts_call
        }
        self.unknown: set[Place] = set()
        self._taken: list[int] = []
        self._received: set[int] = set()
        self._mutex = threading.Lock()
        self._failure: Exception | None = None
        self._interruption: BaseException | None = None
        self._in_parallel = 0

    # Effects

    def perform(self, effect: Effect, entry: Entry) -> Steps[Any]:
        """Perform an effect; one that lasted when the run was interrupted has less time left."""
        if isinstance(effect, Call):
            return (yield from self._perform_call(effect, entry))
        if self._queue.is_detached:
            return (yield effect)
        if isinstance(effect, Sleep):
            return (yield from self._sleep(effect, entry))
        if isinstance(effect, Bounded) and effect.seconds is not None:
            if entry.place not in self._started:
                self._mark_started(entry)
            else:
                left = max(0.0, effect.seconds - self._elapsed(entry.place))
                effect = Bounded(effect.steps, seconds=left, until=effect.until)
        if not isinstance(effect, Parallel):
            return (yield effect)
        self._in_parallel += 1
        try:
            return (yield effect)
        finally:
            self._in_parallel -= 1

    def _sleep(self, effect: Sleep, entry: Entry) -> Steps[None]:
        seconds = effect.seconds
        if entry.place not in self._started:
            self._mark_started(entry)
            yield from self._flush()
        else:
            elapsed = (yield NOW) - self._started[entry.place]
            seconds = min(seconds, max(0.0, seconds - elapsed))
        yield Sleep(seconds)

    def _perform_call(self, call: Call, entry: Entry) -> Steps[Any]:
        if self._failure is not None and call.label not in _QUEUED:
            raise self._failure  # another process may make the call
        if self._queue.is_detached:
            return (yield call)
        if call.label == labels.STEER:
            return (yield from self._take(call))
        if call.once:
            if entry.place in self.unknown:
                raise OutcomeUnknownError(f"{entry} had started when the run was interrupted")
            self._mark_started(entry)
        if call.once or call.label == labels.SAVE_SESSION:
            yield from self._flush()
        return (yield call)

    def _mark_started(self, entry: Entry) -> None:
        self.write(dataclasses.replace(entry, kind=STARTED, outcome=entry.kind))

    def _take(self, call: Call) -> Steps[tuple[JSONDict, ...]]:
        """Take the user messages of this process, and those that arrived through the journal."""
        sent = yield from self._calling(self._opened.messages)
        new = [(number, message) for number, message in sent if number not in self._received]
        if new and call.args:  # the run goes on with these, so it accepts others
            call = Call(call.fn, False, mode=call.mode, label=call.label, key=call.key)
        given: tuple[JSONDict, ...] = yield call
        numbers = [number for number, _ in new]
        self._received.update(numbers)
        self._taken += numbers
        # Until the run has received them: a cancellation may discard the outcome.
        self._handle.taken = given = *given, *(message for _, message in new)
        return given

    def _elapsed(self, place: Place) -> float:
        """How long some steps have run, in seconds, without the time in which no process drove the run.

        0 if nothing in them has an outcome: they start again.
        """
        path, number = place
        inside: Path = (*path, number, 0)
        elapsed = counted = 0.0
        before: float | None = None
        for entry in self._log:
            if entry.kind == STARTED and entry.place == place:
                before = entry.at
            elif before is not None:
                if entry.kind != RESUMED:
                    counted += max(0.0, entry.at - before)
                before = entry.at
                if entry.path[: len(inside)] == inside and entry.kind != STARTED:
                    elapsed = counted
        return elapsed

    # Writing

    def record(self, entry: Entry) -> Steps[None]:
        """Queue the entry; write the queue if the call depends on the world."""
        is_empty = entry.label == labels.STEER and not entry.outcome
        # What was streamed before a request failed is the next effect, and is written with it.
        is_followed = entry.label == labels.CHAT and entry.error is not None
        is_own = entry.kind != "call" or entry.label in _QUEUED
        if is_own or entry.is_cancelled or is_empty or is_followed:
            self.write(entry)
            return
        is_early = self._in_parallel > 0  # other steps may go on while the entry is written
        self.write(dataclasses.replace(entry, is_early=is_early))
        yield from self._flush()
        if is_early:
            self.write(Entry(entry.path, entry.number, RECEIVED))

    def end(self) -> Steps[None]:
        """Write the remaining entries."""
        yield from self._flush()

    def is_void(self, error: BaseException, path: Path) -> bool:
        """A journal that fails ends the run. A cancellation of the whole run, as at a shutdown, is not written.

        Another process may resume the run, so its end is not the cancellation.
        """
        if not path and not isinstance(error, Exception):
            self._queue.is_detached = True
        return error is self._failure

    def look(self, steps: Steps[Any]) -> None:
        """Write nothing more once steps are interrupted from within: their cleanup is no part of the run.

        Raises:
            BaseException: the interruption, if steps go on in spite of it: a replay could not follow them.
        """
        found = interruption_of(steps)
        if found is not None:
            self._interruption, self._queue.is_detached = found, True
        elif self._interruption is not None:
            raise self._interruption

    def _flush(self) -> Steps[None]:
        if self._queue.entries and not self._queue.is_detached:
            yield from self._calling(self._write_queue)

    def _calling(self, fn: Callable[[], Any]) -> Steps[Any]:
        """Call the journal. Nothing is written after it has failed once."""
        try:
            return (yield _calling(fn, self._run_id))
        except Exception as error:  # noqa: BLE001 - a journal may raise anything
            if self._failure is None:
                self._failure, self._queue.is_detached = error, True
            raise self._failure  # noqa: B904 - it is the error, or an earlier one

    def _write_queue(self) -> None:
        """Write what is queued, in order, even if this call was abandoned and another one writes meanwhile."""
        try:
            with self._mutex:
                entries, taken = list(self._queue.entries), list(self._taken)
                if entries:
                    self._opened.add(entries, taken)
                    del self._queue.entries[: len(entries)], self._taken[: len(taken)]
        except NotDataError as error:
            raise JournalError(f"run {self._run_id!r}: {error}") from error
        except BaseException as error:
            is_here = threading.current_thread() is threading.main_thread()
            if is_here and not isinstance(error, Exception):
                # An interruption of the thread of all steps, which end now. The entries may have been written.
                self._queue.is_detached = True
            raise


# Results


def outcome_of(result: Result) -> JSONDict:
    """A result as JSON data, with what a list of runs shows of it.

    Raises:
        JournalError: its output cannot be written.
    """
    status = {Ok: "ok", Err: "error", Paused: "paused"}[type(result)]
    pending = result.pending if isinstance(result, Paused) else ()
    return {
        "status": status,
        "stop_reason": result.stop_reason,
        "iterations": result.iterations,
        "tool_calls_count": result.tool_calls_count,
        "pending": encode(list(pending)),
        "result": _result_as_data(result),
    }


def _result_as_data(result: Result) -> JSONDict:
    if not isinstance(result, Ok):
        return encode(result)
    data: JSONDict = encode(dataclasses.replace(result, output=None), "the result")
    try:
        data["output"] = encode_exactly(result.output, "the output")
    except NotDataError:
        data["output"] = None
    if data["output"] != result.output:
        # Its form for readers that do not have its class.
        data["typed_output"] = plain_data(result.output)
    return data


def result_from_data(data: JSONDict, loop: BuiltLoop | None) -> Result:
    """The result that `outcome_of` has written. A typed output is as it was: it is not validated again.

    Only an output of which a part is no data, such as an object of a third party, is made from its JSON form.

    Args:
        data: the result.
        loop: what it belongs to; None leaves a typed output as JSON data.

    Raises:
        JournalError: the type of the output is not here, or has other fields.
    """
    plain = {key: value for key, value in data.items() if key not in {"output", "typed_output"}}
    result: Result = decode(plain)
    if not isinstance(result, Ok):
        return result
    if "typed_output" not in data:
        output: Any = decode(data.get("output"))
    elif loop is None:
        output = data["typed_output"]
    else:
        output, problems = _typed_output(data, loop)
        if problems:
            raise JournalError(f"the loop does not accept the stored output: {'; '.join(problems)}")
    return dataclasses.replace(result, output=output)


def _typed_output(data: Mapping[str, Any], loop: BuiltLoop) -> Checked:
    missing = [f"{name} is not imported" for name in missing_classes(data["output"])]
    if missing:
        return None, missing
    if data["output"] is None and loop.output is not None:
        return loop.output.check(data["typed_output"])
    try:
        return decode(data["output"]), ()
    except JSONFormatError as error:
        return None, [str(error)]


def _check_options(loop: BuiltLoop, given: Any) -> None:
    """Check the options of a run with a journal.

    Raises:
        OptionError: they do not fit.
    """
    if isinstance(given, PausedRun):
        raise OptionError(
            "journal: a run with a journal is resumed with run(), after journal.decide(run_id, decisions)"
        )
    if loop.settings.state is not None:
        raise OptionError("state: a run with a journal makes its own; give run_id= instead")
    _check_stages(loop)


def _check_stages(loop: BuiltLoop) -> None:
    for stage in loop.pipeline.async_stages:
        raise OptionError(
            f"journal: stage {stage!r} is an async def: what it awaits is no effect, so it would happen again "
            "when the run is resumed, and its outcome, a context, is no data. Make it a generator that yields "
            "effects, or do the work in a tool"
        )
    for tool in loop.tools.values():
        if isinstance(tool.steps, Subagent):
            _check_stages(tool.steps.loop)
