"""JSON Schemas in the subsets that providers accept, by a table for each and one walk over all keywords.

What a model wrote is validated against the schema of the user, whatever was sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from treadle.fast_dataclass import light_dataclass
from treadle.messages import JSONDict, is_list, is_mapping
from treadle.messages.json_text import json_type

Legal: TypeAlias = Callable[[Any], bool]


class NotInSubsetError(ValueError):
    """A schema has no form in a subset; the text names the place and the reason."""


@light_dataclass(frozen=True)
class Subset:
    """The JSON Schema that a provider accepts.

    Args:
        keywords: those that may be sent, each with a function that says for which values.
        is_exact: whether the values of the sent schema have to be those of the given one, apart from values that
            fit several parts of a ``oneOf``. Else other assertions become part of the description.
        is_closed: whether every object has to forbid other keys, and every value has a type.
        has_type_lists: whether ``type`` may be a list.
        has_recursion: whether a reference may lead back to where it is.
    """

    keywords: Mapping[str, Legal]
    is_exact: bool = False
    is_closed: bool = True
    has_type_lists: bool = True
    has_recursion: bool = True


def always(_value: Any) -> bool:
    """For keywords that may be sent with any value."""
    return True


def _is_local(reference: Any) -> bool:
    return reference == "#" or str(reference).startswith(("#/$defs/", "#/definitions/"))


def is_scalar(value: Any) -> bool:
    """Whether JSON has the value as a text, a number, true, false or null."""
    return value is None or isinstance(value, (str, int, float))


def _are_scalars(values: Any) -> bool:
    return is_list(values) and bool(values) and all(map(is_scalar, values))


def _is_regular(pattern: Any) -> bool:
    """Whether a pattern has neither look-around nor a reference to a group, which need backtracking."""
    return isinstance(pattern, str) and not re.search(r"\(\?(?!:)|\\[1-9bB]", pattern)


STRUCTURE: Mapping[str, Legal] = {
    "$defs": is_mapping, "$ref": _is_local, "additionalProperties": always, "anyOf": is_list,
    "definitions": is_mapping, "description": always, "enum": _are_scalars, "items": is_mapping,
    "properties": is_mapping, "required": is_list, "title": always, "type": always,
}  # fmt: skip
FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)
_ORDER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")

OPENAI = Subset(
    {
        **STRUCTURE,
        **dict.fromkeys((*_ORDER, "minItems", "maxItems"), always),
        "const": is_scalar,
        "format": FORMATS.__contains__,
        "pattern": _is_regular,
    },
    is_exact=True,
)
"""Strict mode: https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas". ``minLength`` and
``maxLength`` are not in its list."""

_APPLIES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_ORDER, frozenset({"integer", "number"})),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), frozenset({"string"})),
    **dict.fromkeys(
        ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
         "maxContains", "unevaluatedItems", "additionalItems"),
        frozenset({"array"}),
    ),
    **dict.fromkeys(
        ("properties", "required", "additionalProperties", "patternProperties", "propertyNames",
         "minProperties", "maxProperties", "unevaluatedProperties", "dependentRequired",
         "dependentSchemas", "dependencies"),
        frozenset({"object"}),
    ),
}  # fmt: skip
"""The types for which a keyword asserts anything."""
_ASSERTIONS = frozenset(
    {*_APPLIES, "$ref", "$dynamicRef", "$recursiveRef", "type", "enum", "const", "anyOf", "oneOf",
     "allOf", "not", "if", "then", "else", "divisibleBy", "disallow", "extends"} - {"format"}
)  # fmt: skip
"""All other keywords are annotations, and a schema without them has the same values."""
_NOTED = _ASSERTIONS | {"format", "default", "examples"}
"""The keywords that a description repeats if they cannot be sent."""
_DEFINITIONS = ("$defs", "definitions")


def fit(schema: Mapping[str, Any], subset: Subset, *, is_of_type: bool = False) -> JSONDict:
    """The schema in the form that a provider accepts; raises `NotInSubsetError`. Objects of a type are closed."""
    if not subset.has_recursion:
        from treadle.tools.validation import is_recursive  # noqa: PLC0415 - slow to import

        if is_recursive(schema):
            raise NotInSubsetError("the output contains itself")
    fitting = _Fitting(schema, subset, is_of_type=is_of_type)
    try:
        made = fitting.node(schema, "the output")
    except RecursionError:
        raise NotInSubsetError("the output is nested too deeply") from None
    if subset.is_exact and not (made.get("type") == "object" and _is_small(made, fitting.made)):
        raise NotInSubsetError("the output is no object, or too large")
    return made


def resolve(root: Any, reference: str) -> Any:
    """The target of a JSON pointer as a URI fragment (RFC 6901, section 6); None if it is not in the document."""
    if not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if is_mapping(found) else None
    return found


class _Fitting:
    def __init__(self, root: Mapping[str, Any], subset: Subset, *, is_of_type: bool) -> None:
        self._root = root
        self._subset = subset
        self._is_of_type = is_of_type
        self.made: list[JSONDict] = []

    def node(self, given: Any, place: str) -> JSONDict:
        if given is True:
            given = {}
        if not is_mapping(given):
            raise NotInSubsetError(f"{place} has no value")
        schema = self._rewritten(dict(given))
        made, notes = self._sorted(schema, place)
        self.made.append(made)
        if self._subset.is_closed:
            if made.keys().isdisjoint(("type", "$ref", "enum", "const", "anyOf")):
                raise NotInSubsetError(f"{place} has any type")
            if "object" in _types(made):
                self._close(schema, made, place)
        if self._subset.is_exact and "array" in _types(made) and "items" not in made:
            raise NotInSubsetError(f"{place}[] has any type")
        if notes:
            listed = ", ".join(f"{key}: {_shown(value)}" for key, value in notes.items())
            before = [made["description"]] if made.get("description") else []
            made["description"] = "\n\n".join([*before, f"{{{listed}}}"])
        return made

    def _rewritten(self, schema: JSONDict) -> JSONDict:
        """The same values in other keywords."""
        asserted = schema.keys() & _ASSERTIONS
        parts: Any = schema.get("allOf")
        if is_list(parts) and len(parts) == 1 and asserted == {"allOf"}:
            schema["anyOf"] = schema.pop("allOf")
        if is_list(schema.get("oneOf")) and "anyOf" not in schema:
            schema["anyOf"] = schema.pop("oneOf")
        may_move = asserted == {"$ref"} or not self._subset.is_exact
        if "$ref" in schema and may_move and not schema.keys() <= {"$ref", *_DEFINITIONS}:
            schema["anyOf"] = [{"$ref": schema.pop("$ref")}]
        if "const" in schema and "enum" not in schema and "const" not in self._subset.keywords:
            schema["enum"] = [schema.pop("const")]
        values: Any = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if self._subset.is_exact and "type" not in schema and _are_scalars(values):
            kinds = sorted({json_type(value) for value in values})
            schema["type"] = kinds if len(kinds) > 1 else kinds[0]
        types: Any = schema.get("type")
        if is_list(types) and not self._subset.has_type_lists and "anyOf" not in schema:
            # Null needs none of the other keywords.
            parts = [{"type": one} if one == "null" else {**schema, "type": one} for one in types]
            return {"anyOf": parts}
        return schema

    def _sorted(self, schema: JSONDict, place: str) -> tuple[JSONDict, JSONDict]:
        """The keywords that may be sent, and those for the description."""
        made: JSONDict = {}
        notes: JSONDict = {}
        types = _types(schema)
        only = next((key for key in ("$ref", "anyOf") if key in schema), None)
        for key, value in schema.items():
            if types and types.isdisjoint(_APPLIES.get(key, types)):
                continue  # it asserts nothing
            is_legal = self._subset.keywords.get(key)
            is_alone = only is None or key == only or key not in _ASSERTIONS
            if is_legal is not None and is_alone and is_legal(value):
                made[key] = self._part(key, value, place)
            elif key in _ASSERTIONS and self._subset.is_exact:
                raise NotInSubsetError(f"{place} has the keyword {key!r} with {_shown(value):.80}")
            elif key in _NOTED and not (self._subset.is_exact and key == "default"):
                notes[key] = value
        if notes.get("default", 0) is None or "properties" in notes:
            notes.pop("default", None)
        return made, notes

    def _part(self, key: str, value: Any, place: str) -> Any:
        if key in ("properties", *_DEFINITIONS):
            return {name: self.node(part, f"{place}.{name}") for name, part in value.items()}
        if key in ("anyOf", "prefixItems"):
            return [self.node(part, place) for part in value]
        if key == "items" or (key == "additionalProperties" and is_mapping(value)):
            is_free = key != "items" and self._subset.is_closed
            return value if is_free else self.node(value, f"{place}[]")
        return value

    def _close(self, schema: JSONDict, made: JSONDict, place: str) -> None:
        """Forbid other keys, and require all in an exact subset."""
        default = "properties" not in schema or (self._subset.is_exact and not self._is_of_type)
        others: Any = schema.get("additionalProperties", default)
        may_lose = not self._subset.is_exact and bool(schema.get("properties"))
        if is_mapping(others) or (others and not may_lose):
            raise NotInSubsetError(f"{place} is an object with free keys")
        made["additionalProperties"] = False
        fields: Any = made.setdefault("properties", {})
        if self._subset.is_exact:
            required: Sequence[Any] = made.get("required", ())
            for name in {*fields, *required}:
                part: Any = schema.get("properties", {}).get(name)
                if name not in fields or (name not in required and not self._is_implied(part)):
                    raise NotInSubsetError(f"{place}.{name} may be left out")
            made["required"] = list(fields)

    def _is_implied(self, part: Any) -> bool:
        """Whether leaving a field out means a value that needs no default: null, or the only one."""
        if not is_mapping(part) or "default" not in part:
            return False
        default, only = part["default"], part.get("const", part)
        if default is None:
            from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to import

            validator: Any = Draft202012Validator(self._root)
            return bool(validator.evolve(schema=part).is_valid(None))
        return is_scalar(only) and (type(only), only) == (type(default), default)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _types(schema: Mapping[str, Any]) -> set[str]:
    given: Any = schema.get("type")
    return {given} if isinstance(given, str) else set(given or ())


# Limits of OpenAI

MAX_NESTING, MAX_ENUM, MAX_CHARACTERS = 10, 1_000, 120_000
"""Of a whole schema, with the values of all enumerations. OpenAI counts the characters of names and values only,
which are fewer than those of the JSON, and 5,000 properties, which have more."""
LONG_ENUM, MAX_LONG_ENUM = 250, 15_000
"""An enumeration of more texts than the first number may have this many characters."""


def _is_small(schema: JSONDict, nodes: list[JSONDict]) -> bool:
    enums = [list(map(str, node["enum"])) for node in nodes if "enum" in node]
    return (
        len(json.dumps(schema, default=str)) <= MAX_CHARACTERS
        and sum(map(len, enums)) <= MAX_ENUM
        and all(len(one) <= LONG_ENUM or len("".join(one)) <= MAX_LONG_ENUM for one in enums)
        and _nesting(schema, schema, {}) <= MAX_NESTING
    )


def _nesting(root: JSONDict, node: Any, known: dict[str, int]) -> int:
    """The levels of objects and lists, through references that do not lead back."""
    reference = node.get("$ref")
    if reference is not None:
        if reference not in known:
            known[reference] = 0
            known[reference] = _nesting(root, resolve(root, reference) or {}, known)
        return known[reference]
    parts = [*node.get("properties", {}).values(), *node.get("anyOf", ())]
    parts += [node["items"]] if "items" in node else []
    deepest = max((_nesting(root, part, known) for part in parts), default=0)
    return deepest + (not _types(node).isdisjoint(("object", "array")))
