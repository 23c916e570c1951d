"""`ChaosTools`: misbehaving tools, their schemas and options, what they do and return, and a log of their runs."""

from __future__ import annotations

import datetime as dt
import json
import math
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import wraps
from typing import Any, NoReturn, TypeAlias, overload

import anyio

from treadle.messages import JSONDict, copy_json, is_dict, is_list
from treadle.results import Err, Ok
from treadle.testing.chaos.dice import CONTROLS, SURROGATE, Dice, Table, always, one_of
from treadle.testing.chaos.errors import ERRORS, ChaosError, UnprintableError, raising
from treadle.testing.chaos.replies import Reply
from treadle.testing.chaos.responses import Awaitable
from treadle.tools import Tool, ToolContext, tool

# What they take.


def _object(*required: str, **properties: Any) -> JSONDict:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT, _CONDITION = {"type": "string"}, {"$ref": "#/$defs/condition"}
_PERSON = _object("address", name=_TEXT, address={"type": "string", "format": "email"})
_CONDITIONS = (
    _object("field", field=_TEXT, equals={}),
    _object(all={"type": "array", "items": _CONDITION, "maxItems": 2}),
)
_SCHEMAS: Mapping[str, JSONDict] = {
    "search": _object(
        "query",
        query={"type": "string", "minLength": 1},
        limit={"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
    ),
    "read_file": _object(
        "path",
        path=_TEXT,
        lines={"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
    ),
    "send": _object(
        "to",
        to={"type": "array", "minItems": 1, "items": _PERSON},
        priority={"enum": ["low", "high", 3, None]},
        body={"type": ["string", "null"], "maxLength": 200},
    ),
    "calculate": _object(
        *("left", "right"),
        left={"type": "number"},
        right={"type": "number", "exclusiveMinimum": 0},
        exact={"type": "boolean"},
    ),
    "filter": {
        "type": "object",
        "properties": {"where": _CONDITION},
        "required": ["where"],
        "$defs": {"condition": {"anyOf": list(_CONDITIONS)}},
    },
    "ping": {"type": "object", "properties": {}},
    "store": {"type": "object", "additionalProperties": {"type": ["number", "array"]}},
}


def _add(a: int, b: int = 1) -> None:
    """Add two integers."""


def _note(text: str, _context: ToolContext, tags: list[str] | None = None) -> None:
    """Note a text."""


_FUNCTIONS: Mapping[str, Callable[..., None]] = {"add": _add, "note": _note}
"""Tools whose schema is made of a function's signature. Only that is used."""


# Their options.


def _strings(arguments: Mapping[str, Any]) -> Any:
    """As lock keys: the texts among the arguments; None if there are none."""
    return [value for value in arguments.values() if isinstance(value, str)] or None


def _raise(_arguments: Mapping[str, Any]) -> NoReturn:
    raise ValueError("chaos")


_OPTIONS: tuple[tuple[str, float, tuple[Any, ...]], ...] = (
    ("parallel_safe", 0.3, (False, False, True)),
    ("requires_fresh_input", 0.06, (True,)),
    ("max_parallel", 0.1, (1, 2, 3)),
    ("lock", 0.2, ("file", "file", _strings, _raise)),
    ("dedupe", 0.15, ("off", "strict")),
    ("volatile", 0.15, (True,)),
    ("idempotent", 0.3, (True, False)),
    ("timeout", 0.3, (0.01, 0.03)),
    ("retries", 0.25, (1, 2)),
    ("max_uses", 0.1, (0, 1, 3)),
    ("terminal", 0.04, (True,)),
    ("annotations", 0.1, ({"readOnlyHint": True}, {"destructiveHint": True}, {"title": 5})),
)
"""Each option, the share of tools that have it, and its values."""
_APPROVALS: tuple[bool | Callable[[Mapping[str, Any]], Any], ...] = (
    *(True, lambda arguments: len(arguments) > 1, lambda _: "Really?", _raise),
)
"""Values of the option ``requires_approval``."""


# What they return.


class _Unprintable:
    """An object that has no text and cannot be dumped."""

    __str__ = __repr__ = raising("no text")
    model_dump = raising("no dump")


class _Textless:
    """An object whose text is a number."""

    __str__ = __repr__ = always(5)


class _OtherText(str):
    """Text whose ``str`` is another text."""

    __slots__ = ()
    __str__ = always("something else")


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


_NAN = math.nan
_UNPRINTABLE = _Unprintable()
_ODD: tuple[Any, ...] = (
    *({1, 2}, frozenset("a"), (1, (2,)), range(3), 1 + 2j, Decimal("NaN"), ..., NotImplemented),
    *(dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.timedelta.max, int, len, object()),
    *(ChaosError("a value"), {1: 2, (3, 4): 5, None: 6}, {"a": {"b": {"c": object()}}}),
    *([object()], 10**5_000, True),
)
_SURROGATES = (SURROGATE, [SURROGATE], {SURROGATE: f"a{SURROGATE}"})
_WITHOUT_TEXT = (_UNPRINTABLE, _Textless(), [_UNPRINTABLE], {"a": _Textless()})
_OK: tuple[Any, ...] = ("fine", None, {"a": 1}, Ok("twice"), _UNPRINTABLE, b"")
_ERR: tuple[Any, ...] = ("no", None, 5, "", _UNPRINTABLE, ChaosError("no"))
_RESULTS: Table[Callable[[Dice], Any]] = Table(
    "result",
    {
        "a text": (3, one_of("ok", "42", "", " ", "line\nline", "ünï", "{}")),
        "a number": (1, one_of(0, -1, 1.5, 2**80, 1e300)),
        "a dict": (2, lambda _d: {"found": 2, "items": [{"id": 1}, {"id": 2}]}),
        "nothing": (2, always(None)),
        "bytes": (2, one_of(b"\xff\0", bytearray(b"ab"), memoryview(b"abc"), b"")),
        "NaN": (2, one_of(_NAN, math.inf, [_NAN], {"a": -math.inf})),
        "something cyclic": (2, _cyclic),
        "something deep": (1, _deep),
        "something odd": (4, one_of(*_ODD)),
        "something without text": (2, one_of(*_WITHOUT_TEXT)),
        "an error as a value": (1, one_of(UnprintableError(), ChaosError())),
        "a lone surrogate": (2, one_of(*_SURROGATES)),
        "NUL": (1, one_of("\0", "a\0b", ["\0"])),
        "control characters": (1, always(CONTROLS.replace("\0", ""))),
        "text of another class": (1, lambda _d: _OtherText("this")),
        "a huge text": (1, lambda dice: "xé\n"[dice.randrange(3)] * dice.randrange(200_000)),
        "many lines": (1, lambda dice: "line\n" * dice.randrange(9_000)),
        "a huge list": (1, lambda dice: list(range(dice.randrange(20_000)))),
        "Ok": (2, lambda dice: Ok(dice.choice(_OK))),
        "Err": (2, lambda dice: Err(dice.choice(_ERR))),
        "an awaitable": (1, lambda _d: Awaitable()),
        "a coroutine": (1, lambda _d: _coroutine("late")),
        "a generator": (1, lambda dice: dice.choice((_numbers, _broken_numbers))()),
        "an async generator": (1, lambda _d: _async_numbers()),
    },
)


# What they do.


@dataclass(frozen=True, slots=True)
class ToolCallInfo:
    """One call of a tool; ``number`` counts the calls of the tool with these arguments."""

    name: str
    seed: int
    arguments: Mapping[str, Any]
    is_async: bool
    timeout: float | None
    number: int = 1


Behaviour: TypeAlias = Callable[[Dice, ToolCallInfo], Reply]
"""Decides what a call does. A coroutine as the value of the reply is awaited."""


def _mutates(dice: Dice, call: ToolCallInfo) -> Reply:
    """Change the arguments, and fail in half of all cases, so that a retry would see the change."""
    for value in call.arguments.values():
        if is_list(value):
            value.append("spoilt")
        elif is_dict(value):
            value.clear()
    return Reply(call.number, error=ChaosError("changed") if dice.chance(0.5) else None)


def _raises(dice: Dice, _call: ToolCallInfo) -> Reply:
    return Reply(error=dice.pick(ERRORS)(dice))


def _sleeps(_dice: Dice, _call: ToolCallInfo) -> Reply:
    return Reply("rested", pause=0.002)


def _hangs(dice: Dice, call: ToolCallInfo) -> Reply:
    """Wait until cancelled; in a thread, longer than the time limit; without a limit, some milliseconds."""
    if call.timeout is None:
        return _sleeps(dice, call)
    return Reply("late", pause=math.inf if call.is_async else call.timeout + 0.02)


def _ignores(dice: Dice, call: ToolCallInfo) -> Reply:
    if call.timeout is None or not call.is_async:
        return _hangs(dice, call)
    return Reply(_until_cancelled())


async def _until_cancelled() -> str:
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.002)
    return "cancelled, but returned"


ACTIONS: Table[Behaviour] = Table(
    "tool",
    {
        "returns a text": (30, lambda d, c: Reply(f"{c.name}: {d.randrange(1_000)}")),
        "returns anything": (30, lambda dice, _c: Reply(dice.pick(_RESULTS)(dice))),
        "raises": (20, _raises),
        "changes its arguments": (6, _mutates),
        "sleeps": (4, _sleeps),
        "hangs": (6, _hangs),
        "ignores its cancellation": (4, _ignores),
    },
)
_NATURES: Table[Behaviour] = Table(
    "nature",
    {
        "chaotic": (50, lambda dice, call: dice.pick(ACTIONS)(dice, call)),
        "always returns the same": (20, lambda _d, c: Reply(f"{c.name} says so")),
        "always returns something new": (15, lambda _d, c: Reply(f"{c.name} number {c.number}")),
        "always raises the same": (8, lambda _d, c: _raises(Dice(f"{c.seed} {c.name}"), c)),
        "always raises something else": (7, _raises),
    },
)
"""What a tool is like in all of its calls."""


# The tools.


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run of a tool.

    Args:
        name: the name of the tool.
        arguments: a copy of its arguments.
        behaviours: the names of what it did.
        overlapping: the runs in progress when it began. Runs of tools with a timeout are not among them: the
            loop may have abandoned them, which they cannot know.
    """

    name: str
    arguments: JSONDict
    behaviours: tuple[str, ...] = ()
    overlapping: tuple[ToolRun, ...] = field(default=(), repr=False)


class ChaosTools(Sequence[Tool]):
    """A list of misbehaving tools, with random schemas and options.

    What a tool does depends on the seed, its name, its arguments and how often it was called with them, so not on
    the order in which threads call it. No tool waits for long, except that one with a timeout may wait until it
    is cancelled.

    Args:
        seed: any number.
        count: the number of tools; None lets the seed decide.
        approvals: whether some tools require approval.

    Attributes:
        seed: as given.
        runs: the runs of all tools, in the order in which they began.
    """

    BEHAVIOURS = (*_NATURES, *ACTIONS, *_RESULTS, *ERRORS)
    """The names of everything that they may do."""

    def __init__(self, seed: int, *, count: int | None = None, approvals: bool = False) -> None:
        self.seed = seed
        self.runs: list[ToolRun] = []
        self._count = count
        self._approvals = approvals
        self._lock = threading.Lock()
        self._in_progress: dict[int, ToolRun] = {}
        self._calls: Counter[str] = Counter()
        dice = Dice(f"tools {seed}")
        kinds = [*_SCHEMAS, *_FUNCTIONS]
        dice.shuffle(kinds)
        places = range(dice.randint(1, 6) if count is None else count)
        self._tools = tuple(self._chosen(dice, kinds, place) for place in places)
        self._natures = dice.names

    @property
    def behaviours(self) -> list[str]:
        """The natures of the tools, and then the names of what they did, in the order of the runs."""
        return [*self._natures, *(name for run in self.runs for name in run.behaviours)]

    def _chosen(self, dice: Dice, kinds: Sequence[str], place: int) -> Tool:
        again, index = divmod(place, len(kinds))
        kind = kinds[index]
        options = {
            name: dice.choice(values) for name, share, values in _OPTIONS if dice.chance(share)
        }
        if self._approvals and dice.chance(0.5):
            options["requires_approval"] = dice.choice(_APPROVALS)
        is_async = dice.chance(0.5)
        name = f"{kind}_{again}" if again else kind
        return self._tool(name, kind, is_async, options, dice.pick(_NATURES))

    def _tool(
        self, name: str, kind: str, is_async: bool, options: Mapping[str, Any], nature: Behaviour
    ) -> Tool:
        timeout: float | None = options.get("timeout")

        def run(**arguments: Any) -> Any:
            with running(arguments) as reply:
                return reply.play()

        async def run_async(**arguments: Any) -> Any:
            with running(arguments) as reply:
                return await reply.play_async()

        def running(arguments: JSONDict) -> AbstractContextManager[Reply]:
            arguments.pop("_context", None)
            call = ToolCallInfo(name, self.seed, arguments, is_async, timeout)
            return self._running(call, nature)

        fn = run_async if is_async else run
        if kind in _FUNCTIONS:
            return tool(name=name, **options)(wraps(_FUNCTIONS[kind])(fn))
        return Tool(name, f"It can {name.replace('_', ' ')}.", _SCHEMAS[kind], fn, **options)

    @contextmanager
    def _running(self, call: ToolCallInfo, nature: Behaviour) -> Generator[Reply]:
        """Decide what a tool does, and log its run."""
        copy, key = _copied(call.arguments)
        key = f"{call.name} {key}"
        with self._lock:
            self._calls[key] += 1
            dice = Dice(f"{self.seed} {key} {self._calls[key]}")
            reply = nature(dice, replace(call, number=self._calls[key]))
            run = ToolRun(call.name, copy, tuple(dice.names), tuple(self._in_progress.values()))
            number = len(self.runs)
            self.runs.append(run)
            if call.timeout is None:
                self._in_progress[number] = run
        try:
            yield reply
        finally:
            with self._lock:
                self._in_progress.pop(number, None)

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


def _copied(arguments: Mapping[str, Any]) -> tuple[JSONDict, str]:
    """A copy of the arguments, and a text that is the same for equal arguments."""
    try:
        copy: JSONDict = copy_json(dict(arguments))
        return copy, json.dumps(copy, sort_keys=True, default=repr)
    except RecursionError:
        return {"...": "nested too deeply to copy"}, "deep"
