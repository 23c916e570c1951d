"""Arguments of calls: valid ones for a JSON Schema, and what misbehaving models make of them.

The generator supports types, enumerations, alternatives, references within the schema, and bounds. It cannot
satisfy ``pattern`` or ``not``; such a schema needs a default or an example.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from treadle.messages import JSONDict, is_list, is_mapping
from treadle.testing.chaos.dice import CONTROLS, SURROGATE, Dice, Table, always, one_of

_WORDS = ("alpha", "notes/today.md", "hello world", "naïve", "2026-07-01", "42", "東京", "x")
_FORMATS: Mapping[str, str] = {
    "date": "2026-07-01",
    "date-time": "2026-07-01T12:00:00Z",
    "time": "12:00:00Z",
    "email": "ada@example.org",
    "uri": "https://example.org/a?b=c",
    "uuid": "8c1e9b0a-5c36-4b52-9d4f-0d6f3c1f2a77",
}
_DEEPEST = 8
"""The nesting level from which only required fields are filled in."""


def valid_arguments(dice: Dice, schema: Mapping[str, Any]) -> JSONDict:
    """Make arguments that a schema accepts.

    Args:
        dice: makes the choices.
        schema: a JSON Schema of an object.
    """
    return _Generator(dice, schema).object(schema, 0)


class _Generator:
    """Makes values for the parts of one schema."""

    def __init__(self, dice: Dice, root: Mapping[str, Any]) -> None:
        self._dice = dice
        self._root = root

    def value(self, given: Any, depth: int) -> Any:
        schema = self._resolved(given, depth)
        if "const" in schema:
            return schema["const"]
        for key in ("enum", "examples"):
            if schema.get(key):
                return self._dice.choice(schema[key])
        if "default" in schema and (depth > _DEEPEST or self._dice.chance(0.2)):
            return schema["default"]
        kind: Any = schema.get("type", "string" if "properties" not in schema else "object")
        kind = self._dice.choice(kind) if is_list(kind) else kind
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        return (_SCALARS.get(kind) or _text)(self._dice, schema)

    def _resolved(self, given: Any, depth: int) -> Mapping[str, Any]:
        """The schema with its references followed and one of its alternatives chosen."""
        schema: Mapping[str, Any] = given if is_mapping(given) else {}
        for _ in range(_DEEPEST):
            if "$ref" in schema:
                schema = self._referenced(str(schema["$ref"]))
                continue
            key = next((key for key in ("anyOf", "oneOf", "allOf") if schema.get(key)), None)
            if key is None:
                break
            parts: list[Any] = schema[key]
            if key != "allOf":
                plain = [part for part in parts if "$ref" not in part] if depth > _DEEPEST else []
                parts = [self._dice.choice(plain or parts)]
            merged = {name: schema[name] for name in schema if name != key}
            for part in parts:
                merged.update(self._resolved(part, depth + 1))
            schema = merged
        return schema

    def _referenced(self, reference: str) -> Mapping[str, Any]:
        place: Any = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            place = place.get(step, {}) if is_mapping(place) else {}
        return place if is_mapping(place) else {}

    def object(self, given: Mapping[str, Any], depth: int) -> JSONDict:
        schema = self._resolved(given, depth)
        required: Any = schema.get("required", ())
        optional = 0.0 if depth > _DEEPEST else 0.5
        made = {
            name: self.value(part, depth + 1)
            for name, part in schema.get("properties", {}).items()
            if name in required or self._dice.chance(optional)
        }
        for name in required:
            made.setdefault(name, "x")
        extra = schema.get("additionalProperties")
        if is_mapping(extra) and depth <= _DEEPEST:
            for word in self._dice.sample(_WORDS, self._dice.randrange(3)):
                made.setdefault(word, self.value(extra, depth + 1))
        return made

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        made = [self.value(part, depth + 1) for part in schema.get("prefixItems", ())]
        least = int(schema.get("minItems", 0))
        most = least if depth > _DEEPEST else int(schema.get("maxItems", least + 3))
        length = self._dice.randint(min(least, most), most)
        while len(made) < length:
            made.append(self.value(schema.get("items", {"type": "string"}), depth + 1))
        if schema.get("uniqueItems"):
            made = [one for place, one in enumerate(made) if one not in made[:place]]
        return made


def _text(dice: Dice, schema: Mapping[str, Any]) -> str:
    made = _FORMATS.get(str(schema.get("format"))) or dice.choice(_WORDS)
    made = made.ljust(int(schema.get("minLength", 0)), "x")
    return made[: int(schema.get("maxLength", len(made)))]


def _number(dice: Dice, schema: Mapping[str, Any]) -> float:
    low, high = _bounds(schema, 1e-6)
    return round(dice.uniform(low, high), 6) if low < high else low


def _integer(dice: Dice, schema: Mapping[str, Any]) -> int:
    low, high = _bounds(schema, 1)
    step = int(schema.get("multipleOf", 1)) or 1
    first, last = math.ceil(low / step), math.floor(high / step)
    return step * dice.randint(first, max(first, last))


def _bounds(schema: Mapping[str, Any], step: float) -> tuple[float, float]:
    none = math.inf
    low = max(schema.get("minimum", -none), schema.get("exclusiveMinimum", -none) + step)
    high = min(schema.get("maximum", none), schema.get("exclusiveMaximum", none) - step)
    if low == -none:
        low = (0 if high == none else high) - 9
    return low, low + 99 if high == none else high


_SCALARS: Mapping[Any, Callable[[Dice, Mapping[str, Any]], Any]] = {
    "number": _number,
    "integer": _integer,
    "boolean": lambda dice, _schema: dice.chance(0.5),
    "null": always(None),
}
"""By JSON Schema type; all others are text."""
_SEPARATORS = ((",", ":"), (", ", ": "), (" ,\n", " :\t"))


def written(dice: Dice, arguments: JSONDict) -> str:
    """Serialize arguments as JSON, with keys in any order and any white space."""
    keys = list(arguments)
    dice.shuffle(keys)
    return json.dumps({key: arguments[key] for key in keys}, separators=dice.choice(_SEPARATORS))


# Malformed arguments.

Spoiler: TypeAlias = Callable[[Dice, JSONDict], Any]
"""Takes valid arguments; returns what the call has as its arguments."""


def _field(dice: Dice, good: JSONDict) -> str:
    return dice.choice(list(good)) if good else "x"


def _changed(dice: Dice, good: JSONDict, value: Any) -> JSONDict:
    return {**good, _field(dice, good): value}


def _with_changed(choose: Callable[[Dice], Any]) -> Spoiler:
    """JSON text with one value replaced."""
    return lambda dice, good: json.dumps(_changed(dice, good, choose(dice)))


def _with_raw(dice: Dice, good: JSONDict, raw: str) -> str:
    """JSON text with one value replaced by text that need not be JSON."""
    mark = "\ufffd"
    return json.dumps(_changed(dice, good, mark), ensure_ascii=False).replace(f'"{mark}"', raw)


def _with_one_of(*raw: str) -> Spoiler:
    return lambda dice, good: _with_raw(dice, good, dice.choice(raw))


def _written_as(template: str) -> Spoiler:
    return lambda _d, good: template.replace("...", json.dumps(good))


def _truncated(dice: Dice, good: JSONDict) -> str:
    text = json.dumps(good)
    return text[: dice.randrange(1, len(text))]


def _duplicate_key(dice: Dice, good: JSONDict) -> str:
    field = json.dumps(_field(dice, good))
    rest = json.dumps(good)[1:-1] or f"{field}: 1"
    return f"{{{field}: null, {rest}}}"


def _deep(dice: Dice, good: JSONDict) -> str:
    depth = dice.choice((60, 300, 480, 700, 900, 1_100, 3_000, 20_000))
    opening, closing = dice.choice((('{"x":', "}"), ("[", "]")))
    inner = opening * depth + "1" + closing * depth
    return _with_raw(dice, good, inner[: dice.choice((None, None, len(opening) * depth))])


def _lone_surrogate(dice: Dice, good: JSONDict) -> str:
    fields = ((SURROGATE, 1), (_field(dice, good), f"a{SURROGATE}"))
    name, value = dice.choice(fields)
    return json.dumps({**good, name: value}, ensure_ascii=dice.chance(0.5))


def _missing_field(dice: Dice, good: JSONDict) -> str:
    field = _field(dice, good)
    return json.dumps({name: value for name, value in good.items() if name != field})


def _unknown_field(dice: Dice, good: JSONDict) -> str:
    return json.dumps({**good, dice.choice(_UNKNOWN_NAMES): dice.choice((1, None, [], "x"))})


def _many_fields(dice: Dice, good: JSONDict) -> str:
    return json.dumps({**good, **{f"f{n}": n for n in range(dice.choice((30, 300)))}})


def _not_json(dice: Dice, good: JSONDict) -> Any:
    cyclic: JSONDict = dict(good)
    cyclic["self"] = cyclic
    odd: tuple[Any, ...] = ({(1, 2): 3}, {5: math.nan}, {"x": {1, 2}}, {"x": SURROGATE})
    return dice.choice((cyclic, *odd))


_TYPES: tuple[Any, ...] = (
    *(None, True, 5, -1.5, "five", "", [], [[]], {}, {"x": {"y": 1}}, "1", "true"),
)
_UNKNOWN_NAMES = (
    *("extra", "", " ", "self", "cls", "__class__", "fn", "context", "a" * 3_000, "\0", "ö"),
)
_HUGE = ("1e999", "-1e999", "9" * 400, "9" * 5_000, "0." + "1" * 5_000, "1e-999", "-0", str(2**63))
_MALFORMED = ("007", "+1", ".5", "1.", "0x1F", "1_000", "--1")
_CONTROLS = [f'"{text}"' for text in (CONTROLS, "\0", "\x1b[2J", "\n")]
ARGUMENTS: Table[Spoiler] = Table(
    "arguments",
    {
        "truncated": (4, _truncated),
        "in single quotes": (2, lambda _d, good: repr(good)),
        "with a trailing comma": (2, lambda _d, good: json.dumps({**good, "x": 1})[:-1] + ",}"),
        "with a NaN": (2, _with_one_of("NaN", "-Infinity", "Infinity", "-NaN", "1.#INF")),
        "with a huge number": (2, _with_one_of(*_HUGE)),
        "with a malformed number": (2, _with_one_of(*_MALFORMED)),
        "encoded twice": (2, lambda _d, good: json.dumps(json.dumps(good))),
        "an array": (2, _written_as("[...]")),
        "a scalar": (2, one_of("5", "true", '"x"', "-0.0", '""')),
        "empty": (2, always("")),
        "white space": (1, one_of(" ", "\n\t\r ", "\u00a0", "\u200b")),
        "null": (1, always("null")),
        "missing": (1, always(None)),
        "control characters": (2, _with_one_of(*_CONTROLS)),
        "escaped control characters": (2, _with_changed(always(CONTROLS))),
        "with a lone surrogate": (2, _lone_surrogate),
        "deeply nested": (2, _deep),
        "with a duplicate key": (2, _duplicate_key),
        "in a code fence": (1, _written_as("```json\n...\n```")),
        "in prose": (1, _written_as("Sure! ... I hope it helps.")),
        "two objects": (1, lambda _d, good: json.dumps(good) * 2),
        "with a comment": (1, lambda _d, good: "{// first\n" + json.dumps(good)[1:]),
        "after a byte order mark": (1, _written_as("\ufeff...")),
        "not JSON": (1, one_of("<x>1</x>", "x=1&y=2", "{x: 1}", "}{")),
        "of a wrong type": (6, _with_changed(one_of(*_TYPES))),
        "with a missing field": (4, _missing_field),
        "with an unknown field": (3, _unknown_field),
        "with many unknown fields": (1, _many_fields),
        "with a huge text": (
            1,
            _with_changed(lambda dice: dice.choice("xé\n") * dice.randrange(dice.longest)),
        ),
        "an object instead of text": (2, lambda _d, good: good),
        "an object that is not JSON": (1, _not_json),
        "a number instead of text": (1, one_of(5, 0, True, 1.5)),
    },
)
"""The arguments of a call: valid, or malformed in one of these ways."""
