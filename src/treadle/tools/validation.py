"""Compiles JSON Schemas, and describes violations in texts that a model can act on.

The module is imported with the first tool, not with the package, since importing jsonschema is slow.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
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


def compile_schema(schema: Mapping[str, Any], where: str) -> Validator:
    """Make a validator.

    Args:
        schema: a JSON Schema of an object; its draft is 2020-12 unless it names one, as in MCP.
        where: the place of the schema, for errors.

    Returns:
        A validator that never fetches anything: references can only point into the schema.

    Raises:
        ToolDefinitionError: the schema is invalid, not that of an object, or has a dangling reference.
    """
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
    registry: Any = Registry[Any]()  # jsonschema's default would fetch references over the network
    validator: Validator = made(schema, registry=registry)
    draft: Any = specification_with(str(schema.get("$schema")), default=DRAFT202012)
    resolver = registry.resolver_with_root(draft.create_resource(schema))
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise ToolDefinitionError(
                f"{where}: the reference {reference!r} leads nowhere within the schema"
            ) from None
    return validator


@functools.cache
def _with_linear_unique_items(validator: Any) -> Any:
    """A validator class whose ``uniqueItems`` takes time linear in the length of the list.

    That of jsonschema is quadratic if the items are of several types: 7 s for 54 kB.
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


def _references(value: Any) -> Iterable[str]:
    if is_mapping(value):
        for key, part in value.items():
            if key == "$ref" and isinstance(part, str):
                yield part
            yield from _references(part)
    elif is_list(value):
        for part in value:
            yield from _references(part)


class SchemaValidator:
    """A compiled schema; see `compile_schema` for arguments and exceptions."""

    __slots__ = ("_iter_errors",)

    def __init__(self, schema: Mapping[str, Any], where: str) -> None:
        self._iter_errors = compile_schema(schema, where).iter_errors

    def problems_of(self, arguments: Mapping[str, Any]) -> list[str]:
        """List every violation, with its path: ``to[0].address: expected string, got integer 5``."""
        return sorted(
            f"{format_path(error.absolute_path)}: {_describe(error)}"
            for error in self._iter_errors(arguments)
        )


def _describe(error: ValidationError) -> str:
    describe = _DESCRIPTIONS.get(str(error.validator))
    if describe is not None:
        return describe(error)
    if error.context:
        nearest = min(error.context, key=lambda inner: -len(inner.absolute_path))
        return f"{short_json(error.instance)} fits none of the alternatives; nearest: {_describe(nearest)}"
    message = error.message
    limit = 3 * MAX_LENGTH
    return message if len(message) <= limit else f"{message[:limit]}..."


def _describe_type(error: ValidationError) -> str:
    wanted: Any = error.validator_value
    names = wanted if isinstance(wanted, str) else " or ".join(wanted)
    return f"expected {names}, got {json_type(error.instance)} {short_json(error.instance)}"


def _describe_required(error: ValidationError) -> str:
    wanted: Any = error.validator_value
    given: Any = error.instance
    missing = [name for name in wanted if name not in given]
    # jsonschema makes one error for each missing field, in order, with the name in its message.
    name = next((name for name in missing if error.message.startswith(repr(name))), missing[0])
    return f"missing required field {name!r}"


def _describe_enum(error: ValidationError) -> str:
    values: Any = error.validator_value
    allowed = ", ".join(map(short_json, values))
    return f"expected one of {allowed}, got {short_json(error.instance)}"


def _describe_const(error: ValidationError) -> str:
    return f"expected {short_json(error.validator_value)}, got {short_json(error.instance)}"


def _describe_additional(error: ValidationError) -> str:
    schema: Any = error.schema
    given: Any = error.instance
    known: Any = schema.get("properties", {})
    unknown = (short_name(name) for name in given if name not in known)
    listed = ", ".join(map(repr, itertools.islice(unknown, 5)))
    return f"unknown field {listed}; the fields are {', '.join(known) or 'none'}"


_DESCRIPTIONS: dict[str, Callable[[ValidationError], str]] = {
    "type": _describe_type,
    "required": _describe_required,
    "enum": _describe_enum,
    "const": _describe_const,
    "additionalProperties": _describe_additional,
}
