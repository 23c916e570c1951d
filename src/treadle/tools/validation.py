"""Compiles JSON Schemas, and describes violations in texts that a model can act on.

The module is imported with the first tool, not with the package, since importing jsonschema is slow.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from treadle.errors import ToolDefinitionError
from treadle.messages import (
    MAX_LENGTH,
    format_path,
    is_list,
    is_mapping,
    json_type,
    short_json,
    short_name,
)


class SchemaValidator:
    """A compiled schema. It never fetches anything: references can only point into the schema.

    Args:
        schema: a JSON Schema of an object; its draft is 2020-12 unless it names one, as in MCP.
        where: the place of the schema, for errors.

    Raises:
        ToolDefinitionError: the schema is invalid, not of type ``object``, or has a dangling reference.
    """

    __slots__ = ("_iter_errors",)

    def __init__(self, schema: Mapping[str, Any], where: str) -> None:
        if schema.get("type") != "object":
            raise ToolDefinitionError(
                f"{where}: expected a schema of type 'object', got {schema.get('type')!r}"
            )
        made: Any = _with_linear_unique_items(
            validators.validator_for(schema, default=Draft202012Validator)
        )
        try:
            made.check_schema(schema)
        except SchemaError as error:
            path = "".join(f"[{part!r}]" for part in error.absolute_path)
            raise ToolDefinitionError(f"{where}{path}: {error.message}") from None
        registry: Any = Registry[Any]()  # jsonschema's default would fetch references
        validator: Validator = made(schema, registry=registry)
        draft: Any = specification_with(str(schema.get("$schema")), default=DRAFT202012)
        root = draft.create_resource(schema)
        _check_references(root, registry.resolver_with_root(root), where)
        self._iter_errors = validator.iter_errors

    def problems_of(self, arguments: Mapping[str, Any]) -> list[str]:
        """List every violation, with its path: ``to[0].address: expected string, got integer 5``."""
        return sorted(
            f"{format_path(error.absolute_path)}: {_describe(error)}"
            for error in self._iter_errors(arguments)
        )


@functools.cache
def _with_linear_unique_items(validator: Any) -> Any:
    """A validator class whose ``uniqueItems`` takes time linear in the length of the list.

    jsonschema's own check is quadratic if the items are of several types: 7 s for 54 kB.
    """
    extend: Any = validators.extend  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return extend(validator, {"uniqueItems": _check_unique_items})


def _check_unique_items(
    validator: Any, is_unique: Any, items: Any, _schema: Any
) -> Iterable[ValidationError]:
    is_checked = is_unique and validator.is_type(items, "array")
    if is_checked and len(set(map(_identity_of, items))) < len(items):
        yield ValidationError(f"{short_json(items)} has non-unique elements")


def _identity_of(value: Any) -> Any:
    """A hashable value that is equal for equal JSON: 1 and 1.0 are equal, 1 and true are not."""
    if is_mapping(value):
        return frozenset((key, _identity_of(part)) for key, part in value.items())
    if is_list(value):
        return tuple(map(_identity_of, value))
    return (isinstance(value, bool), value)


def _check_references(schema: Any, resolver: Any, where: str) -> None:
    """Check the references of a schema and its subschemas; a ``$ref`` in a plain value is not a reference."""
    reference = schema.contents.get("$ref") if is_mapping(schema.contents) else None
    if isinstance(reference, str):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise ToolDefinitionError(
                f"{where}: the reference {reference!r} cannot be resolved within the schema"
            ) from None
    for part in schema.subresources():
        _check_references(part, resolver.in_subresource(part), where)


def _describe(error: ValidationError) -> str:
    wanted: Any = error.validator_value
    given: Any = error.instance
    match error.validator:
        case "type":
            names = wanted if isinstance(wanted, str) else " or ".join(wanted)
            text = f"expected {names}, got {json_type(given)} {short_json(given)}"
        case "required" if is_list(wanted):  # in draft 3 it is a flag of the field
            missing = [name for name in wanted if name not in given]
            # jsonschema makes one error for each missing field, in order, with the name in its message.
            named = (name for name in missing if error.message.startswith(repr(name)))
            text = f"missing required field {next(named, missing[0])!r}"
        case "enum":
            text = f"expected one of {', '.join(map(short_json, wanted))}, got {short_json(given)}"
        case "const":
            text = f"expected {short_json(wanted)}, got {short_json(given)}"
        case "additionalProperties":
            schema: Any = error.schema
            known: Any = schema.get("properties", {})
            allowed = "|".join(schema.get("patternProperties", ())) or "(?!)"  # matches nothing
            unknown = (
                repr(short_name(name))
                for name in given
                if name not in known and not re.search(allowed, name)
            )
            listed = ", ".join(itertools.islice(unknown, 5))
            text = f"unknown field {listed}; the fields are {', '.join(known) or 'none'}"
        case _ if error.context:
            nearest = min(error.context, key=lambda inner: -len(inner.absolute_path))
            text = (
                f"{short_json(given)} fits none of the alternatives; nearest: {_describe(nearest)}"
            )
        case _:
            limit = 3 * MAX_LENGTH
            text = error.message
            text = text if len(text) <= limit else f"{text[:limit]}..."
    return text
