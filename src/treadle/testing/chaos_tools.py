"""Tools that misbehave in every way that tools can, the same way for the same seed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from treadle.messages import JSONDict, copy_json
from treadle.testing._chaos_deeds import NATURES, TOOL_BEHAVIOURS, Called, Deed, Doer
from treadle.testing._chaos_dice import Dice
from treadle.testing._chaos_toolkit import Sketch, sketches
from treadle.tools import Tool


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One time that a tool was run.

    Args:
        name: the tool's name.
        arguments: a copy of what it was given.
        behaviours: the names of what it did.
        overlapping: the runs that were under way when it began, but for those of tools with a timeout:
            whoever called them may have given them up, and they cannot know.
    """

    name: str
    arguments: JSONDict
    behaviours: tuple[str, ...] = ()
    overlapping: tuple[ToolRun, ...] = field(default=(), repr=False)


class ChaosTools(Sequence[Tool]):
    """A list of tools for a loop, made by a seed, which do whatever tools may do wrong.

    What a tool does depends on the seed, its name, its arguments and how often it was called with them, and
    so not on the order in which threads come to it. None of them waits long, but those with a timeout, which
    may wait until they are cancelled.

    Args:
        seed: any number; each is another set of tools.
        count: how many there are; None leaves it to the seed.
        approvals: whether some of them need approval.

    Attributes:
        seed: as given.
        runs: what was run, in the order in which it began.
    """

    BEHAVIOURS = TOOL_BEHAVIOURS

    def __init__(self, seed: int, *, count: int | None = None, approvals: bool = False) -> None:
        self.seed = seed
        self.runs: list[ToolRun] = []
        self._count = count
        self._approvals = approvals
        self._lock = threading.Lock()
        self._under_way: dict[int, ToolRun] = {}
        self._calls: Counter[str] = Counter()
        dice = Dice(f"tools {seed}")
        made = sketches(dice, count, approvals=approvals)
        self._tools = tuple(self._made(sketch, dice.pick(NATURES)) for sketch in made)
        self._natures = dice.told

    @property
    def behaviours(self) -> list[str]:
        """The names of what they are like, and then of all that they did, in the order of the runs."""
        return [*self._natures, *(name for run in self.runs for name in run.behaviours)]

    def _made(self, sketch: Sketch, nature: Doer) -> Tool:
        def act(arguments: Mapping[str, Any]) -> Any:
            number, deed = self._begin(sketch, nature, arguments)
            try:
                return deed.perform(arguments)
            finally:
                self._end(number)

        async def act_async(arguments: Mapping[str, Any]) -> Any:
            number, deed = self._begin(sketch, nature, arguments)
            try:
                return await deed.perform_async(arguments)
            finally:
                self._end(number)

        return sketch.tool(act_async if sketch.is_async else act)

    def _begin(
        self, sketch: Sketch, nature: Doer, arguments: Mapping[str, Any]
    ) -> tuple[int, Deed]:
        """Decide what a tool does, and note it."""
        given, key = _noted(arguments)
        timeout = sketch.options.get("timeout")
        with self._lock:
            self._calls[f"{sketch.name} {key}"] += 1
            times = self._calls[f"{sketch.name} {key}"]
            dice = Dice(f"{self.seed} {sketch.name} {key} {times}")
            deed = nature(dice, Called(sketch.name, self.seed, times, sketch.is_async, timeout))
            others = tuple(self._under_way.values())
            run = ToolRun(sketch.name, given, tuple(dice.told), others)
            number = len(self.runs)
            self.runs.append(run)
            if timeout is None:
                self._under_way[number] = run
        return number, deed

    def _end(self, number: int) -> None:
        with self._lock:
            self._under_way.pop(number, None)

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tool]: ...
    def __getitem__(self, index: int | slice) -> Tool | Sequence[Tool]:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"ChaosTools({self.seed}, count={self._count}, approvals={self._approvals})"


def _noted(arguments: Mapping[str, Any]) -> tuple[JSONDict, str]:
    """A copy of arguments, and a text that is the same for the same ones."""
    try:
        given: JSONDict = copy_json(dict(arguments))
        return given, json.dumps(given, sort_keys=True, default=repr)
    except RecursionError:
        return {"...": "nested too deep to be noted"}, "deep"
