"""A fast check of arguments: most calls are valid, and most schemas are simple.

Arguments that pass the check are valid. All others are validated by jsonschema, which takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from treadle.messages import ATOMS, is_list, is_mapping

Check: TypeAlias = Callable[[Any], bool]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
"""Exact types: ``True`` is not an integer. ``1.0`` is one, but is left to jsonschema."""

_ANNOTATIONS = frozenset(
    {"$comment", "$schema", "default", "deprecated", "description", "examples", "format", "title"}
)
"""Keywords that assert nothing; ``format`` is one of them by default since draft 2019-09."""


def compile_check(schema: Any) -> Check | None:
    """Compile a schema.

    Args:
        schema: a valid JSON Schema.

    Returns:
        A function that returns True only for valid values; None if the schema has keywords that it does not
        support.
    """
    if not is_mapping(schema) or "draft-03" in str(schema.get("$schema")):  # its types differ
        return None
    made: Check | None = None
    match sorted(schema.keys() - _ANNOTATIONS):
        case []:
            made = lambda _value: True  # noqa: E731
        case ["type"]:
            kinds = _kinds(schema["type"])
            made = lambda value: type(value) in kinds  # noqa: E731
        case ["enum", "type"] if schema["type"] == "string":
            # Values that are equal in Python (1 and True) differ in JSON.
            if all(isinstance(value, str) for value in schema["enum"]):
                members = frozenset[str](schema["enum"])
                made = lambda value: type(value) is str and value in members  # noqa: E731
        case ["items", "type"] if schema["type"] == "array":
            check = compile_check(schema["items"])
            if check is not None:
                made = lambda value: type(value) is list and all(map(check, value))  # noqa: E731  # pyright: ignore[reportUnknownArgumentType]
        case ["anyOf"]:
            checks = [compile_check(part) for part in schema["anyOf"]]
            known = [check for check in checks if check is not None]
            if len(known) == len(checks):
                made = lambda value: any(check(value) for check in known)  # noqa: E731
        case _:
            made = _object(schema)
    return made


def _kinds(named: Any) -> frozenset[type]:
    names: list[str] = [named] if isinstance(named, str) else named
    return frozenset(kind for name in names for kind in _TYPES[name])


def _object(schema: Mapping[str, Any]) -> Check | None:
    if schema.get("type") != "object" or not schema.keys() - _ANNOTATIONS <= _OF_AN_OBJECT:
        return None
    extra = schema.get("additionalProperties", True)
    parts: Mapping[str, Any] = schema.get("properties", {})
    checks = {name: compile_check(part) for name, part in parts.items()}
    is_known = isinstance(extra, bool) and is_list(schema.get("required", []))
    if not is_known or None in checks.values():
        return None
    # Most fields have just a type, which needs no call for each field.
    typed = (name for name, part in parts.items() if part.keys() - _ANNOTATIONS == {"type"})
    kinds = {name: _kinds(parts[name]["type"]) for name in typed}
    required: frozenset[str] = frozenset(schema.get("required", ()))

    def check(value: Any) -> bool:
        if type(value) is not dict or not required <= value.keys():
            return False
        fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        for name, part in fields.items():
            allowed, check_part = kinds.get(name), checks.get(name)
            if allowed is not None:
                if type(part) not in allowed:
                    return False
            elif not (extra if check_part is None else check_part(part)):
                return False
        return True

    return check


def is_flat(schema: Mapping[str, Any]) -> bool:
    """Whether the schema of an object clearly allows no value that can be changed in place."""
    is_plain = schema.keys() <= _OF_AN_OBJECT | {"title", "description"}
    is_closed = is_plain and schema.get("additionalProperties") is False
    return is_closed and all(map(_is_atomic, schema.get("properties", {}).values()))


def _is_atomic(schema: Any) -> bool:
    """Whether a schema clearly allows no container."""
    return is_mapping(schema) and "type" in schema and _kinds(schema["type"]) <= ATOMS


_OF_AN_OBJECT = frozenset({"type", "properties", "required", "additionalProperties"})
