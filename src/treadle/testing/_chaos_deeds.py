"""What a chaotic tool does when it is called."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from treadle.messages import is_dict, is_list
from treadle.testing._chaos_dice import Dice, Table, names_of
from treadle.testing._chaos_errors import ERRORS, ChaosError
from treadle.testing._chaos_outcomes import RETURNS


@dataclass(frozen=True, slots=True)
class Called:
    """One call of a tool.

    Args:
        name: the tool's name.
        seed: of all the tools.
        number: how often it was called with these arguments, this time included.
        is_async: whether it may await.
        timeout: seconds that it has; None is no limit.
    """

    name: str
    seed: int
    number: int
    is_async: bool
    timeout: float | None


@dataclass(slots=True)
class Deed:
    """What comes of a call.

    Args:
        value: what it returns.
        error: what it raises instead.
        pause: seconds before that; infinity is until it is cancelled.
        is_deaf: it goes on when it is cancelled, for a moment, and returns all the same.
        mutates: it changes its arguments.
    """

    value: Any = None
    error: BaseException | None = None
    pause: float = 0.0
    is_deaf: bool = False
    mutates: bool = False

    def perform(self, arguments: Mapping[str, Any]) -> Any:
        """Do it in this thread."""
        if self.mutates:
            _mutate(arguments)
        if self.pause:
            time.sleep(self.pause)
        return self._outcome()

    async def perform_async(self, arguments: Mapping[str, Any]) -> Any:
        """Do it on an event loop."""
        if self.mutates:
            _mutate(arguments)
        if self.is_deaf:
            await _deafly_sleep()
        elif math.isinf(self.pause):
            await anyio.sleep_forever()
        elif self.pause:
            await anyio.sleep(self.pause)
        value = self._outcome()
        return await value if inspect.iscoroutine(value) else value

    def _outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


async def _deafly_sleep() -> None:
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.002)


def _mutate(arguments: Mapping[str, Any]) -> None:
    """Change what is within the arguments, which are somebody else's."""
    for value in arguments.values():
        if is_list(value):
            value.append("spoilt")
        elif is_dict(value):
            value.clear()


Doer: TypeAlias = Callable[[Dice, Called], Deed]


def _changes(dice: Dice, called: Called) -> Deed:
    """Change the arguments, and perhaps fail, so that they come again where there are retries."""
    error = ChaosError("changed") if dice.chance(0.5) else None
    return Deed(called.number, error, mutates=True)


def _steadily(dice: Dice, called: Called) -> Deed:
    return Deed(f"{called.name}: {dice.randrange(1_000)}")


def _anything(dice: Dice, _called: Called) -> Deed:
    return Deed(dice.pick(RETURNS)(dice))


def _raises(dice: Dice, _called: Called) -> Deed:
    return Deed(error=dice.pick(ERRORS)(dice))


def _sleeps(_dice: Dice, _called: Called) -> Deed:
    return Deed("rested", pause=0.002)


def _hangs(dice: Dice, called: Called) -> Deed:
    """Until it is cancelled; in a thread, which nobody can cancel, until its time is up; without one, shortly."""
    if called.timeout is None:
        return _sleeps(dice, called)
    return Deed("late", pause=math.inf if called.is_async else called.timeout + 0.02)


def _ignores(dice: Dice, called: Called) -> Deed:
    if called.timeout is None or not called.is_async:
        return _hangs(dice, called)
    return Deed("all the same", is_deaf=True)


DEEDS: Table[Doer] = Table(
    "tool",
    {
        "returns a text": (30, _steadily),
        "returns anything": (30, _anything),
        "raises": (20, _raises),
        "changes its arguments": (6, _changes),
        "sleeps": (4, _sleeps),
        "hangs": (6, _hangs),
        "ignores that it is cancelled": (4, _ignores),
    },
)


def _always_raises(_dice: Dice, called: Called) -> Deed:
    return _raises(Dice(f"{called.seed} {called.name}"), called)


NATURES: Table[Doer] = Table(
    "nature",
    {
        "chaotic": (50, lambda dice, called: dice.pick(DEEDS)(dice, called)),
        "returns the same for the same": (20, lambda _d, called: Deed(f"{called.name} says so")),
        "returns something new every time": (
            15,
            lambda _d, called: Deed(f"{called.name} number {called.number}"),
        ),
        "raises the same every time": (8, _always_raises),
        "raises something else every time": (7, _raises),
    },
)
"""What a tool is like throughout."""

TOOL_BEHAVIOURS: tuple[str, ...] = names_of((NATURES, DEEDS, RETURNS, ERRORS))
"""The names of all that chaotic tools may do."""
