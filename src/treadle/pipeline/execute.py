"""Executes operations on one item. Every way to run a pipeline uses this generator."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from treadle.effects import Call, Steps, failure_of, is_awaitable, is_exit
from treadle.pipeline.compiler import Kind, Op, same
from treadle.pipeline.errors import StageError

_PLAIN, _GENERATOR, _CALL, _JUMP = Kind.PLAIN, Kind.GENERATOR, Kind.CALL, Kind.JUMP


@dataclass(slots=True, eq=False)
class Progress:
    """The progress of an item through a pipeline, updated during execution.

    Args:
        item: the item as it entered the current stage, or as the last stage returned it.
        stages: the names of the stages that the item entered, in order.
        position: the position of the operation at which the item left.
    """

    item: Any = None
    stages: list[str] = field(default_factory=cast("type[list[str]]", list))
    position: int = 0


def execute(
    ops: Sequence[Op],
    classes: tuple[type, ...],
    item: Any,
    progress: Progress,
    position: int = 0,
) -> Steps[Any]:
    """Execute operations on an item from a position on, up to the first one at which it leaves; see `Kind`."""
    op, kind, entered = ops[position], _JUMP, progress.stages.append
    progress.item = item
    try:
        while True:
            op = ops[position]
            kind, fn = op.kind, op.fn  # a local name is quicker to call than an attribute
            if kind is _PLAIN:
                entered(op.name)
                item = fn(item)
            elif kind is _GENERATOR:
                entered(op.name)
                steps: Steps[Any] = fn(item)
                item = yield from steps
            elif kind is _CALL:
                entered(op.name)
                item = yield _call(fn, item, op)
            elif kind is _JUMP:
                position = fn(item)
                continue
            else:
                progress.position = position
                return item
            position += 1
            if not isinstance(item, classes):
                if is_awaitable(item):  # a plain function may return a coroutine
                    kind = _CALL
                    item = yield _call(same, item, op)
                check_type(item, classes)
            until = op.until
            if until is not None and until(item):
                position = op.target
            progress.item = item
    except BaseException as error:
        raise_as_stage_error(error, op.name, kind, progress)
        raise


def run_stage(op: Op, item: Any) -> Steps[Any]:
    """Run one stage as steps, so that they can be wrapped; does the same as `execute`."""
    if op.kind is _CALL:
        return (yield _call(op.fn, item, op))
    try:
        result: Any = op.fn(item)
    except BaseException as cause:  # noqa: BLE001 - raised again
        raise failure_of(cause) or cause  # noqa: B904 - a failure has its cause
    if op.kind is _GENERATOR:
        steps: Steps[Any] = result
        return (yield from steps)
    return (yield _call(same, result, op)) if is_awaitable(result) else result


def _call(fn: Any, item: Any, op: Op) -> Call:
    return Call(fn, item, mode=op.mode, label="stage", key=op.name)


def check_type(item: Any, classes: tuple[type, ...]) -> None:
    """Raise `TypeError` for an item that is of none of the classes, if there are some."""
    if classes and not isinstance(item, classes):
        expected = " or ".join(cls.__name__ for cls in classes)
        hint = "; is a return missing?" if item is None else ""
        if issubclass(item.__class__, Generator):
            hint = "; a generator runs with: return (yield from ...)"
        raise TypeError(f"it returned {type(item).__name__}, expected {expected}{hint}")


def raise_as_stage_error(error: BaseException, name: str, kind: Kind, progress: Progress) -> None:
    """Raise the failure of an operation as a `StageError`; a cancellation and an interrupt are none."""
    cause: Exception | None = error if isinstance(error, Exception) else None
    if cause is None and (kind is _PLAIN or is_exit(error)):
        cause = failure_of(error)  # a plain function raised it itself
    if cause is not None:
        stages = tuple(progress.stages)
        if stages[-1:] != (name,):  # a component that is not a stage, such as a switch
            stages = (*stages, name)
        raise StageError(name, progress.item, cause, stages) from cause
