"""Walking an item through a program: the one place where stages run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.effects import Call, Mode, Steps, is_awaitable
from treadle.pipeline.compiler import Kind, Op, same
from treadle.pipeline.components import Fn
from treadle.pipeline.errors import StageError


def _no_names() -> list[str]:
    return []


def _no_memos() -> dict[int, Any]:
    return {}


def _no_parts() -> list[tuple[Any, int, tuple[Any, ...], int]]:
    return []


type_of: Callable[[object], object] = type  # of an Any, as far as type checkers can tell
_PLAIN, _STEPS, _ASYNC, _GOTO = Kind.PLAIN, Kind.STEPS, Kind.ASYNC, Kind.GOTO


@dataclass(slots=True)
class Progress:
    """How far an item has come; kept up to date while it is under way.

    Args:
        item: the item as it entered the stage that it is in, or left the last one.
        stages: the names of the stages that it entered, in order.
    """

    item: Any = None
    stages: list[str] = field(default_factory=_no_names)


@dataclass(slots=True)
class Run:
    """What one run of a program remembers.

    Args:
        ops: the program.
        classes: what every stage has to return one of; none takes anything.
        memos: the memo of each composer, by its place; empty when a run begins.
        turn: waits until this item may pass a composer, given its place; None where there is but
            one item.
        kept: the originals of the plugs that the item is in, the innermost last.
        parts: what composers made and is yet to go on: item, place, originals, length of its trace.
    """

    ops: Sequence[Op]
    classes: tuple[type, ...] = ()
    memos: dict[int, Any] = field(default_factory=_no_memos)
    turn: Callable[[int], Steps[None]] | None = None
    kept: tuple[Any, ...] = ()
    parts: list[tuple[Any, int, tuple[Any, ...], int]] = field(default_factory=_no_parts)


def walk(  # noqa: C901, PLR0912 - the hot loop: a call would cost more than the branch
    run: Run, item: Any, out: Callable[[Any], object], trace: Progress, at: int = 0
) -> Steps[None]:
    """Take an item through a program.

    Args:
        run: the program and its memory.
        item: the item.
        out: is handed every item that comes out.
        trace: is kept up to date.
        at: the place where the item enters.

    Raises:
        StageError: a stage raised. A cancellation passes through as it is.
    """
    ops, end, known = run.ops, len(run.ops), None
    entered, op = trace.stages.append, None
    trace.item = item
    try:
        while True:
            while at < end:
                op = ops[at]
                kind = op.kind
                if kind <= _ASYNC:
                    at += 1
                    entered(op.name)
                    if kind is _PLAIN:
                        item = op.fn(item)
                    elif kind is _STEPS:
                        steps: Steps[Any] = op.fn(item)
                        item = yield from steps
                    else:
                        item = yield _call_of(op, op.fn, item)
                    if type_of(item) is not known:
                        if is_awaitable(item):  # a plain function made a coroutine
                            item = yield _call_of(op, same, item)
                        _check_type(run, item)
                        known = type_of(item)
                    if op.review is not None:
                        item = op.review(op.name, trace.item, item)
                    if op.until is not None and op.until(item):
                        at = op.target
                elif kind <= _GOTO:
                    at = _way_on(op, at, item)
                else:
                    item, at = yield from _turn_out(run, op, at, item, trace)
                    known = None
                trace.item = item
            if at == end:
                out(item)
            if not run.parts:
                return
            item, at, run.kept, length = run.parts.pop()
            del trace.stages[length:]
            trace.item = item
    except Exception as cause:
        raise _stage_error(op, trace, cause) from cause


def _stage_error(op: Op | None, trace: Progress, cause: Exception) -> StageError:
    name = op.name if op is not None else ""
    stages = tuple(trace.stages)
    if stages[-1:] != (name,):  # a component that is no stage
        stages = (*stages, name)
    return StageError(name, trace.item, cause, stages)


def _call_of(op: Op, fn: Fn, item: Any, mode: Mode = Mode.ASYNC) -> Call:
    return Call(fn, item, mode=mode, label="stage", key=op.name)


def stepped(op: Op, item: Any, mode: Mode = Mode.INLINE) -> Steps[Any]:
    """Run one stage as steps, for what is wrapped around it.

    Args:
        op: the stage.
        item: what enters it.
        mode: how to call a plain function.
    """
    if op.kind is Kind.STEPS:
        steps: Steps[Any] = op.fn(item)
        return (yield from steps)
    if op.kind is Kind.PLAIN and mode is Mode.INLINE:
        result = op.fn(item)
        if not is_awaitable(result):
            return result
        return (yield _call_of(op, same, result))
    return (yield _call_of(op, op.fn, item, Mode.ASYNC if op.kind is Kind.ASYNC else mode))


def _way_on(op: Op, at: int, item: Any) -> int:
    """Where the item goes from an operation that leaves it as it is."""
    match op.kind:
        case Kind.JUMP:
            return op.target
        case Kind.GOTO:
            return op.target if op.fn(item) else at + 1
        case _:
            key = op.fn(item)
            if key not in op.table:
                known = ", ".join(repr(branch) for branch in op.table)
                raise KeyError(f"no branch for {key!r}; the branches are {known}")
            return op.table[key]


def _turn_out(run: Run, op: Op, at: int, item: Any, trace: Progress) -> Steps[tuple[Any, int]]:
    """Perform what may have another item go on, or none: the item, and where it goes."""
    nowhere = len(run.ops) + 1
    match op.kind:
        case Kind.PLUG:
            trace.stages.append(op.name)
            run.kept, item = (*run.kept, item), op.fn(item)
            return item, at + 1
        case Kind.UNPLUG:
            original = run.kept[-1]
            item, run.kept = op.fn(item, original), run.kept[:-1]
            _check_type(run, item)
            if op.review is not None:
                trace.item = original
                item = op.review(op.name, original, item)
            return item, op.target if op.until is not None and op.until(item) else at + 1
        case Kind.COMPOSE:
            trace.stages.append(op.name)
            if run.turn is not None:
                yield from run.turn(at)
            made = [
                (part, place, run.kept, len(trace.stages))
                for part, place in _compose(run, op, at, item)
            ]
            run.parts.extend(reversed(made))
            return item, nowhere
        case _:
            return item, nowhere


def _compose(run: Run, op: Op, at: int, item: Any) -> list[tuple[Any, int]]:
    """Make several items of one, each with the place where it goes on."""
    if at not in run.memos:
        run.memos[at] = copy.deepcopy(op.memo)
    parts, memo = op.fn(item, run.memos[at])
    made = list(parts)
    for part in made:
        _check_type(run, part)
    if op.review is not None:
        made = [op.review(op.name, item, part) for part in made]
    run.memos[at] = memo
    leaves = op.until
    return [(part, op.target if leaves is not None and leaves(part) else at + 1) for part in made]


def _check_type(run: Run, item: Any) -> None:
    """See that an item is of the type that the pipeline is about, where it is about one."""
    if not run.classes or run.kept or isinstance(item, run.classes):
        return
    wanted = " or ".join(cls.__name__ for cls in run.classes)
    hint = "; is a return missing?" if item is None else ""
    raise TypeError(f"it returned {type(item).__name__}, and a {wanted} has to go on{hint}")
