"""Watching stages: start, stop with duration, exception. Only a pipeline with observers pays for them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from treadle.pipeline.compiler import Kind, Op
from treadle.pipeline.effects import NOW, Call, Mode, Steps

log = logging.getLogger("treadle.pipeline")


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
    """

    def tell(event: StageEvent) -> None:
        for observer in observers:
            try:
                observer(event)
            except Exception:
                log.exception("an observer raised at %s of stage %r", event.kind, event.stage)

    def watched(op: Op) -> Op:
        if op.kind > Kind.ASYNC:
            return op

        def run(item: Any) -> Steps[Any]:
            started = yield NOW
            tell(StageEvent("start", op.name, item, started))
            try:
                if op.kind is Kind.PLAIN:
                    result = op.fn(item)
                elif op.kind is Kind.STEPS:
                    result = yield from op.fn(item)
                else:
                    result = yield Call(op.fn, item, mode=Mode.ASYNC, label="stage", key=op.name)
            except Exception as error:
                ended = yield NOW
                tell(StageEvent("exception", op.name, item, ended, ended - started, error))
                raise
            ended = yield NOW
            tell(StageEvent("stop", op.name, result, ended, ended - started))
            return result

        return dataclasses.replace(op, kind=Kind.STEPS, fn=run)

    return [watched(op) for op in ops]
