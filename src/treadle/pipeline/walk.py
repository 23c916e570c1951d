"""Walking an item through a program: the one place where stages run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.pipeline.compiler import Kind, Op
from treadle.pipeline.effects import Call, Mode, Steps
from treadle.pipeline.errors import StageError


@dataclass(slots=True)
class Trace:
    """How far an item has come; kept up to date while it is under way.

    Args:
        item: the item as it entered the stage that it is in, or left the last one.
        stages: the names of the stages that it entered, in order.
    """

    item: Any = None
    stages: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Run:
    """What one run of a program remembers.

    Args:
        ops: the program.
        item_type: what every stage has to return; None takes anything.
        memos: the memo of each composer, by its place; empty when a run begins.
        turn: waits until this item may pass a composer, given its place; None where there is but one item.
    """

    ops: Sequence[Op]
    item_type: type | None = None
    memos: dict[int, Any] = field(default_factory=dict[int, Any])
    turn: Callable[[int], Steps[None]] | None = None


def walk(
    run: Run,
    item: Any,
    out: Callable[[Any], object],
    trace: Trace,
    at: int = 0,
    kept: tuple[Any, ...] = (),
) -> Steps[None]:
    """Take an item through a program.

    Args:
        run: the program and its memory.
        item: the item.
        out: is handed every item that comes out.
        trace: is kept up to date.
        at: the place to begin.
        kept: the originals of the plugs that the item is in, the innermost last.

    Raises:
        StageError: a stage raised. A cancellation passes through as it is.
    """
    ops, item_type, end = run.ops, run.item_type, len(run.ops)
    entered = trace.stages.append
    trace.item = item
    op, parts = _START, None
    try:
        while at < end:
            op = ops[at]
            at += 1
            kind = op.kind
            if kind <= Kind.ASYNC:
                entered(op.name)
                if kind is Kind.PLAIN:
                    item = op.fn(item)
                elif kind is Kind.STEPS:
                    item = yield from op.fn(item)
                else:
                    item = yield Call(op.fn, item, mode=Mode.ASYNC, label="stage", key=op.name)
                if item_type is not None and not kept and not isinstance(item, item_type):
                    raise _wrong_type(item, item_type)
            elif kind is Kind.COMPOSE:
                entered(op.name)
                if run.turn is not None:
                    yield from run.turn(at)
                parts = _compose(run, op, at, item)
                break
            elif kind is Kind.DROP:
                return
            elif kind is Kind.PLUG:
                entered(op.name)
                kept, item = (*kept, item), op.fn(item)
            elif kind is Kind.UNPLUG:
                item, kept = op.fn(item, kept[-1]), kept[:-1]
            else:
                at = _way_on(op, at, item)
            trace.item = item
            if op.until is not None and op.until(item):
                at = op.target
    except Exception as cause:
        raise StageError(op.name, trace.item, cause, tuple(trace.stages)) from cause
    if parts is None:
        out(item)
        return
    for part, leaves in parts:
        yield from walk(run, part, out, trace, op.target if leaves else at, kept)


_START = Op(Kind.JUMP)


def _compose(run: Run, op: Op, at: int, item: Any) -> list[tuple[Any, bool]]:
    """Make several items of one; with each, whether it leaves the pipeline."""
    if at not in run.memos:
        run.memos[at] = copy.deepcopy(op.memo)
    parts, run.memos[at] = op.fn(item, run.memos[at])
    return [(part, op.until is not None and bool(op.until(part))) for part in parts]


def _way_on(op: Op, at: int, item: Any) -> int:
    """Where the item goes from an operation that leaves it as it is."""
    match op.kind:
        case Kind.JUMP:
            return op.target
        case Kind.GOTO:
            return op.target if op.fn(item) else at
        case _:
            key = op.fn(item)
            if key not in op.table:
                known = ", ".join(repr(branch) for branch in op.table)
                raise KeyError(f"no branch for {key!r}; the branches are {known}")
            return op.table[key]


def _wrong_type(item: Any, item_type: type) -> TypeError:
    hint = "; is a return missing?" if item is None else ""
    return TypeError(
        f"it returned {type(item).__name__}, and a {item_type.__name__} has to go on{hint}"
    )
