"""Effects are enough: a recorder of what became of every effect, and a replay that needs nothing else.

The log is one flat list, in the order in which things happened. An entry has the path of the steps
that asked for the effect, and its outcome or what it raised. The steps within a `Parallel` or a
`Bounded` are branches: the path of their parent, the number of the effect in it, their own place.
What a call reports while it runs is an entry before that of its outcome: a `Reported`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from treadle.effects import (
    Bounded,
    Call,
    Cancelled,
    Effect,
    Emit,
    Parallel,
    Reporter,
    Steps,
    with_reporter,
)

Path = tuple[int, ...]
Entry = tuple[Path, Any, BaseException | None]


@dataclass(frozen=True)
class Reported:
    """An event that a call emitted while it ran."""

    event: Any


class RecordingReporter:
    """Records what one call reports, and passes it on.

    Args:
        inner: the reporter of the driver.
        path: of the steps that make the call.
        log: where to record.
    """

    def __init__(self, inner: Reporter, path: Path, log: list[Entry]) -> None:
        self.now = inner.now
        self._emit = inner.emit
        self._path = path
        self._log = log

    def emit(self, event: Any) -> Any:
        self._log.append((self._path, Reported(event), None))
        return self._emit(event)


class Recorder:
    """A layer that keeps the outcomes of a run's effects."""

    def __init__(self) -> None:
        self.log: list[Entry] = []

    def __call__(self, steps: Steps[Any], path: Path = ()) -> Steps[Any]:
        resume, value, number = steps.send, None, 0
        try:
            while True:
                effect, number = resume(value), number + 1
                inner = branches(effect)
                changed = self._with_reporter(effect, path)
                for place, branch in enumerate(inner):
                    inner[place] = self(branch, (*path, number, place))
                if isinstance(changed, Parallel):
                    changed.steps = inner
                elif isinstance(changed, Bounded):
                    [changed.steps] = inner
                try:
                    resume, value = steps.send, (yield changed)
                    self.log.append((path, None if inner else value, None))
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as error:
                    resume, value = steps.throw, error
                    raised = error if isinstance(error, Exception) else Cancelled()
                    self.log.append((path, None, raised))
        except StopIteration as stop:
            return stop.value

    def _with_reporter(self, effect: Effect, path: Path) -> Effect:
        if not isinstance(effect, Call):
            return copy.copy(effect)
        return with_reporter(effect, lambda inner: RecordingReporter(inner, path, self.log))


def branches(effect: Effect) -> list[Steps[Any]]:
    """The steps within an effect."""
    if isinstance(effect, Parallel):
        return list(effect.steps)
    return [effect.steps] if isinstance(effect, Bounded) else []


def replay(steps: Steps[Any], log: list[Entry], emit: Callable[[Any], Any]) -> Any:
    """Run steps from a log, without a driver and without the world.

    Args:
        steps: those that were recorded, made anew.
        log: what a recorder kept.
        tell: is handed the events.

    Returns:
        What the steps return; or raises what they raise.
    """
    live: dict[Path, Steps[Any]] = {}
    asked: dict[Path, tuple[int, Effect]] = {}
    returned: dict[Path, Any] = {}

    def advance(path: Path, resume: Callable[[Any], Effect], value: Any) -> None:
        number = asked.pop(path, (0, None))[0] + 1
        try:
            effect = resume(value)
        except StopIteration as stop:
            returned[path] = stop.value
        except BaseException:
            if not path:
                raise
        else:
            asked[path] = number, effect
            for place, branch in enumerate(branches(effect)):
                start((*path, number, place), branch)

    def start(path: Path, branch: Steps[Any]) -> None:
        live[path] = branch
        advance(path, branch.send, None)

    start((), steps)
    for path, outcome, error in log:
        if isinstance(outcome, Reported):
            emit(outcome.event)
            continue
        number, effect = asked[path]
        if isinstance(effect, Emit):
            emit(effect.event)
        if error is not None:
            advance(path, live[path].throw, error)
        elif inner := [returned[(*path, number, n)] for n in range(len(branches(effect)))]:
            advance(path, live[path].send, inner if isinstance(effect, Parallel) else inner[0])
        else:
            advance(path, live[path].send, outcome)
    return returned[()]
