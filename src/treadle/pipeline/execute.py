"""Executes a program on an item. Every way to run a pipeline uses this generator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, cast

from treadle.effects import Call, Mode, Steps, failure_of, is_awaitable, is_exit
from treadle.pipeline.compiler import Kind, Op, same
from treadle.pipeline.errors import StageError

_PLAIN, _GENERATOR, _CALL, _GOTO = Kind.PLAIN, Kind.GENERATOR, Kind.CALL, Kind.GOTO
_END = Kind.END
_NO_OP = Op(Kind.PLAIN)
_NOWHERE = -1
"""The position of an item that does not continue."""


@dataclass(slots=True, eq=False)
class Progress:
    """The progress of an item through a pipeline, updated during execution.

    Args:
        item: the item as it entered the current stage, or as the last stage returned it.
        stages: the names of the stages that the item entered, in order.
        originals: the items outside the current plugs, outermost first.
    """

    item: Any = None
    stages: list[str] = field(default_factory=cast("type[list[str]]", list))
    originals: tuple[Any, ...] = ()


class Pending(NamedTuple):
    """An item that a composer made and that has not continued yet."""

    item: Any
    position: int
    originals: tuple[Any, ...]
    stages: int  # length of Progress.stages when it was made


Admit: TypeAlias = Callable[[int], Steps[None]]
"""Waits until the item may enter the composer at a position."""


class Execution:
    """The state of one execution of a program.

    Args:
        ops: the program.
        classes: the classes of valid items; empty accepts anything.
        memos: the current memo of each composer, by position. The items of a stream share it.
        admit: called before each composer; None for a single item.

    Attributes:
        out: the items that left the program.
        pending: the items that a composer made and that have not continued yet.
    """

    __slots__ = ("admit", "classes", "memos", "ops", "out", "pending")

    def __init__(
        self,
        ops: Sequence[Op],
        classes: tuple[type, ...],
        memos: dict[int, Any] | None = None,
        admit: Admit | None = None,
    ) -> None:
        self.ops = ops
        self.classes = classes
        self.memos: dict[int, Any] = {} if memos is None else memos
        self.admit = admit
        self.pending: list[Pending] = []
        self.out: list[Any] = []


def execute(  # noqa: C901, PLR0912, PLR0915 - the hot loop: a call costs more than a branch
    run: Execution,
    item: Any,
    progress: Progress,
    position: int = 0,
) -> Steps[list[Any]]:
    """Execute a program on an item.

    Args:
        run: the program and the state of its execution.
        item: the item.
        progress: updated after every operation.
        position: the position at which the item enters.

    Returns:
        The items that left the program.

    Raises:
        StageError: a stage raised. A cancellation of these steps is not wrapped.
    """
    ops, valid_type, kind = run.ops, None, _END
    entered, op = progress.stages.append, _NO_OP
    progress.item = item
    try:
        while True:
            op = ops[position]
            kind, fn = op.kind, op.fn  # a method is looked up slowly where it is an attribute
            if kind is _PLAIN:
                entered(op.name)
                item = fn(item)
            elif kind is _GENERATOR:
                entered(op.name)
                steps: Steps[Any] = fn(item)
                item = yield from steps
            elif kind is _CALL:
                entered(op.name)
                item = yield Call(fn, item, mode=op.mode, label="stage", key=op.name)
            elif kind <= _GOTO:
                position = _next_position(op, position, item)
                continue
            else:
                if kind is _END:
                    run.out.append(item)
                    position = _NOWHERE
                else:
                    item, position = yield from _change_item(run, op, position, item, progress)
                if position == _NOWHERE:
                    if not run.pending:
                        return run.out
                    item, position, progress.originals, length = run.pending.pop()
                    del progress.stages[length:]
                progress.item, valid_type = item, None
                continue
            position += 1
            if item.__class__ is not valid_type:
                # A plain function may have returned a coroutine.
                if not isinstance(item, run.classes) and is_awaitable(item):
                    kind = _CALL
                    item = yield _awaiting(op, item)
                _check_type(run, item, progress)
                valid_type = item.__class__
            if op.review is not None:
                item = op.review(op.name, progress.item, item)
            until = op.until
            if until is not None and until(item):
                position = op.target
            progress.item = item
    except BaseException as error:
        cause = error if isinstance(error, Exception) else None
        if kind is _PLAIN:  # nothing else can have raised it
            cause = cause or failure_of(error)
        elif cause is None and is_exit(error):
            cause = failure_of(error)
        if cause is None:
            raise
        raise _stage_error(op.name, progress, cause) from cause


def _stage_error(name: str, progress: Progress, cause: Exception) -> StageError:
    stages = tuple(progress.stages)
    if stages[-1:] != (name,):  # a component that is not a stage, such as a switch
        stages = (*stages, name)
    return StageError(name, progress.item, cause, stages)


def _awaiting(op: Op, awaitable: Any) -> Call:
    return Call(same, awaitable, mode=Mode.ASYNC, label="stage", key=op.name)


def run_stage(op: Op, item: Any) -> Steps[Any]:
    """Run one stage as steps, so that they can be wrapped; does the same as `execute`."""
    if op.kind is Kind.CALL:
        return (yield Call(op.fn, item, mode=op.mode, label="stage", key=op.name))
    try:
        result: Any = op.fn(item)
    except BaseException as cause:
        failure = failure_of(cause)
        if failure is None:
            raise
        raise failure  # noqa: B904 - it has its cause
    if op.kind is Kind.GENERATOR:
        steps: Steps[Any] = result
        return (yield from steps)
    return (yield _awaiting(op, result)) if is_awaitable(result) else result


def _next_position(op: Op, position: int, item: Any) -> int:
    """The next position after an operation that leaves the item unchanged."""
    match op.kind:
        case Kind.JUMP:
            return op.target
        case Kind.GOTO:
            return op.target if op.fn(item) else position + 1
        case _:
            key = op.fn(item)
            if key not in op.table:
                known = ", ".join(repr(branch) for branch in op.table)
                raise KeyError(f"no branch for {key!r}; the branches are {known}")
            return op.table[key]


def _change_item(
    run: Execution, op: Op, position: int, item: Any, progress: Progress
) -> Steps[tuple[Any, int]]:
    """Perform an operation that may replace or drop the item; return the next item and its position."""
    match op.kind:
        case Kind.PLUG:
            progress.stages.append(op.name)
            inner = op.fn(item)
            progress.originals = (*progress.originals, item)
            return inner, position + 1
        case Kind.UNPLUG:
            original = progress.originals[-1]
            item = op.fn(item, original)
            progress.item, progress.originals = original, progress.originals[:-1]
            _check_type(run, item, progress)
            if op.review is not None:
                item = op.review(op.name, original, item)
            return item, _position_after(op, position, item)
        case Kind.COMPOSE:
            progress.stages.append(op.name)
            if run.admit is not None:
                yield from run.admit(position)
            length = len(progress.stages)
            made = [
                Pending(part, _position_after(op, position, part), progress.originals, length)
                for part in _compose(run, op, position, item, progress)
            ]
            run.pending.extend(reversed(made))
            return item, _NOWHERE
        case _:
            return item, _NOWHERE


def _position_after(op: Op, position: int, item: Any) -> int:
    return op.target if op.until is not None and op.until(item) else position + 1


def _compose(run: Execution, op: Op, position: int, item: Any, progress: Progress) -> list[Any]:
    """Make several items from one. The new memo is kept only if all of them are valid."""
    if position not in run.memos:
        run.memos[position] = copy.deepcopy(op.memo)
    parts, memo = op.fn(item, run.memos[position])
    made = list(parts)
    for part in made:
        _check_type(run, part, progress)
    if op.review is not None:
        made = [op.review(op.name, item, part) for part in made]
    run.memos[position] = memo
    return made


def _check_type(run: Execution, item: Any, progress: Progress) -> None:
    """Check the type of an item, unless it is inside a plug."""
    if not run.classes or progress.originals or isinstance(item, run.classes):
        return
    expected = " or ".join(cls.__name__ for cls in run.classes)
    hint = "; is a return missing?" if item is None else ""
    raise TypeError(f"it returned {type(item).__name__}, expected {expected}{hint}")
