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


class Execution:
    """The state of the execution of one item, and of the items that are made of it.

    Args:
        ops: the operations.
        classes: the classes of valid items; empty accepts anything.
        memos: the current memo of each composer, by position. The items of a stream share it.
        admit: called before each composer; None for a single item.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        classes: tuple[type, ...],
        memos: dict[int, Any] | None = None,
        admit: Admit | None = None,
    ) -> None:
        self._ops = ops
        self._classes = classes
        self._memos: dict[int, Any] = {} if memos is None else memos
        self._admit = admit

    def steps(self, item: Any, progress: Progress, position: int = 0) -> Steps[list[Any]]:
        """Execute the operations on an item; return the items that left them.

        Raises:
            StageError: a stage or another component raised.
        """
        out: list[Any] = []
        entries = [Entry(item, position, (), len(progress.stages))]
        while entries:
            entry = entries.pop()
            del progress.stages[entry.stages :]
            classes = () if entry.originals else self._classes
            item, position = yield from execute(
                self._ops, classes, entry.item, progress, entry.position
            )
            op = self._ops[position]
            try:
                match op:
                    case Drop():
                        pass
                    case Compose():
                        made = yield from self._compose(op, position, item, progress, entry)
                        entries.extend(reversed(made))
                    case Plug():
                        progress.stages.append(op.name)
                        originals = (*entry.originals, item)
                        entries.append(
                            Entry(op.fn(item), position + 1, originals, len(progress.stages))
                        )
                    case Unplug():
                        *outer, progress.item = entry.originals
                        originals = tuple(outer)
                        made = op.fn(item, progress.item)
                        entries.append(self._after(op, position, made, originals, progress))
                    case _:
                        out.append(item)
            except BaseException as error:
                cause = cause_of(error, op.kind)
                if cause is None:
                    raise
                raise stage_error(op.name, progress, cause) from cause
        return out

    def _compose(
        self, op: Compose, position: int, item: Any, progress: Progress, entry: Entry
    ) -> Steps[list[Entry]]:
        """Make several items from one. The new memo is kept only if all of them are valid."""
        progress.stages.append(op.name)
        if self._admit is not None:
            yield from self._admit(position)
        memo = self._memos[position] if position in self._memos else copy.deepcopy(op.memo)
        parts, memo = op.fn(item, memo)
        made = [self._after(op, position, part, entry.originals, progress) for part in parts]
        self._memos[position] = memo
        return made

    def _after(
        self, op: Op, position: int, item: Any, originals: tuple[Any, ...], progress: Progress
    ) -> Entry:
        """The entry of an item that an operation made."""
        if not originals:
            check_type(item, self._classes)
        leaves = op.until is not None and op.until(item)
        position = op.target if leaves else position + 1
        return Entry(item, position, originals, len(progress.stages))
