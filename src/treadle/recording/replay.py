"""Replaying: steps get the outcomes of a log, in its order, and may then go on.

A replay performs nothing. Each entry advances the steps that it belongs to by one effect, so a part of a log leads
to the place where the run was when the part ended, and `Replay.continued` goes on from there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from treadle.effects import Bounded, Call, Cancelled, Effect, Emit, Parallel, Steps, interruption_of
from treadle.errors import ReplayError
from treadle.recording.digests import Digests
from treadle.recording.log import (
    KINDS,
    RECEIVED,
    REPORTED,
    RESUMED,
    STARTED,
    Entry,
    Path,
    Place,
    branches_of,
)

R = TypeVar("R")


class Branch:
    """Some steps, and how far they are.

    Args:
        steps: the steps.
        path: their path.

    Attributes:
        number: the number of the effect that they wait for; 0 before they have started.
        effect: that effect; None before they have started, and when they are over.
        value: what they returned.
        error: what they raised.
        is_over: whether they have returned or raised.
        emitted: the number of the latest effect whose event was emitted before its outcome.
    """

    __slots__ = ("effect", "emitted", "error", "is_over", "number", "path", "steps", "value")

    def __init__(self, steps: Steps[Any], path: Path) -> None:
        self.steps = steps
        self.path = path
        self.number = 0
        self.effect: Effect | None = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self.emitted = 0

    def advance(self, resume: Callable[[Any], Effect], value: Any) -> None:
        """Run the steps to their next effect.

        Raises:
            BaseException: an interruption, such as a KeyboardInterrupt, that was raised in the steps.
        """
        try:
            self.effect = resume(value)
            self.number += 1
        except StopIteration as stop:
            self._end(stop.value, None)
        except (Exception, Cancelled) as error:  # noqa: BLE001 - raised where the effect around them is performed
            self._end(None, error)

    def _end(self, value: Any, error: BaseException | None) -> None:
        self.effect, self.is_over, self.value, self.error = None, True, value, error


class Record(Protocol):
    """What records the effects that steps yield, and their outcomes."""

    def wrap(self, branch: Branch, inner: Callable[[Effect], Effect] | None) -> Steps[Any]:
        """Wrap steps that may have started.

        Args:
            branch: the steps, and how far they are.
            inner: puts the wrapped branches into the effect that they wait for; None if they have not started.
        """
        ...


class Replay(Generic[R]):
    """Steps that are replayed from a log.

    Args:
        steps: made as those that were recorded, and not started.
        emit: receives the events that they emit; None drops them.
        differs: takes a `ReplayError` and adds what is known of the reason; None adds nothing.

    Attributes:
        entries: the number of entries that were replayed.
        events: the number of events that were emitted.
        unknown: once the log is replayed, the places of the calls that must not run twice and whose outcome is
            unknown, in the steps as they are now.
    """

    def __init__(
        self,
        steps: Steps[R],
        emit: Callable[[Any], Any] | None = None,
        differs: Callable[[ReplayError], None] | None = None,
    ) -> None:
        self._emit = emit
        self._differs = differs
        self._branches: dict[Path, Branch] = {}
        self._early: dict[Place, Entry] = {}
        self._started: dict[Place, Entry] = {}
        self._iteration = 0
        self.unknown: set[Place] = set()
        self.digests = Digests()
        self.entries = 0
        self.events = 0
        self._root = self._start((), steps)

    @property
    def is_over(self) -> bool:
        """Whether the steps have returned or raised."""
        return self._root.is_over

    @property
    def iteration(self) -> int:
        """The number of the iteration that was reached; 0 before the first."""
        return self._iteration

    @property
    def waits_for(self) -> str:
        """The effect whose outcome comes next."""
        branch = self._root
        while inside := [one for one in self._inside(branch) if not one.is_over]:
            branch = inside[0]
        return _name_of(branch.effect)

    @property
    def result(self) -> R:
        """What the steps returned; raises what they raised."""
        if self._root.error is not None:
            raise self._root.error
        result: R = self._root.value
        return result

    def replay(self, log: Iterable[Entry]) -> None:
        """Advance the steps by the entries of a log.

        Raises:
            ReplayError: the steps ask for something else than what was recorded.
        """
        for entry in log:
            self.advance(entry)

    def finish(self) -> None:
        """Emit the events at the end of the steps, which a log may leave out."""
        self._perform_emits(self._root)

    def advance(self, entry: Entry) -> None:
        """Advance the steps by one entry.

        Raises:
            ReplayError: they ask for something else than what was recorded.
        """
        if entry.kind == RESUMED:
            self._receive_early()
            return
        if entry.is_early:
            self._early[entry.place] = entry
            return
        if entry.kind == RECEIVED:
            entry = self._early.pop(entry.place)
        self._receive(entry)

    def _receive_early(self) -> None:
        """Go on with the outcomes that were written before their steps received them, when the log ended."""
        entries, self._early = list(self._early.values()), {}
        for entry in entries:
            self._receive(entry)

    def _receive(self, entry: Entry) -> None:
        branch = self._branch_of(entry.path)
        if branch is not None:
            self._perform_emits(branch, entry.number)
        if entry.kind == REPORTED:  # by a call that may have been given up
            self._deliver(entry.outcome)
        elif entry.kind == STARTED:
            self._note_start(entry, branch)
        else:
            self._take(entry, branch)

    def _note_start(self, entry: Entry, branch: Branch | None) -> None:
        if branch is not None and branch.number == entry.number:
            self._deliver_of(branch)
        if entry.starts_call:
            self._started[entry.place] = entry

    def _take(self, entry: Entry, branch: Branch | None) -> None:
        """Advance a branch by the outcome of its effect."""
        effect = None if branch is None else branch.effect
        if branch is None or effect is None or not self._is_same(effect, branch.number, entry):
            raise self._error(entry, branch)
        self.entries += 1
        self._forget_start(entry)
        if isinstance(effect, Emit) and entry.error is None:
            self._perform_emit(branch)
            return
        self._deliver_of(branch)
        error = self._error_of(entry, effect)
        if error is not None:
            self._advance(branch, branch.steps.throw, error)
        else:
            self._advance(branch, branch.steps.send, self._outcome_of(entry, branch, effect))

    def _forget_start(self, entry: Entry) -> None:
        """Forget the mark of a call whose outcome is further inside, since it has been given a time limit."""
        for (path, number), mark in list(self._started.items()):
            is_inside = entry.path[: len(path) + 1] == (*path, number)
            if is_inside and (mark.label, mark.key) == (entry.label, entry.key):
                del self._started[path, number]

    def continued(self, record: Record) -> Steps[R]:
        """The steps from where they are, recorded; to be performed by a driver.

        Raises:
            ReplayError: as in `advance`.
        """
        self._receive_early()
        for place, mark in self._started.items():
            self.unknown.add(self._place_now(place, mark))
        return self._continued(self._root, record)

    def _place_now(self, place: Place, mark: Entry) -> Place:
        """Where the steps wait for a call that had started: elsewhere if it has been given a time limit since.

        Raises:
            ReplayError: they wait for something else, and might make the call again later.
        """
        waiting = [
            (branch.path, branch.number)
            for branch in self._branches.values()
            if isinstance(branch.effect, Call)
            and (branch.effect.label, branch.effect.key) == (mark.label, mark.key)
            and (
                branch.effect.once or mark.key
            )  # a call without a key is known by its position alone
        ]
        if place in waiting:
            return place
        if len(waiting) == 1:
            return waiting[0]
        raise self._error(mark, None, None, self.waits_for)

    # Branches

    def _start(self, path: Path, steps: Steps[Any]) -> Branch:
        branch = self._branches[path] = Branch(steps, path)
        self._advance(branch, steps.send, None)
        return branch

    def _advance(self, branch: Branch, resume: Callable[[Any], Effect], value: Any) -> None:
        inside = (*branch.path, branch.number)
        for place in range(0 if branch.effect is None else len(branches_of(branch.effect))):
            self._branches.pop((*inside, place), None)
        if self._started:  # the outcome of this effect is that of the calls in it
            self._started = {
                place: mark
                for place, mark in self._started.items()
                if (*place[0], place[1])[: len(inside)] != inside
            }
        branch.advance(resume, value)
        if branch.effect is not None:
            for place, steps in enumerate(branches_of(branch.effect)):
                self._start((*branch.path, branch.number, place), steps)

    def _inside(self, branch: Branch) -> list[Branch]:
        """The branches of the effect that a branch waits for."""
        if branch.effect is None:
            return []
        many = len(branches_of(branch.effect))
        return [self._branches[(*branch.path, branch.number, place)] for place in range(many)]

    def _continued(self, branch: Branch, record: Record) -> Steps[Any]:
        if branch.is_over:
            return _over(branch)
        inside = [self._continued(inner, record) for inner in self._inside(branch)]
        return record.wrap(branch, functools.partial(_with_branches, inside) if inside else None)

    # Entries

    def _is_same(self, effect: Effect, number: int, entry: Entry) -> bool:
        if number != entry.number or KINDS.get(type(effect)) != entry.kind:
            return False
        if not isinstance(effect, Call):
            return True
        if (effect.label, effect.key) != (entry.label, entry.key):
            return False
        return not entry.asked or self.digests.of(effect) == entry.asked

    def _error_of(self, entry: Entry, effect: Effect) -> BaseException | None:
        if entry.raised_in is None:
            return entry.error
        inside = self._branches[(*entry.path, entry.number, entry.raised_in)]
        self._perform_emits(inside)
        if inside.error is None:
            raise self._error(entry, None, effect)
        return inside.error

    def _outcome_of(self, entry: Entry, branch: Branch, effect: Effect) -> Any:
        if not isinstance(effect, (Parallel, Bounded)):
            return entry.outcome
        inside = self._inside(branch)
        for one in inside:
            self._perform_emits(one)
        if not all(one.is_over and one.error is None for one in inside):
            raise self._error(entry, None, effect)
        values = [one.value for one in inside]
        return values if isinstance(effect, Parallel) else values[0]

    def _branch_of(self, path: Path) -> Branch | None:
        """The branch of a path; it starts when the events before it, which a log may leave out, are emitted."""
        if path and path not in self._branches:
            around = self._branch_of(path[:-2])
            if around is not None:
                self._perform_emits(around, path[-2])
        return self._branches.get(path)

    def _perform_emits(self, branch: Branch, number: int | None = None) -> None:
        """Emit the events that a branch waits to emit, before its effect of a number; None means all."""
        while isinstance(branch.effect, Emit) and (number is None or branch.number < number):
            self._perform_emit(branch)

    def _perform_emit(self, branch: Branch) -> None:
        self._deliver_of(branch)
        self._advance(branch, branch.steps.send, None)

    def _deliver_of(self, branch: Branch) -> None:
        """Deliver the event that a branch emits, unless the log has said before that it was emitted."""
        if isinstance(branch.effect, Emit) and branch.emitted != branch.number:
            branch.emitted = branch.number
            self._deliver(branch.effect.event)

    def _deliver(self, event: Any) -> None:
        self.events += 1
        self._iteration = getattr(event, "iteration", self._iteration)
        if self._emit is not None:
            self._emit(event)

    def _error(
        self,
        entry: Entry,
        branch: Branch | None,
        effect: Effect | None = None,
        waits_for: str = "",
    ) -> ReplayError:
        """The error of an entry that does not fit; raises an interruption that has led the steps elsewhere."""
        for one in self._branches.values():
            interruption = None if one.is_over else interruption_of(one.steps)
            if interruption is not None:
                raise interruption
        found = effect if branch is None else branch.effect
        described = waits_for or _described(found, entry)
        error = ReplayError(str(entry), described, self._iteration)
        if self._differs is not None:
            self._differs(error)
        return error


def _described(effect: Effect | None, entry: Entry) -> str:
    """What the steps ask for in place of what was recorded."""
    name = _name_of(effect)
    if not isinstance(effect, Call) or (effect.label, effect.key) != (entry.label, entry.key):
        return name
    return f"{name} with {'another request' if effect.label == 'chat' else 'other arguments'}"


def _name_of(effect: Effect | None) -> str:
    if effect is None:
        return "the end of these steps"
    if isinstance(effect, Emit):
        return f"the event {type(effect.event).__name__}"
    if not isinstance(effect, Call):
        return KINDS.get(type(effect), type(effect).__name__)
    return str(Entry(label=effect.label, key=effect.key))


def _over(branch: Branch) -> Steps[Any]:
    """Steps that end as a branch did."""
    yield from ()
    if branch.error is not None:
        raise branch.error
    return branch.value


def _with_branches(inside: list[Steps[Any]], effect: Effect) -> Effect:
    if isinstance(effect, Parallel):
        return Parallel(inside, effect.limit)
    if isinstance(effect, Bounded):
        return Bounded(inside[0], seconds=effect.seconds, until=effect.until)
    return effect
