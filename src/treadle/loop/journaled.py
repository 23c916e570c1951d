"""A run with a journal: its log is written as it happens; one that was interrupted is replayed, and goes on."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from treadle import labels
from treadle.effects import (
    NOW,
    Bounded,
    Call,
    Effect,
    Emit,
    Mode,
    Sleep,
    Steps,
)
from treadle.errors import JournalError, OptionError, OutcomeUnknownError, ReplayError
from treadle.events import RunStarted
from treadle.json_data import to_json_line
from treadle.loop.configuration import configuration_of
from treadle.loop.journal import Journal, JournaledRun
from treadle.loop.pause import Resumption
from treadle.loop.start import MISSING
from treadle.messages import JSONDict
from treadle.recording.configuration import changes_between
from treadle.recording.data import NotDataError, from_data, to_data
from treadle.recording.log import RESUMED, STARTED, Entry, Path, Place
from treadle.recording.middleware import LogMiddleware
from treadle.recording.replay import Replay
from treadle.results import Err, Ok, Paused, Result
from treadle.run_state import RunState
from treadle.tools import Approval

if TYPE_CHECKING:
    from treadle.loop.handle import RunHandle
    from treadle.loop.loop import Loop
    from treadle.loop.run import Run

MakeRun: TypeAlias = Callable[[Any, RunState], "Run"]
"""Makes the run of messages, or of a paused run, and of a state."""

_WRITTEN = frozenset(
    {
        labels.CHAT,
        labels.EXECUTE_TOOL,
        labels.STAGE,
        labels.STEER,
        labels.MEMORY,
        labels.LOAD_SESSION,
        labels.SAVE_SESSION,
    }
)
"""The labels of calls whose outcome is written before the run continues: they depend on the world or change it."""


def steps_of(
    loop: Loop[Any],
    run_id: str,
    given: Any,
    make: MakeRun,
    handle: RunHandle,
    *,
    shows_text: bool,
) -> Steps[Result]:
    """Perform a run with a journal.

    Args:
        loop: the loop, with its journal.
        run_id: the id of the run.
        given: the messages of the caller; missing if the run exists.
        make: makes the run.
        handle: ends the run if someone cancels it through the journal.
        shows_text: see `RunContext`.

    Raises:
        JournalError: the journal cannot be read or written, another process drives the run, or what was recorded
            does not fit the loop.
    """
    journal = loop.settings.journal
    if journal is None:
        raise AssertionError("unreachable: the loop has a journal")
    start: JSONDict = {
        "messages": None if given is MISSING else _messages_as_data(given),
        "name": loop.settings.name,
        "shows_text": shows_text,
        "configuration": configuration_of(loop),
    }
    opening = _Opening(journal, run_id, None if given is MISSING else start)
    try:
        opened = yield _calling(opening.open, run_id)
        opened.on_stop(handle.cancel)
        result = yield from _Journaled(loop, opened, run_id, start, make, handle).steps()
    except GeneratorExit:
        opening.close()
        raise
    except BaseException:
        yield _calling(opening.close, run_id)
        raise
    yield _calling(opening.close, run_id)
    return result


def _messages_as_data(given: Any) -> Any:
    try:
        return to_data(given, "messages")
    except NotDataError as error:
        raise OptionError(f"journal: {error}") from error


def _calling(fn: Callable[..., Any], run_id: str, *args: Any) -> Call:
    return Call.of(fn, args, Mode.BRIEF, label=labels.JOURNAL, key=run_id)


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
    """The steps of a run whose journal is open; see `steps_of`."""

    _loop: Loop[Any]
    _opened: JournaledRun
    _run_id: str
    _start: JSONDict
    _make: MakeRun
    _handle: RunHandle

    def steps(self) -> Steps[Result]:
        opened = self._opened
        self._check_messages()
        if opened.outcome is None:
            return (yield from self._part(_given(self._loop, opened.start)))
        result = result_from_data(opened.outcome["result"], self._loop)
        if not (isinstance(result, Paused) and opened.decisions):
            self._handle.bind_result(result)
            return result
        start = {
            **self._start,
            "messages": opened.start["messages"],
            "paused": result.state,
            "decisions": dict(opened.decisions),
        }
        given = _given(self._loop, start)  # raises before the part begins
        yield _calling(opened.begin_part, self._run_id, start)
        return (yield from self._part(given))

    def _check_messages(self) -> None:
        given, stored = self._start["messages"], self._opened.start["messages"]
        if given is not None and given != stored:
            raise self._error(
                "it was started with other messages; leave them out to continue it, or take another run_id"
            )

    def _error(self, text: str) -> JournalError:
        error = JournalError(f"run {self._run_id!r}: {text}")
        error.run_id = self._run_id
        return error

    def _part(self, given: Any) -> Steps[Result]:
        """Replay what is in the log, go on from there, and store the result."""
        is_resumed = isinstance(given, Resumption)
        state = given.run_state if is_resumed else RunState(self._loop.settings.name, self._run_id)
        run = self._make(given, state)
        run.run.shows_text = bool(self._opened.start.get("shows_text"))
        if is_resumed:
            run.run.numbers[0] = given.last_seq
        log = self._opened.log
        writer = _Writer(self._opened, self._run_id, run.run.numbers)
        steps = run.steps()
        if all(entry.kind == RESUMED for entry in log):
            steps = writer(steps)
        else:
            steps = self._replayed(run, steps, writer)
        result = yield from steps
        outcome = outcome_of(result)
        yield _calling(self._opened.finish, self._run_id, outcome)
        return result

    def _replayed(self, run: Run, steps: Steps[Result], writer: _Writer) -> Steps[Result]:
        started: list[RunStarted] = []

        def note(event: Any) -> None:
            if isinstance(event, RunStarted):
                started.append(event)

        replay = Replay(steps, note, self._explain)
        try:
            replay.replay(self._opened.log)
        except ReplayError:
            steps.close()
            raise
        numbers = run.run.numbers
        numbers[0] = max([numbers[0], *(entry.last_seq for entry in self._opened.log)])
        writer.digests = replay.digests
        if started:
            now = yield NOW
            yield Emit(dataclasses.replace(started[0], resumed=True, at=now))
        return (yield from replay.continued(writer))

    def _explain(self, error: ReplayError) -> None:
        error.run_id = self._run_id
        error.changes = changes_between(
            self._opened.start["configuration"], configuration_of(self._loop)
        )


def _given(loop: Loop[Any], start: Mapping[str, Any]) -> Any:
    """The messages, or the paused run, that a part starts from."""
    if "paused" not in start:
        return from_data(start["messages"])
    decisions = {key: Approval(**one) for key, one in start["decisions"].items()}
    return Resumption(loop, start["paused"], decisions, None)


class _Writer(LogMiddleware):
    """Writes the log of a run to its journal.

    Outcomes of the run itself, such as the time, are queued, and written with the next outcome of a call that
    depends on the world, or before a call that must not run twice. So a run of one iteration takes two or three
    writes, and one that was interrupted is taken up after the last of them.

    Args:
        opened: the run in the journal.
        run_id: its id.
        numbers: a list with the number of the latest event.
    """

    def __init__(self, opened: JournaledRun, run_id: str, numbers: list[int]) -> None:
        super().__init__(self._queue_entry, reports=False)
        self._opened, self._run_id, self._numbers = opened, run_id, numbers
        self._log: Sequence[Entry] = opened.log
        self._started = {entry.place: entry.at for entry in opened.log if entry.kind == STARTED}
        self._queue: list[Entry] = []
        self._taken: list[int] = []
        self._mutex = threading.Lock()
        self._failure: BaseException | None = None
        self._is_detached = False

    def _queue_entry(self, entry: Entry) -> None:
        if not self._is_detached and entry.kind != "emit":
            at, last = time.time(), self._numbers[0]
            self._queue.append(dataclasses.replace(entry, at=at, last_seq=last))

    # Effects

    def perform(self, effect: Effect, entry: Entry) -> Steps[Any]:
        """Perform an effect; one that lasted when the run was interrupted has less time left."""
        if self._is_detached:
            return (yield effect)
        if isinstance(effect, Call):
            return (yield from self._perform_call(effect, entry))
        if isinstance(effect, Sleep) or (
            isinstance(effect, Bounded) and effect.seconds is not None
        ):
            if entry.place not in self._started:
                self._mark_started(entry)
            elif isinstance(effect, Sleep):
                elapsed = (yield NOW) - self._started[entry.place]
                effect = Sleep(min(effect.seconds, max(0.0, effect.seconds - elapsed)))
            elif effect.seconds is not None:
                left = max(0.0, effect.seconds - self._elapsed(entry.place))
                effect = Bounded(effect.steps, seconds=left, until=effect.until)
        return (yield effect)

    def _perform_call(self, call: Call, entry: Entry) -> Steps[Any]:
        if call.label == labels.STEER:
            return (yield self._taking(call))
        if call.once:
            if entry.place in self._started:
                raise OutcomeUnknownError(f"{entry} had started when the run was interrupted")
            self._mark_started(entry)
            yield from self._flush()
        return (yield call)

    def _mark_started(self, entry: Entry) -> None:
        self.write(dataclasses.replace(entry, kind=STARTED))

    def _taking(self, call: Call) -> Call:
        """Take the user messages of this process, and those that arrived through the journal."""

        def take(*args: Any) -> tuple[JSONDict, ...]:
            sent = self._opened.messages()
            self._taken.extend(number for number, _ in sent)
            if sent and args:  # the run goes on with these, so it accepts others
                args = (False,)
            given: tuple[JSONDict, ...] = call.fn(*args)
            return *given, *(message for _, message in sent)

        return Call.of(take, call.args, Mode.BRIEF, label=call.label, key=call.key)

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
        self.write(entry)
        is_empty = entry.label == labels.STEER and not entry.outcome
        if entry.label in _WRITTEN and not (entry.is_cancelled or is_empty):
            yield from self._flush()

    def is_void(self, error: BaseException, path: Path) -> bool:
        """A journal that fails ends the run. A cancellation of the whole run, as at a shutdown, is not written.

        Another process may take the run up, so its end is not the cancellation.
        """
        if not path and not isinstance(error, Exception):
            self._is_detached = True
        return error is self._failure

    def _flush(self) -> Steps[None]:
        if self._is_detached or not self._queue:
            return
        try:
            yield _calling(self._write_queue, self._run_id)
        except Exception as error:
            self._failure = error
            raise

    def _write_queue(self) -> None:
        """Write what is queued, in order, even if this call was abandoned and another one writes meanwhile."""
        with self._mutex:
            entries, taken = list(self._queue), list(self._taken)
            if entries:
                try:
                    self._opened.add(entries, taken)
                except NotDataError as error:
                    raise JournalError(f"run {self._run_id!r}: {error}") from error
                del self._queue[: len(entries)], self._taken[: len(taken)]


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
        "pending": [to_data(dataclasses.asdict(call)) for call in pending],
        "result": _result_as_data(result),
    }


def _result_as_data(result: Result) -> JSONDict:
    try:
        data: JSONDict = to_data(result)
    except NotDataError:
        if not isinstance(result, Ok):
            raise
        data = to_data(dataclasses.replace(result, output=None), "the result")
        data["output"] = None
        data["typed_output"] = json.loads(to_json_line(result.output))
    return data


def result_from_data(data: JSONDict, loop: Loop[Any]) -> Result:
    """The result that `outcome_of` has written; a typed output is made anew by the loop.

    Raises:
        JournalError: the loop does not accept the output any more.
    """
    plain = {key: value for key, value in data.items() if key != "typed_output"}
    result: Result = from_data(plain)
    if "typed_output" not in data or not isinstance(result, Ok):
        return result
    if loop.output is None:
        raise JournalError("the stored result has a typed output, and the loop has no output=")
    value, problems = loop.output.check(data["typed_output"])
    if problems:
        raise JournalError(f"the loop does not accept the stored output: {'; '.join(problems)}")
    return dataclasses.replace(result, output=value)


def check_options(loop: Loop[Any], given: Any) -> None:
    """Check the options of a run with a journal.

    Raises:
        OptionError: they do not fit.
    """
    if isinstance(given, Resumption):
        raise OptionError(
            "journal: a run with a journal is resumed with run(), after journal.decide(run_id, decisions)"
        )
    if loop.settings.state is not None:
        raise OptionError("state: a run with a journal makes its own; give run_id= instead")
