"""Executes operations on an item that may be dropped, or become several."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from treadle.effects import Steps
from treadle.pipeline.compiler import Op
from treadle.pipeline.execute import Progress, cause_of, check_type, execute, stage_error
from treadle.pipeline.streams.compiler import Compose, Drop, Plug, Unplug

Admit: TypeAlias = Callable[[int], Steps[None]]
"""Waits until the item may enter the composer at a position."""


class Entry(NamedTuple):
    """An item that has not continued yet.

    Args:
        item: the item.
        position: the position at which it enters.
        originals: the items outside the current plugs, outermost first.
        stages: how many stages it had entered.
    """

    item: Any
    position: int
    originals: tuple[Any, ...]
    stages: int


def execute_all(  # noqa: C901 - one case for each operation
    ops: Sequence[Op],
    classes: tuple[type, ...],
    item: Any,
    progress: Progress,
    position: int = 0,
    *,
    memos: dict[int, Any] | None = None,
    admit: Admit | None = None,
) -> Steps[list[Any]]:
    """Execute operations on an item, and on the items that are made of it.

    Args:
        ops: the operations.
        classes: the classes of valid items; empty accepts anything.
        item: the item.
        progress: updated after every operation.
        position: the position at which the item enters.
        memos: the current memo of each composer, by position. The items of a stream share it.
        admit: called before each composer; None for a single item.

    Returns:
        The items that left the operations.

    Raises:
        StageError: a stage or another component raised.
    """
    memos = {} if memos is None else memos
    out: list[Any] = []

    def after(op: Op, item: Any, originals: tuple[Any, ...]) -> Entry:
        """The entry of an item that the operation at the position made."""
        if not originals:
            check_type(item, classes)
        leaves = op.until is not None and op.until(item)
        return Entry(item, op.target if leaves else position + 1, originals, len(progress.stages))

    entries = [Entry(item, position, (), len(progress.stages))]
    while entries:
        item, position, originals, length = entries.pop()
        del progress.stages[length:]
        valid = () if originals else classes
        item = yield from execute(ops, valid, item, progress, position)
        position = progress.position
        op = ops[position]
        try:
            match op:
                case Drop():
                    pass
                case Compose():
                    progress.stages.append(op.name)
                    if admit is not None:
                        yield from admit(position)
                    memo = memos[position] if position in memos else copy.deepcopy(op.memo)
                    parts, memo = op.fn(item, memo)
                    made = [after(op, part, originals) for part in parts]
                    memos[position] = memo  # only if all parts are valid
                    entries.extend(reversed(made))
                case Plug():
                    progress.stages.append(op.name)
                    inner = op.fn(item)
                    entries.append(
                        Entry(inner, position + 1, (*originals, item), len(progress.stages))
                    )
                case Unplug():
                    *outer, progress.item = originals
                    made_of = op.fn(item, progress.item)
                    entries.append(after(op, made_of, tuple(outer)))
                case _:
                    out.append(item)
        except BaseException as error:
            cause = cause_of(error, op.kind)
            if cause is None:
                raise
            raise stage_error(op.name, progress, cause) from cause
    return out
