"""Making arguments that a JSON Schema accepts: a generator for the schemas that tools have.

It knows types, enumerations, alternatives, references within the schema, and bounds. What a pattern or a
``not`` demands it cannot make; then a default or an example of the schema has to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from treadle.messages import JSONDict, is_list, is_mapping
from treadle.testing._chaos_dice import Dice

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
"""Levels after which only what is required is filled in."""


def valid_arguments(dice: Dice, schema: Mapping[str, Any]) -> JSONDict:
    """Make arguments for a tool.

    Args:
        dice: decides.
        schema: a JSON Schema of an object.
    """
    return _Maker(dice, schema).object(schema, 0)


class _Maker:
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
        if is_list(kind):
            kind = self._dice.choice(kind)
        maker = _MAKERS.get(kind, _MAKERS["string"])
        return maker(self, schema, depth)

    def _resolved(self, given: Any, depth: int) -> Mapping[str, Any]:
        """The schema with its references followed, and one of its alternatives chosen."""
        schema: Mapping[str, Any] = given if is_mapping(given) else {}
        for _ in range(_DEEPEST):
            if "$ref" in schema:
                schema = self._referred(str(schema["$ref"]))
                continue
            key = next((key for key in ("anyOf", "oneOf", "allOf") if schema.get(key)), None)
            if key is None:
                break
            rest = {name: schema[name] for name in schema if name != key}
            parts: list[Any] = schema[key]
            if key == "allOf":
                for part in parts:
                    rest |= dict(self._resolved(part, depth + 1))
                schema = rest
            else:
                plain = [part for part in parts if "$ref" not in part] if depth > _DEEPEST else []
                schema = {**rest, **self._resolved(self._dice.choice(plain or parts), depth + 1)}
        return schema

    def _referred(self, reference: str) -> Mapping[str, Any]:
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

    def array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        made = [self.value(part, depth + 1) for part in schema.get("prefixItems", ())]
        least = int(schema.get("minItems", 0))
        most = least if depth > _DEEPEST else int(schema.get("maxItems", least + 3))
        length = self._dice.randint(min(least, most), most)
        while len(made) < length:
            made.append(self.value(schema.get("items", {"type": "string"}), depth + 1))
        if schema.get("uniqueItems"):
            made = [one for place, one in enumerate(made) if one not in made[:place]]
        return made

    def text(self, schema: Mapping[str, Any], _depth: int) -> str:
        made = _FORMATS.get(str(schema.get("format"))) or self._dice.choice(_WORDS)
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        made += "x" * (least - len(made))
        return made if most is None else made[: int(most)]

    def number(self, schema: Mapping[str, Any], _depth: int) -> float:
        low, high = self._bounds(schema, 1e-6)
        return round(self._dice.uniform(low, high), 6) if low < high else low

    def integer(self, schema: Mapping[str, Any], _depth: int) -> int:
        low, high = self._bounds(schema, 1)
        step = int(schema.get("multipleOf", 1)) or 1
        first, last = math.ceil(low / step), math.floor(high / step)
        return step * self._dice.randint(first, max(first, last))

    def _bounds(self, schema: Mapping[str, Any], least_step: float) -> tuple[float, float]:
        low, high = schema.get("minimum"), schema.get("maximum")
        above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        low = above + least_step if low is None and above is not None else low
        high = below - least_step if high is None and below is not None else high
        if low is None:
            low = (high if high is not None else 0) - 9
        return low, low + 99 if high is None else high

    def flag(self, _schema: Mapping[str, Any], _depth: int) -> bool:
        return self._dice.chance(0.5)

    def nothing(self, _schema: Mapping[str, Any], _depth: int) -> None:
        return None


_Made: TypeAlias = Callable[[_Maker, Mapping[str, Any], int], Any]
_MAKERS: Mapping[Any, _Made] = {
    "object": _Maker.object,
    "array": _Maker.array,
    "string": _Maker.text,
    "number": _Maker.number,
    "integer": _Maker.integer,
    "boolean": _Maker.flag,
    "null": _Maker.nothing,
}
