"""Compiles JSON Schemas, and describes violations in texts that a model can act on.

The module is imported with the first tool, not with the package, since importing jsonschema is slow.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from pydantic_core import CoreSchema, core_schema
from pydantic_core import SchemaValidator as CoreValidator
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from treadle.errors import ToolDefinitionError
from treadle.messages import is_list, is_mapping, short_json, short_name
from treadle.messages.json_text import MAX_COUNTED, MAX_LENGTH, format_path, json_type
from treadle.tools.patterns import UnsupportedPatternError, matcher_of

STEPS, STEPS_PER_VALUE = 50_000, 500
"""How many keywords of a schema are checked: at least, and for each value in the arguments.

A schema without recursion takes fewer. One whose alternatives lead back to themselves may take a number that is
exponential in the depth of the arguments.
"""


class TooManyStepsError(Exception):
    """The arguments are too complicated for their schema."""


class SchemaValidator:
    """A compiled schema, by default of draft 2020-12, as in MCP; raises `ToolDefinitionError`. It fetches nothing.

    Attributes:
        accepts: a quick check; arguments that it accepts are valid, and others may be.
        is_recursive: whether a reference leads back to where it is, so that small arguments may take long.
    """

    def __init__(self, schema: Mapping[str, Any], where: str) -> None:
        if schema.get("type") != "object":
            raise ToolDefinitionError(
                f"{where}: expected a schema of type 'object', got {schema.get('type')!r}"
            )
        made: Any = _bounded(validators.validator_for(schema, default=Draft202012Validator))
        try:
            _check_schema(made, json.dumps(schema, default=str))
        except SchemaError as error:
            path = "".join(f"[{part!r}]" for part in error.absolute_path)
            raise ToolDefinitionError(f"{where}{path}: {error.message}") from None
        registry: Any = Registry[Any]()  # jsonschema's default would fetch references
        validator: Validator = made(schema, registry=registry)
        draft: Any = specification_with(str(schema.get("$schema")), default=DRAFT202012)
        root = draft.create_resource(schema)
        keywords = _checked_parts(root, registry.resolver_with_root(root), where)
        # jsonschema would search the patterns of both itself.
        if {"patternProperties", "unevaluatedProperties"} <= keywords:
            raise ToolDefinitionError(
                f"{where}: patternProperties and unevaluatedProperties cannot be used together"
            )
        self._iter_errors = validator.iter_errors
        self.accepts: Callable[[Any], bool] = lambda _arguments: False
        with contextlib.suppress(NotImplementedError):
            self.accepts = CoreValidator(_simple(schema)).isinstance_python
        self.is_recursive = is_recursive(schema)

    def problems_of(self, arguments: Mapping[str, Any]) -> list[str]:
        """The first violations, with their paths: ``to[0].address: expected string, got integer 5``."""
        if self.accepts(arguments):
            return []
        _steps.left = STEPS + STEPS_PER_VALUE * _count(arguments)
        try:
            found = itertools.islice(self._iter_errors(arguments), MAX_COUNTED)
            return sorted(
                f"{format_path(error.absolute_path)}: {_describe(error)}" for error in found
            )
        except TooManyStepsError:
            return ["arguments: they are too deeply nested to be checked against their schema"]


# The quick check

_KINDS: Mapping[str, CoreSchema] = {
    "string": core_schema.str_schema(strict=True),
    "integer": core_schema.int_schema(strict=True),
    "number": core_schema.float_schema(strict=True),
    "boolean": core_schema.bool_schema(strict=True),
    "null": core_schema.none_schema(),
    "array": core_schema.list_schema(strict=True),
    "object": core_schema.dict_schema(strict=True),
}
"""``1.0`` is an integer, too, but is left to jsonschema."""
_ANNOTATIONS = frozenset(
    {"$comment", "$schema", "default", "deprecated", "description", "examples", "format", "title"}
)
"""Keywords that assert nothing; ``format`` is one of them by default since draft 2019-09."""
_OF_AN_OBJECT = frozenset({"type", "properties", "required", "additionalProperties"})


def _simple(schema: Any) -> CoreSchema:
    """The check of a schema, which accepts only valid values; `NotImplementedError` if it is not simple."""
    if not is_mapping(schema) or "draft-03" in str(schema.get("$schema")):  # its types differ
        raise NotImplementedError
    kind: Any = schema.get("type")
    match sorted(schema.keys() - _ANNOTATIONS):
        case []:
            return core_schema.any_schema()
        case ["type"]:
            kinds = [kind] if isinstance(kind, str) else kind
            return core_schema.union_schema([_KINDS[one] for one in kinds])
        case ["enum", "type"] if kind == "string" and schema["enum"]:
            if all(isinstance(value, str) for value in schema["enum"]):  # else 1 is True in Python
                return core_schema.literal_schema(schema["enum"])
        case ["items", "type"] if kind == "array":
            return core_schema.list_schema(_simple(schema["items"]), strict=True)
        case ["anyOf"]:
            return core_schema.union_schema(list(map(_simple, schema["anyOf"])))
        case keywords if kind == "object" and _OF_AN_OBJECT.issuperset(keywords):
            required, others = schema.get("required", ()), schema.get("additionalProperties", True)
            fields = {
                name: core_schema.typed_dict_field(_simple(part), required=name in required)
                for name, part in schema.get("properties", {}).items()
            }
            if isinstance(others, bool) and fields.keys() >= {*required}:
                extra: Any = "allow" if others else "forbid"
                return core_schema.typed_dict_schema(fields, strict=True, extra_behavior=extra)
        case _:
            pass
    raise NotImplementedError


# Bounds

_Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


_steps = threading.local()
"""``left`` are the steps that are left to the validation in this thread."""


def _count(value: Any) -> int:
    if is_mapping(value):
        return 1 + sum(map(_count, value.values()))
    return 1 + sum(map(_count, value)) if is_list(value) else 1


@functools.cache
def _bounded(validator: Any) -> Any:
    """A validator class that counts its steps, takes linear time where jsonschema does not, and divides decimals.

    jsonschema's own check of ``uniqueItems`` is quadratic if the items are of several types: 7 s for 54 kB. Its
    patterns backtrack, and its text about unknown fields lists all of them.
    """
    extend: Any = validators.extend  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    keywords: Mapping[str, _Keyword] = validator.VALIDATORS
    checks = {name: _LINEAR.get(name, (None, check)) for name, check in keywords.items()}
    return extend(validator, {name: _counted(*one) for name, one in checks.items()})


def _counted(kind: str | None, check: _Keyword) -> _Keyword:
    """A check of values of a kind that counts its steps."""

    def counted(validator: Any, wanted: Any, given: Any, schema: Any) -> Any:
        _steps.left -= 1
        if _steps.left < 0:
            raise TooManyStepsError
        is_of_kind = kind is None or validator.is_type(given, kind)
        return check(validator, wanted, given, schema) if is_of_kind else None

    return counted


def _check_unique(_: Any, is_unique: bool, items: Any, __: Any) -> Iterator[ValidationError]:
    if is_unique and len(set(map(_identity_of, items))) < len(items):
        yield ValidationError(f"{short_json(items)} has non-unique elements")


def _identity_of(value: Any) -> Any:
    """A hashable value that is equal for equal JSON: 1 and 1.0 are equal, 1 and true are not.

    A number is the bytes of its digits, whose hash a model cannot predict: multiples of 2**61 - 1 have the hash 0.
    """
    if is_mapping(value):
        return frozenset((key, _identity_of(part)) for key, part in value.items())
    if is_list(value):
        return tuple(map(_identity_of, value))
    if isinstance(value, str):
        return value
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value).encode()


def _check_multiple(_: Any, divisor: Any, given: Any, __: Any) -> Iterator[ValidationError]:
    """Compare the numbers as they are written: 19.99 is a multiple of 0.01, though not in binary."""
    try:
        is_multiple = (Fraction(str(given)) / Fraction(str(divisor))).denominator == 1
    except ValueError:  # infinity, in an output of a stage
        is_multiple = False
    if not is_multiple:
        yield ValidationError(f"{short_json(given)} is not a multiple of {divisor}")


def _check_pattern(_: Any, pattern: str, given: Any, __: Any) -> Iterator[ValidationError]:
    if not matcher_of(pattern)(given):
        text = short_name(repr(given[: 2 * MAX_LENGTH]))
        yield ValidationError(f"{text} does not match {pattern!r}")


def _check_patterns(
    validator: Any, patterns: Mapping[str, Any], given: Any, _: Any
) -> Iterator[ValidationError]:
    for pattern, part in patterns.items():
        for name in filter(matcher_of(pattern), given):
            yield from validator.descend(given[name], part, path=name, schema_path=pattern)


def _check_additional(
    validator: Any, allowed: Any, given: Any, schema: Any
) -> Iterator[ValidationError]:
    unknown = _unknown_fields(given, schema)
    if validator.is_type(allowed, "object"):
        for name in unknown:
            yield from validator.descend(given[name], allowed, path=name)
    elif not allowed and next(unknown, None) is not None:
        yield ValidationError("it has unknown fields")


def _unknown_fields(given: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    known: Any = schema.get("properties", {})
    patterns = [matcher_of(pattern) for pattern in schema.get("patternProperties", ())]
    for name in given:
        if name not in known and not any(matches(name) for matches in patterns):
            yield name


_LINEAR: Mapping[str, tuple[str, _Keyword]] = {
    "multipleOf": ("number", _check_multiple),
    "divisibleBy": ("number", _check_multiple),
    "uniqueItems": ("array", _check_unique),
    "pattern": ("string", _check_pattern),
    "patternProperties": ("object", _check_patterns),
    "additionalProperties": ("object", _check_additional),
}
"""The types of values for which a keyword asserts anything, and its check."""


# The schema


@functools.lru_cache(maxsize=1_000)  # a loop that is made for each request has the same tools
def _check_schema(validator: Any, text: str) -> None:
    validator.check_schema(json.loads(text))


def _checked_parts(schema: Any, resolver: Any, where: str) -> set[str]:
    """Check the references and patterns of a schema and its subschemas; return all keywords in them."""
    contents: Mapping[str, Any] = schema.contents if is_mapping(schema.contents) else {}
    reference, pattern = contents.get("$ref"), contents.get("pattern")
    if isinstance(reference, str):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise ToolDefinitionError(
                f"{where}: the reference {reference!r} cannot be resolved within the schema"
            ) from None
    patterns = (pattern,) if isinstance(pattern, str) else ()
    for one in (*contents.get("patternProperties", ()), *patterns):
        try:
            matcher_of(one)
        except UnsupportedPatternError as error:
            raise ToolDefinitionError(f"{where}: the pattern {one!r}: {error}") from None
    keywords = set(contents)
    for part in schema.subresources():
        keywords |= _checked_parts(part, resolver.in_subresource(part), where)
    return keywords


def is_recursive(schema: Mapping[str, Any]) -> bool:
    """Whether a reference may lead back to where it is."""
    named = {
        f"#/{key}/{name}": _references(part)
        for key in ("$defs", "definitions")
        for name, part in schema.get(key, {}).items()
    }
    try:
        TopologicalSorter(named).prepare()
    except CycleError:
        return True
    # A reference to the root, an anchor or a part may be anywhere.
    return not _references(schema) <= named.keys()


def _references(value: Any) -> set[str]:
    """The references in a schema; some may be plain values."""
    if is_list(value):
        return set[str]().union(*map(_references, value))
    if not is_mapping(value):
        return set()
    own = {str(value[key]) for key in ("$ref", "$dynamicRef", "$recursiveRef") if key in value}
    return own.union(*map(_references, value.values()))


# Texts


def _describe(error: ValidationError) -> str:
    wanted: Any = error.validator_value
    given: Any = error.instance
    match error.validator:
        case "type":
            names = wanted if isinstance(wanted, str) else " or ".join(wanted)
            return f"expected {names}, got {json_type(given)} {short_json(given)}"
        case "required":  # jsonschema makes one error for each missing field
            return f"missing required field {error.message.removesuffix(' is a required property')}"
        case "enum" | "const" as keyword:
            listed = ", ".join(map(short_json, wanted if keyword == "enum" else [wanted]))
            return f"expected one of {listed}, got {short_json(given)}"
        case "additionalProperties":
            schema: Any = error.schema
            first = itertools.islice(_unknown_fields(given, schema), 5)
            listed = ", ".join(repr(short_name(name)) for name in first)
            known = ", ".join(schema.get("properties", ())) or "none"
            return f"unknown field {listed}; the fields are {known}"
        case _ if error.context:
            nearest = _describe(min(error.context, key=lambda inner: -len(inner.absolute_path)))
            return f"{short_json(given)} fits none of the alternatives; nearest: {nearest}"
        case _:
            text, limit = error.message, 3 * MAX_LENGTH
            return text if len(text) <= limit else f"{text[:limit]}..."
