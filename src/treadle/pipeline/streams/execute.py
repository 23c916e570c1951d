"""Executes operations on an item that may be dropped, or become several."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from treadle.effects import Steps
from treadle.pipeline.compiler import Kind, Op
from treadle.pipeline.execute import Progress, check_type, execute, raise_as_stage_error

Entry: TypeAlias = tuple[Any, int, tuple[Any, ...], int]
"""An item that has not continued yet, its position, the items outside the current plugs, outermost first, and the
number of stages that it has entered."""


def execute_all(
    ops: Sequence[Op],
    classes: tuple[type, ...],
    item: Any,
    progress: Progress,
    position: int = 0,
    *,
    memos: dict[int, Any] | None = None,
    admit: Callable[[int], Steps[None]] | None = None,
) -> Steps[list[Any]]:
    """Execute operations on an item, and on the items that are made of it; see `execute`.

    The items of a stream share the memos of composers, by position; ``admit`` waits for the turn at a composer.
    """
    memos = {} if memos is None else memos
    out: list[Any] = []

    def after(item: Any, originals: tuple[Any, ...]) -> Entry:
        """The entry of an item that the operation at the position made."""
        if not originals:
            check_type(item, classes)
        leaves = op.until is not None and op.until(item)
        return item, op.target if leaves else position + 1, originals, len(progress.stages)

    entries: list[Entry] = [(item, position, (), len(progress.stages))]
    while entries:
        item, position, originals, length = entries.pop()
        del progress.stages[length:]
        item = yield from execute(ops, () if originals else classes, item, progress, position)
        position = progress.position
        op = ops[position]
        try:
            match op.kind:
                case Kind.COMPOSE:
                    progress.stages.append(op.name)
                    if admit is not None:
                        yield from admit(position)
                    new = position not in memos
                    memo = copy.deepcopy(op.component) if new else memos[position]
                    parts, memo = op.fn(item, memo)
                    made = [after(part, originals) for part in parts]
                    memos[position] = memo  # only if all parts are valid
                    entries.extend(reversed(made))
                case Kind.PLUG:
                    progress.stages.append(op.name)
                    plugged, length = op.fn(item), len(progress.stages)
                    entries.append((plugged, position + 1, (*originals, item), length))
                case Kind.UNPLUG:
                    *outer, progress.item = originals
                    entries.append(after(op.fn(item, progress.item), tuple(outer)))
                case Kind.END:
                    out.append(item)
                case _:  # it is dropped
                    pass
        except BaseException as error:
            raise_as_stage_error(error, op.name, op.kind, progress)
            raise
    return out
