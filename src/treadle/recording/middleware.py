"""Middleware that writes the log of a run: what becomes of each effect, as it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from treadle.effects import (
    Bounded,
    Call,
    Cancelled,
    Effect,
    Emit,
    Parallel,
    Reporter,
    Steps,
    log_suppressed,
    remaining_steps,
    with_reporter,
)
from treadle.recording.digests import Digests
from treadle.recording.log import KINDS, REPORTED, STARTED, Entry, Path, branches_of
from treadle.recording.replay import Branch

R = TypeVar("R")


class LogMiddleware:
    """Writes the log of one run; use it once, as middleware of the run.

    Args:
        write: receives the entries, in order, and in any thread. It does not block, and does not raise.
        digests: makes the digests of what calls ask; None makes new ones.
        reports: also write the events that calls emit while they run, such as the pieces of a stream.

    Attributes:
        digests: those; a run that was replayed goes on with those of the replay.
    """

    def __init__(
        self,
        write: Callable[[Entry], None],
        digests: Digests | None = None,
        *,
        reports: bool = True,
    ) -> None:
        self.write = write
        self.digests = digests or Digests()
        self._reports = reports

    def __call__(self, steps: Steps[R]) -> Steps[R]:
        """Wrap the steps of a run that has not started."""
        return self.wrap(Branch(steps, ()), None)

    def wrap(  # noqa: C901 - both exceptions of an effect and of its entry
        self, branch: Branch, inner: Callable[[Effect], Effect] | None
    ) -> Steps[Any]:
        """Run the steps of a branch, and record the outcome of each effect."""
        steps, path, number, effect = branch.steps, branch.path, branch.number, branch.effect
        resume: Callable[[Any], Effect] = steps.send
        value: Any = None
        is_ended = False
        try:
            while True:
                if effect is None:
                    effect, number, inner = resume(value), number + 1, None
                if not is_ended and effect.__class__ is not Emit:
                    self.look(steps)
                entry = self._entry_of(effect, path, number)
                raised: dict[int, BaseException] = {}
                try:
                    made = self._wrapped(effect, path, number, raised, inner)
                    value = yield from self.perform(made, entry)
                    resume, entry = steps.send, self._ended(entry, effect, value)
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as error:
                    if self.is_void(error, path):
                        yield from _cancelling(steps)
                        raise
                    is_ended = is_ended or not isinstance(error, Exception)
                    resume, value, entry = steps.throw, error, self._failed(entry, error, raised)
                try:
                    yield from self.record(entry)
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as error:  # the steps are cancelled meanwhile
                    if self.is_void(error, path):
                        yield from _cancelling(steps)
                        raise
                    is_ended = is_ended or not isinstance(error, Exception)
                    resume, value = steps.throw, error
                    self.write(self._failed(entry, error, {}))
                effect = None
        except StopIteration as stop:
            return stop.value
        finally:
            del value, effect  # an exception refers to this frame, which would keep it alive

    # What a journal does besides

    def perform(self, effect: Effect, entry: Entry) -> Steps[Any]:
        """Perform an effect.

        Args:
            effect: the effect, with its branches wrapped.
            entry: its entry, without the outcome.
        """
        if entry.path and isinstance(effect, Emit):  # other steps may go on before these do
            self.write(Entry(entry.path, entry.number, STARTED))
        return (yield effect)

    def record(self, entry: Entry) -> Steps[None]:
        """Write the entry of an effect that has an outcome."""
        self.write(entry)
        yield from ()

    def is_void(self, error: BaseException, path: Path) -> bool:  # noqa: ARG002
        """Whether an exception ends the recording. The steps do not receive it: they are cancelled."""
        return False

    def look(self, steps: Steps[Any]) -> None:
        """Look at steps that yielded an effect and were not cancelled, before it is performed."""

    # Entries

    def _entry_of(self, effect: Effect, path: Path, number: int) -> Entry:
        kind = KINDS.get(type(effect), "")
        if isinstance(effect, Call):
            asked = self.digests.of(effect)
            return Entry(path, number, kind, effect.label, effect.key, asked=asked)
        return Entry(path, number, kind)

    @staticmethod
    def _ended(entry: Entry, effect: Effect, outcome: Any) -> Entry:
        """The entry with its outcome; that of branches is in their own entries."""
        if outcome is None or isinstance(effect, (Parallel, Bounded, Emit)):
            return entry
        path, number, kind, label, key = (
            entry.path,
            entry.number,
            entry.kind,
            entry.label,
            entry.key,
        )
        return Entry(path, number, kind, label, key, outcome, asked=entry.asked)

    @staticmethod
    def _failed(entry: Entry, error: BaseException, raised: dict[int, BaseException]) -> Entry:
        """The entry with an error, or with the place of the branch that raised it."""
        place = next((place for place, one in raised.items() if one is error), None)
        if not isinstance(error, Exception):  # a cancellation, by any class
            error, place = Cancelled(), None
        return Entry(
            entry.path,
            entry.number,
            entry.kind,
            entry.label,
            entry.key,
            error=error if place is None else None,
            raised_in=place,
            asked=entry.asked,
        )

    def _wrapped(
        self,
        effect: Effect,
        path: Path,
        number: int,
        raised: dict[int, BaseException],
        inner: Callable[[Effect], Effect] | None,
    ) -> Effect:
        """The effect with its branches, or its reporter, wrapped."""
        if isinstance(effect, Call):
            if not (self._reports and effect.reporting):
                return effect
            return with_reporter(effect, lambda one: _Reporter(one, self.write, path, number))
        if not isinstance(effect, (Parallel, Bounded)):
            return effect
        if inner is not None:
            branches = branches_of(inner(effect))
        else:
            inside = enumerate(branches_of(effect))
            branches = [self.wrap(Branch(one, (*path, number, n)), None) for n, one in inside]
        noted = [_noting(one, place, raised) for place, one in enumerate(branches)]
        if isinstance(effect, Parallel):
            return Parallel(noted, effect.limit)
        return Bounded(noted[0], seconds=effect.seconds, until=effect.until)


def _cancelling(steps: Steps[Any]) -> Steps[None]:
    """Cancel steps, and perform their cleanup."""
    failure = yield from remaining_steps(steps, Cancelled())
    if failure is not None:
        log_suppressed(failure)


def _noting(steps: Steps[R], place: int, raised: dict[int, BaseException]) -> Steps[R]:
    """Note what a branch raises, by which the error of the effect around it is recognized."""
    try:
        return (yield from steps)
    except GeneratorExit:
        raise
    except BaseException as error:
        raised[place] = error
        raise


class _Reporter:
    """Writes what one call reports, and passes it on."""

    __slots__ = ("_inner", "_number", "_path", "_write", "now")

    def __init__(
        self, inner: Reporter, write: Callable[[Entry], None], path: Path, number: int
    ) -> None:
        self.now = inner.now
        self._inner = inner
        self._write = write
        self._path = path
        self._number = number

    def emit(self, event: Any, listener: Callable[[Any], Any] | None = None) -> Any:
        """Hand an event to the given listener, or to those of the run."""
        if listener is None:
            self._write(Entry(self._path, self._number, REPORTED, outcome=event))
        return self._inner.emit(event, listener)
