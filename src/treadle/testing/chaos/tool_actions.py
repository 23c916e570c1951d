"""What a misbehaving tool does when it is called, and everything that it may return."""

from __future__ import annotations

import datetime as dt
import inspect
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

import anyio

from treadle.messages import is_dict, is_list
from treadle.results import Err, Ok
from treadle.testing.chaos.arguments import CONTROL_CHARACTERS, LONE_SURROGATE
from treadle.testing.chaos.dice import Dice, Table, names_of
from treadle.testing.chaos.errors import ERRORS, ChaosError, UnprintableError
from treadle.testing.chaos.responses import Awaitable

# What it returns.


class _Unprintable:
    """An object that has no text and cannot be dumped."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def model_dump(self, **_options: Any) -> NoReturn:
        raise RuntimeError("no dump")


class _Textless:
    """An object whose text is a number."""

    def __str__(self) -> str:
        wrong: Any = 5
        return wrong

    __repr__ = __str__


class _OtherText(str):
    """Text whose ``str`` is another text."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


def _cyclic(dice: Dice) -> Any:
    ring: list[Any] = [1]
    ring.append(ring)
    circle: dict[str, Any] = {}
    circle["self"] = circle
    return dice.choice((ring, circle, [{"ring": ring}]))


def _deep(dice: Dice) -> Any:
    made: Any = 1
    for _ in range(dice.choice((50, 300, 1_200, 5_000))):
        made = [made]
    return made


def _numbers() -> Iterator[int]:
    yield from range(5)


def _broken_numbers() -> Iterator[int]:
    yield 1
    raise ChaosError


async def _async_numbers() -> AsyncIterator[int]:
    yield 1


async def _coroutine(value: Any) -> Any:
    return value


def _without_text(dice: Dice) -> Any:
    return dice.choice((_Unprintable(), _Textless(), [_Unprintable()], {"a": _Textless()}))


def _ok(dice: Dice) -> Any:
    return Ok(dice.choice(("fine", None, {"a": 1}, Ok("twice"), _Unprintable(), b"")))


def _err(dice: Dice) -> Any:
    return Err(dice.choice(("no", None, 5, "", _Unprintable(), ChaosError("no"))))


def _lone_surrogate(dice: Dice) -> Any:
    return dice.choice((LONE_SURROGATE, [LONE_SURROGATE], {LONE_SURROGATE: f"a{LONE_SURROGATE}"}))


_NAN = math.nan
_ODD: tuple[Any, ...] = (
    *({1, 2}, frozenset("a"), (1, (2,)), range(3), 1 + 2j, Decimal("NaN"), ..., NotImplemented),
    *(dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.timedelta.max, int, len, object()),
    *(ChaosError("a value"), {1: 2, (3, 4): 5, None: 6}, {"a": {"b": {"c": object()}}}),
    *([object()], 10**5_000, True),
)
_RESULTS: Table[Callable[[Dice], Any]] = Table(
    "result",
    {
        "a text": (3, lambda dice: dice.choice(("ok", "42", "", " ", "line\nline", "ünï", "{}"))),
        "a number": (1, lambda dice: dice.choice((0, -1, 1.5, 2**80, 1e300))),
        "a dict": (2, lambda _d: {"found": 2, "items": [{"id": 1}, {"id": 2}]}),
        "nothing": (2, lambda _d: None),
        "bytes": (2, lambda d: d.choice((b"\xff\0", bytearray(b"ab"), memoryview(b"abc"), b""))),
        "NaN": (2, lambda d: d.choice((_NAN, math.inf, [_NAN], {"a": -math.inf}))),
        "something cyclic": (2, _cyclic),
        "something deep": (1, _deep),
        "something odd": (4, lambda dice: dice.choice(_ODD)),
        "something without text": (2, _without_text),
        "an error as a value": (1, lambda d: d.choice((UnprintableError(), ChaosError()))),
        "a lone surrogate": (2, _lone_surrogate),
        "NUL": (1, lambda dice: dice.choice(("\0", "a\0b", ["\0"]))),
        "control characters": (1, lambda _d: CONTROL_CHARACTERS.replace("\0", "")),
        "text of another class": (1, lambda _d: _OtherText("this")),
        "a huge text": (1, lambda dice: "xé\n"[dice.randrange(3)] * dice.randrange(200_000)),
        "many lines": (1, lambda dice: "line\n" * dice.randrange(9_000)),
        "a huge list": (1, lambda dice: list(range(dice.randrange(20_000)))),
        "Ok": (2, _ok),
        "Err": (2, _err),
        "an awaitable": (1, lambda _d: Awaitable()),
        "a coroutine": (1, lambda _d: _coroutine("late")),
        "a generator": (1, lambda dice: dice.choice((_numbers, _broken_numbers))()),
        "an async generator": (1, lambda _d: _async_numbers()),
    },
)


# What it does.


@dataclass(frozen=True, slots=True)
class ToolCallInfo:
    """One call of a tool.

    Args:
        name: the name of the tool.
        seed: the seed of all tools.
        number: how often the tool was called with these arguments, including this time.
        is_async: whether it is an async function.
        timeout: seconds that it may take; None is no limit.
    """

    name: str
    seed: int
    number: int
    is_async: bool
    timeout: float | None


@dataclass(slots=True)
class ToolAction:
    """What one call does.

    Args:
        value: what it returns.
        error: what it raises instead.
        pause: seconds before that; infinity is until it is cancelled.
        ignores_cancellation: it waits until it is cancelled, and returns its value nevertheless.
        mutates: it changes its arguments.
    """

    value: Any = None
    error: BaseException | None = None
    pause: float = 0.0
    ignores_cancellation: bool = False
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
        if self.ignores_cancellation:
            await _ignore_cancellation()
        elif self.pause:
            await anyio.sleep(self.pause)  # infinity is forever
        value = self._outcome()
        return await value if inspect.iscoroutine(value) else value

    def _outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


async def _ignore_cancellation() -> None:
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.002)


def _mutate(arguments: Mapping[str, Any]) -> None:
    """Change the containers in the arguments, which are not the tool's own."""
    for value in arguments.values():
        if is_list(value):
            value.append("spoilt")
        elif is_dict(value):
            value.clear()


Behaviour: TypeAlias = Callable[[Dice, ToolCallInfo], ToolAction]


def _mutates(dice: Dice, call: ToolCallInfo) -> ToolAction:
    """Change the arguments, and fail in half of all cases, so that a retry would see the change."""
    error = ChaosError("changed") if dice.chance(0.5) else None
    return ToolAction(call.number, error, mutates=True)


def _raises(dice: Dice, _call: ToolCallInfo) -> ToolAction:
    return ToolAction(error=dice.pick(ERRORS)(dice))


def _raises_the_same(_dice: Dice, call: ToolCallInfo) -> ToolAction:
    return _raises(Dice(f"{call.seed} {call.name}"), call)


def _sleeps(_dice: Dice, _call: ToolCallInfo) -> ToolAction:
    return ToolAction("rested", pause=0.002)


def _hangs(dice: Dice, call: ToolCallInfo) -> ToolAction:
    """Wait until cancelled; in a thread, longer than the time limit; without a limit, some milliseconds."""
    if call.timeout is None:
        return _sleeps(dice, call)
    return ToolAction("late", pause=math.inf if call.is_async else call.timeout + 0.02)


def _ignores(dice: Dice, call: ToolCallInfo) -> ToolAction:
    if call.timeout is None or not call.is_async:
        return _hangs(dice, call)
    return ToolAction("cancelled, but returned", ignores_cancellation=True)


ACTIONS: Table[Behaviour] = Table(
    "tool",
    {
        "returns a text": (30, lambda d, c: ToolAction(f"{c.name}: {d.randrange(1_000)}")),
        "returns anything": (30, lambda dice, _c: ToolAction(dice.pick(_RESULTS)(dice))),
        "raises": (20, _raises),
        "changes its arguments": (6, _mutates),
        "sleeps": (4, _sleeps),
        "hangs": (6, _hangs),
        "ignores its cancellation": (4, _ignores),
    },
)
NATURES: Table[Behaviour] = Table(
    "nature",
    {
        "chaotic": (50, lambda dice, call: dice.pick(ACTIONS)(dice, call)),
        "always returns the same": (20, lambda _d, call: ToolAction(f"{call.name} says so")),
        "always returns something new": (
            15,
            lambda _d, call: ToolAction(f"{call.name} number {call.number}"),
        ),
        "always raises the same": (8, _raises_the_same),
        "always raises something else": (7, _raises),
    },
)
"""What a tool is like in all of its calls."""

TOOL_BEHAVIOURS: tuple[str, ...] = names_of(NATURES, ACTIONS, _RESULTS, ERRORS)
