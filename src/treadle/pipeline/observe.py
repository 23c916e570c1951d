"""Observers of stages: start, stop with duration, exception. Without observers this costs nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from treadle.effects import NOW, Steps, log_suppressed
from treadle.fast_dataclass import fast_dataclass
from treadle.pipeline.compiler import Kind, Op
from treadle.pipeline.execute import run_stage


@fast_dataclass
class StageEvent:
    """The start or the end of a stage, for one item.

    Args:
        kind: ``start``, ``stop`` or ``exception``.
        stage: the stage's name.
        item: the item that entered; at ``stop`` the item that the stage returned.
        at: seconds since the epoch.
        duration: seconds since the start; None at ``start``.
        error: the exception that the stage raised, at ``exception``.
    """

    kind: Literal["start", "stop", "exception"]
    stage: str
    item: Any
    at: float
    duration: float | None = None
    error: BaseException | None = None


StageObserver: TypeAlias = Callable[[StageEvent], object]
"""A callable that receives the events of stages."""


def observed(op: Op, observers: Sequence[StageObserver]) -> Op:
    """Copy the operation of a stage so that it notifies observers: of a start, and of one stop or exception."""
    if not observers or op.kind > Kind.CALL:
        return op

    def notify(event: StageEvent) -> None:
        for observer in observers:
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 - an observer must not change the run
                log_suppressed(error)

    def run(item: Any) -> Steps[Any]:
        started = yield NOW
        notify(StageEvent("start", op.name, item, started))
        try:
            result = yield from run_stage(op, item)
        except GeneratorExit:  # the run was abandoned: no driver can read the clock
            raise
        except BaseException as error:
            ended = yield NOW
            notify(StageEvent("exception", op.name, item, ended, ended - started, error))
            raise
        ended = yield NOW
        notify(StageEvent("stop", op.name, result, ended, ended - started))
        return result

    return dataclasses.replace(op, kind=Kind.GENERATOR, fn=run)
