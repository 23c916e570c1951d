"""JSON Schemas in strict mode of OpenAI, which servers of its API enforce.

Any callable gets this form, such as a method of an SDK. What a model wrote is validated against the schema of the
user, whatever was sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

from treadle.messages import JSONDict, is_list, is_mapping
from treadle.messages.json_text import json_type

Keywords: TypeAlias = Mapping[str, Callable[[Any], bool] | None]
"""The keywords that may be sent, each with a function that says for which values; None means for all."""


class NotInSubsetError(ValueError):
    """A schema has no form in a subset; the text names the place and the reason."""


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


STRUCTURE: Keywords = {
    "$defs": is_mapping, "$ref": _is_local, "additionalProperties": None, "anyOf": is_list,
    "definitions": is_mapping, "description": None, "enum": _are_scalars, "items": is_mapping,
    "properties": is_mapping, "required": is_list, "title": None, "type": None,
}  # fmt: skip
FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)
_ORDER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
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
ASSERTIONS = frozenset(
    {*_APPLIES, "$ref", "$dynamicRef", "$recursiveRef", "type", "enum", "const", "anyOf", "oneOf",
     "allOf", "not", "if", "then", "else", "divisibleBy", "disallow", "extends"} - {"format"}
)  # fmt: skip
"""All other keywords are annotations, and a schema without them has the same values."""
TYPED = ("type", "$ref", "enum", "const", "anyOf")
"""The keywords of which a value has one, if not every value is legal."""
_DEFINITIONS = ("$defs", "definitions")


def strict_form(schema: Mapping[str, Any], *, is_of_type: bool = False) -> JSONDict | None:
    """The schema in strict mode; None if no form of it has the same values. Objects of a type are closed."""
    fitting = StrictSchema(schema, is_of_type=is_of_type)
    try:
        made = fitting.fitted()
    except NotInSubsetError:
        return None
    return made if made.get("type") == "object" and _is_small(made, fitting.made) else None


def resolve(root: Any, reference: str) -> Any:
    """The target of a JSON pointer as a URI fragment (RFC 6901, section 6); None if it is not in the document."""
    if not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if is_mapping(found) else None
    return found


class StrictSchema:
    """Rewrites a schema with the same values, apart from those that fit several parts of a ``oneOf``.

    See "Supported schemas" in https://platform.openai.com/docs/guides/structured-outputs.
    """

    keywords: ClassVar[Keywords] = {
        **STRUCTURE,
        **dict.fromkeys((*_ORDER, "minItems", "maxItems")),
        "const": is_scalar,
        "format": FORMATS.__contains__,
        "pattern": _is_regular,
    }

    def __init__(self, root: Mapping[str, Any], *, is_of_type: bool = False) -> None:
        self.root = root
        self._is_of_type = is_of_type
        self.made: list[JSONDict] = []

    def fitted(self) -> JSONDict:
        """The whole schema; raises `NotInSubsetError`."""
        try:
            return self.node(self.root, "the output")
        except RecursionError:
            raise NotInSubsetError("the output is nested too deeply") from None

    def node(self, given: Any, place: str) -> JSONDict:
        """The schema at a place."""
        if given is True:
            given = {}
        if not is_mapping(given):
            raise NotInSubsetError(f"{place} has no value")
        schema = self.rewritten(dict(given))
        made: JSONDict = {}
        notes: list[str] = []
        types = types_of(schema)
        only = next((key for key in ("$ref", "anyOf") if key in schema), None)
        for key, value in schema.items():
            if types and types.isdisjoint(_APPLIES.get(key, types)):
                continue  # it asserts nothing
            is_alone = only is None or key == only or key not in ASSERTIONS
            is_legal = self.keywords.get(key)
            if is_alone and key in self.keywords and (is_legal is None or is_legal(value)):
                made[key] = self._part(key, value, place)
            elif self.is_noted(key, schema, place):
                shown = json.dumps(value, ensure_ascii=False, default=str)
                notes.append(f"{key}: {value if isinstance(value, str) else shown}")
        self.made.append(made)
        self.check(schema, made, place)
        if notes:
            before = [made["description"]] if made.get("description") else []
            made["description"] = "\n\n".join([*before, f"{{{', '.join(notes)}}}"])
        return made

    def rewritten(self, schema: JSONDict) -> JSONDict:
        """The same values in other keywords."""
        asserted = schema.keys() & ASSERTIONS
        parts: Any = schema.get("allOf")
        if is_list(parts) and len(parts) == 1 and asserted == {"allOf"}:
            schema["anyOf"] = schema.pop("allOf")
        if is_list(schema.get("oneOf")) and "anyOf" not in schema:
            schema["anyOf"] = schema.pop("oneOf")
        if asserted == {"$ref"} and not schema.keys() <= {"$ref", *_DEFINITIONS}:
            schema["anyOf"] = [{"$ref": schema.pop("$ref")}]
        values: Any = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if "type" not in schema and _are_scalars(values):
            kinds = sorted({json_type(value) for value in values})
            schema["type"] = kinds if len(kinds) > 1 else kinds[0]
        return schema

    def is_noted(self, key: str, schema: JSONDict, place: str) -> bool:
        """Whether the description repeats a keyword that cannot be sent; raises if it has to be sent."""
        if key in ASSERTIONS:
            raise NotInSubsetError(f"{place} has the keyword {key!r} with {schema[key]!r:.80}")
        return key in {"format", "examples"}

    def _part(self, key: str, value: Any, place: str) -> Any:
        if key in ("properties", *_DEFINITIONS):
            return {name: self.node(part, f"{place}.{name}") for name, part in value.items()}
        if key in ("anyOf", "prefixItems"):
            return [self.node(part, place) for part in value]
        if key == "items" or (key == "additionalProperties" and is_mapping(value)):
            return self.node(value, f"{place}[]")
        return value

    def check(self, schema: JSONDict, made: JSONDict, place: str) -> None:
        """Forbid other keys, and require all; raise for what strict mode refuses."""
        types = types_of(made)
        if made.keys().isdisjoint(TYPED) or ("array" in types and "items" not in made):
            raise NotInSubsetError(f"{place} has any type")
        if "object" not in types:
            return
        is_open = not self._is_of_type or "properties" not in schema
        if schema.get("additionalProperties", is_open) is not False:
            raise NotInSubsetError(f"{place} is an object with free keys")
        fields: Any = made.setdefault("properties", {})
        required = set[Any](made.get("required", ()))
        optional = [schema["properties"][name] for name in fields.keys() - required]
        if not (required <= fields.keys() and all(map(self._is_implied, optional))):
            raise NotInSubsetError(f"{place} has a field that may be left out")
        made.update(additionalProperties=False, required=[*fields])

    def _is_implied(self, part: Any) -> bool:
        """Whether leaving a field out means a value that needs no default: null, or the only one."""
        if not is_mapping(part) or "default" not in part:
            return False
        default, only = part["default"], part.get("const", part)
        if default is None:
            from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to import

            validator: Any = Draft202012Validator(self.root)
            return bool(validator.evolve(schema=part).is_valid(None))
        return is_scalar(only) and (type(only), only) == (type(default), default)


def types_of(schema: Mapping[str, Any]) -> set[str]:
    """The types that a schema lists."""
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
    return deepest + (not types_of(node).isdisjoint(("object", "array")))
