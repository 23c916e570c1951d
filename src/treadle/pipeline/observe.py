"""Watching stages: start, stop with duration, exception. Who has no observers pays nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from treadle.effects import NOW, Steps, log_suppressed
from treadle.pipeline.compiler import Kind, Op
from treadle.pipeline.execute import stepped


@dataclasses.dataclass(frozen=True, slots=True)
class StageEvent:
    """Something that happened to an item in a stage.

    Args:
        kind: ``start``, ``stop`` or ``exception``.
        stage: the stage's name.
        item: the item that entered, or at ``stop`` the item that left.
        at: seconds since the epoch.
        duration: seconds since the start; None at ``start``.
        error: what the stage raised, at ``exception``.
    """

    kind: Literal["start", "stop", "exception"]
    stage: str
    item: Any
    at: float
    duration: float | None = None
    error: BaseException | None = None


StageObserver: TypeAlias = Callable[[StageEvent], object]


def observed(ops: Sequence[Op], observers: Sequence[StageObserver]) -> list[Op]:
    """Make a program whose stages tell the observers.

    Args:
        ops: the program; it is left as it is.
        observers: each is called with every event. One that raises is logged and changes nothing.
            Each start is followed by one stop or exception, a cancellation being an exception too.
    """

    def tell(event: StageEvent) -> None:
        for observer in observers:
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 - a watcher changes nothing
                log_suppressed(error)

    return [_watched(op, tell) if op.kind <= Kind.ASYNC else op for op in ops]


def _watched(op: Op, tell: Callable[[StageEvent], None]) -> Op:
    def run(item: Any) -> Steps[Any]:
        started = yield NOW
        tell(StageEvent("start", op.name, item, started))
        try:
            result = yield from stepped(op, item)
        except GeneratorExit:  # the run was abandoned: there is no clock any more
            raise
        except BaseException as error:
            ended = yield NOW
            tell(StageEvent("exception", op.name, item, ended, ended - started, error))
            raise
        ended = yield NOW
        tell(StageEvent("stop", op.name, result, ended, ended - started))
        return result

    return dataclasses.replace(op, kind=Kind.STEPS, fn=run)
