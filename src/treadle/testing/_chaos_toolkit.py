"""The tools that chaos makes: what they take, how they are made, and with which options."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from treadle.messages import JSONDict
from treadle.testing._chaos_dice import Dice
from treadle.tools import Tool, ToolContext, tool

Act: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""What a tool does with its arguments; an async function where the tool is async."""
Maker: TypeAlias = Callable[[Act], Callable[..., Any]]


def _of_schema(**properties: Any) -> JSONDict:
    required = [name for name, schema in properties.items() if schema.pop("is_required", False)]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_SCHEMAS: Mapping[str, JSONDict] = {
    "search": _of_schema(
        query={"type": "string", "minLength": 1, "is_required": True},
        limit={"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
    ),
    "read_file": _of_schema(
        path={"type": "string", "is_required": True},
        lines={"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
    ),
    "send": _of_schema(
        to={
            "type": "array",
            "minItems": 1,
            "is_required": True,
            "items": _of_schema(
                name={"type": "string"},
                address={"type": "string", "format": "email", "is_required": True},
            ),
        },
        priority={"enum": ["low", "high", 3, None]},
        body={"type": ["string", "null"], "maxLength": 200},
    ),
    "calculate": _of_schema(
        left={"type": "number", "is_required": True},
        right={"type": "number", "exclusiveMinimum": 0, "is_required": True},
        exact={"type": "boolean"},
    ),
    "filter": {
        "type": "object",
        "properties": {"where": {"$ref": "#/$defs/condition"}},
        "required": ["where"],
        "$defs": {
            "condition": {
                "anyOf": [
                    _of_schema(field={"type": "string", "is_required": True}, equals={}),
                    _of_schema(
                        all={"type": "array", "items": {"$ref": "#/$defs/condition"}, "maxItems": 2}
                    ),
                ]
            }
        },
    },
    "ping": {"type": "object", "properties": {}},
    "store": {"type": "object", "additionalProperties": {"type": ["number", "array"]}},
}


def _adding(act: Act) -> Callable[..., Any]:
    def add(a: int, b: int = 1) -> Any:
        """Add two integers."""
        return act({"a": a, "b": b})

    return add


def _adding_later(act: Act) -> Callable[..., Awaitable[Any]]:
    async def add(a: int, b: int = 1) -> Any:
        """Add two integers."""
        return await act({"a": a, "b": b})

    return add


def _noting(act: Act) -> Callable[..., Any]:
    def note(text: str, _context: ToolContext, tags: list[str] | None = None) -> Any:
        """Note a text."""
        return act({"text": text, "tags": tags})

    return note


def _noting_later(act: Act) -> Callable[..., Awaitable[Any]]:
    async def note(text: str, _context: ToolContext, tags: list[str] | None = None) -> Any:
        """Note a text."""
        return await act({"text": text, "tags": tags})

    return note


_FUNCTIONS: Mapping[str, tuple[Maker, Maker]] = {
    "add": (_adding, _adding_later),
    "note": (_noting, _noting_later),
}


@dataclass(frozen=True, slots=True)
class Sketch:
    """A tool that is yet to be made.

    Args:
        name: its name.
        kind: what it takes.
        is_async: whether it is async.
        options: those of `Tool`.
    """

    name: str
    kind: str
    is_async: bool
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def tool(self, act: Act) -> Tool:
        """Make the tool.

        Args:
            act: what it does.
        """
        if self.kind in _FUNCTIONS:
            fn = _FUNCTIONS[self.kind][self.is_async](act)
            return tool(name=self.name, **self.options)(fn)

        async def run_async(**arguments: Any) -> Any:
            return await act(arguments)

        def run(**arguments: Any) -> Any:
            return act(arguments)

        fn = run_async if self.is_async else run
        told = f"It can {self.name.replace('_', ' ')}."
        return Tool(self.name, told, _SCHEMAS[self.kind], fn, **self.options)


def sketches(dice: Dice, count: int | None, *, approvals: bool) -> Iterator[Sketch]:
    """Sketch some tools.

    Args:
        dice: decides.
        count: how many; None is any number up to six.
        approvals: whether some of them need approval.
    """
    kinds = [*_SCHEMAS, *_FUNCTIONS]
    dice.shuffle(kinds)
    for place in range(dice.randint(1, 6) if count is None else count):
        kind = kinds[place % len(kinds)]
        again = place // len(kinds)
        options = _options(dice)
        if approvals and dice.chance(0.5):
            options["requires_approval"] = dice.choice((True, _sometimes, _wordily, _raising))
        yield Sketch(f"{kind}_{again}" if again else kind, kind, dice.chance(0.5), options)


def _sometimes(arguments: Mapping[str, Any]) -> bool:
    return len(arguments) > 1


def _wordily(_arguments: Mapping[str, Any]) -> str:
    return "Really?"


def _key_of_values(arguments: Mapping[str, Any]) -> Any:
    """A key, several, or none, of whatever the arguments are."""
    values = [value for value in arguments.values() if isinstance(value, str)]
    return values or None


def _raising(_arguments: Mapping[str, Any]) -> NoReturn:
    raise ValueError("chaos")


_OPTIONS: tuple[tuple[str, float, tuple[Any, ...]], ...] = (
    ("parallel_safe", 0.3, (False, False, True)),
    ("requires_fresh_input", 0.06, (True,)),
    ("max_parallel", 0.1, (1, 2, 3)),
    ("lock", 0.2, ("door", "door", _key_of_values, _raising)),
    ("dedupe", 0.15, (False,)),
    ("volatile", 0.15, (True,)),
    ("idempotent", 0.3, (True, False)),
    ("timeout", 0.3, (0.01, 0.03)),
    ("retries", 0.25, (1, 2)),
    ("max_uses", 0.1, (0, 1, 3)),
    ("terminal", 0.04, (True,)),
    ("annotations", 0.1, ({"readOnlyHint": True}, {"destructiveHint": True}, {"title": 5})),
)
"""Each option with its share of tools that have it, and what it may be."""


def _options(dice: Dice) -> dict[str, Any]:
    return {name: dice.choice(values) for name, share, values in _OPTIONS if dice.chance(share)}
