"""`ChaosTools`: misbehaving tools, their schemas and options, and a log of their runs."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias, overload

from treadle.messages import JSONDict, copy_json
from treadle.testing.chaos.dice import Dice
from treadle.testing.chaos.tool_actions import (
    NATURES,
    TOOL_BEHAVIOURS,
    Behaviour,
    ToolAction,
    ToolCallInfo,
)
from treadle.tools import Tool, ToolContext, tool

# What they take.

Run: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Runs a tool with its arguments; async if the tool is async."""


def _object(**properties: Any) -> JSONDict:
    required = [name for name, schema in properties.items() if schema.pop("is_required", False)]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_CONDITION: JSONDict = {"$ref": "#/$defs/condition"}
_SCHEMAS: Mapping[str, JSONDict] = {
    "search": _object(
        query={"type": "string", "minLength": 1, "is_required": True},
        limit={"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
    ),
    "read_file": _object(
        path={"type": "string", "is_required": True},
        lines={"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
    ),
    "send": _object(
        to={
            "type": "array",
            "minItems": 1,
            "is_required": True,
            "items": _object(
                name={"type": "string"},
                address={"type": "string", "format": "email", "is_required": True},
            ),
        },
        priority={"enum": ["low", "high", 3, None]},
        body={"type": ["string", "null"], "maxLength": 200},
    ),
    "calculate": _object(
        left={"type": "number", "is_required": True},
        right={"type": "number", "exclusiveMinimum": 0, "is_required": True},
        exact={"type": "boolean"},
    ),
    "filter": {
        "type": "object",
        "properties": {"where": _CONDITION},
        "required": ["where"],
        "$defs": {
            "condition": {
                "anyOf": [
                    _object(field={"type": "string", "is_required": True}, equals={}),
                    _object(all={"type": "array", "items": _CONDITION, "maxItems": 2}),
                ]
            }
        },
    },
    "ping": {"type": "object", "properties": {}},
    "store": {"type": "object", "additionalProperties": {"type": ["number", "array"]}},
}


def _add(run: Run) -> Callable[..., Any]:
    def add(a: int, b: int = 1) -> Any:
        """Add two integers."""
        return run({"a": a, "b": b})

    return add


def _add_async(run: Run) -> Callable[..., Awaitable[Any]]:
    async def add(a: int, b: int = 1) -> Any:
        """Add two integers."""
        return await run({"a": a, "b": b})

    return add


def _note(run: Run) -> Callable[..., Any]:
    def note(text: str, _context: ToolContext, tags: list[str] | None = None) -> Any:
        """Note a text."""
        return run({"text": text, "tags": tags})

    return note


def _note_async(run: Run) -> Callable[..., Awaitable[Any]]:
    async def note(text: str, _context: ToolContext, tags: list[str] | None = None) -> Any:
        """Note a text."""
        return await run({"text": text, "tags": tags})

    return note


_FUNCTIONS: Mapping[str, tuple[Callable[[Run], Any], Callable[[Run], Any]]] = {
    "add": (_add, _add_async),
    "note": (_note, _note_async),
}
"""Tools whose schema is made of a function's signature, as sync and async functions."""


def _made(name: str, kind: str, run: Run, *, is_async: bool, options: Mapping[str, Any]) -> Tool:
    if kind in _FUNCTIONS:
        return tool(name=name, **options)(_FUNCTIONS[kind][is_async](run))

    async def fn_async(**arguments: Any) -> Any:
        return await run(arguments)

    def fn(**arguments: Any) -> Any:
        return run(arguments)

    description = f"It can {name.replace('_', ' ')}."
    return Tool(name, description, _SCHEMAS[kind], fn_async if is_async else fn, **options)


# Their options.


def _strings(arguments: Mapping[str, Any]) -> Any:
    """As lock keys: the texts among the arguments; None if there are none."""
    return [value for value in arguments.values() if isinstance(value, str)] or None


def _raise(_arguments: Mapping[str, Any]) -> NoReturn:
    raise ValueError("chaos")


def _if_several(arguments: Mapping[str, Any]) -> bool:
    return len(arguments) > 1


def _question(_arguments: Mapping[str, Any]) -> str:
    return "Really?"


_APPROVALS: tuple[Any, ...] = (True, _if_several, _question, _raise)
_OPTIONS: tuple[tuple[str, float, tuple[Any, ...]], ...] = (
    ("parallel_safe", 0.3, (False, False, True)),
    ("requires_fresh_input", 0.06, (True,)),
    ("max_parallel", 0.1, (1, 2, 3)),
    ("lock", 0.2, ("file", "file", _strings, _raise)),
    ("dedupe", 0.15, (False,)),
    ("volatile", 0.15, (True,)),
    ("idempotent", 0.3, (True, False)),
    ("timeout", 0.3, (0.01, 0.03)),
    ("retries", 0.25, (1, 2)),
    ("max_uses", 0.1, (0, 1, 3)),
    ("terminal", 0.04, (True,)),
    ("annotations", 0.1, ({"readOnlyHint": True}, {"destructiveHint": True}, {"title": 5})),
)
"""Each option, the share of tools that have it, and its values."""


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
    """A list of tools for a loop that do everything that tools do wrong.

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

    BEHAVIOURS = TOOL_BEHAVIOURS
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
        return self._tool(name, kind, is_async, options, dice.pick(NATURES))

    def _tool(
        self, name: str, kind: str, is_async: bool, options: Mapping[str, Any], nature: Behaviour
    ) -> Tool:
        timeout: float | None = options.get("timeout")

        def run(arguments: Mapping[str, Any]) -> Any:
            with self._running(name, arguments, nature, is_async, timeout) as action:
                return action.perform(arguments)

        async def run_async(arguments: Mapping[str, Any]) -> Any:
            with self._running(name, arguments, nature, is_async, timeout) as action:
                return await action.perform_async(arguments)

        return _made(name, kind, run_async if is_async else run, is_async=is_async, options=options)

    @contextmanager
    def _running(
        self,
        name: str,
        arguments: Mapping[str, Any],
        nature: Behaviour,
        is_async: bool,
        timeout: float | None,
    ) -> Generator[ToolAction]:
        """Decide what a tool does, and log its run."""
        copy, key = _copied(arguments)
        with self._lock:
            self._calls[f"{name} {key}"] += 1
            times = self._calls[f"{name} {key}"]
            dice = Dice(f"{self.seed} {name} {key} {times}")
            action = nature(dice, ToolCallInfo(name, self.seed, times, is_async, timeout))
            run = ToolRun(name, copy, tuple(dice.names), tuple(self._in_progress.values()))
            number = len(self.runs)
            self.runs.append(run)
            if timeout is None:
                self._in_progress[number] = run
        try:
            yield action
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
