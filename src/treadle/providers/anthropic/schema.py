"""JSON schemas of outputs in the form that Anthropic's API accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.errors import OptionError
from treadle.messages import JSONDict, is_list, is_mapping

_OF_SCHEMAS = ("properties", "$defs")
"""The keywords whose value is a mapping of schemas."""
_LISTS = ("anyOf", "oneOf", "allOf")
"""The keywords whose value is a list of schemas."""


def output_schema(schema: Mapping[str, Any], transform: Callable[[Any], Any]) -> JSONDict:
    """The schema of an output in the form that the API accepts.

    All objects are closed, and constraints that the API does not know, such as a minimum, become descriptions:
    treadle checks them afterwards.

    Args:
        schema: the JSON schema; it is not changed.
        transform: the SDK's function that does this.

    Raises:
        OptionError: the API has no form for it: an object with free keys, or a value of any type.
    """
    try:
        made: JSONDict = transform(_prepared(schema, "the output"))
    except (AssertionError, TypeError, ValueError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"response_format: {_NO_FORM}: {error}; {_INSTEAD}") from error
    return made


_NO_FORM = "Anthropic's API has no form for this JSON schema"
_INSTEAD = "output_mode='tool' takes it"


def _prepared(schema: Any, place: str) -> JSONDict:
    """A schema that the SDK's function takes and does not narrow."""
    if not is_mapping(schema) or not _says_a_type(schema):
        raise OptionError(f"response_format: {_NO_FORM}: {place} has any type; {_INSTEAD}")
    if schema.get("type") == "object" and _has_free_keys(schema):
        raise OptionError(
            f"response_format: {_NO_FORM}: {place} is an object with free keys; {_INSTEAD}"
        )
    made = {**schema, **_prepared_parts(schema, place)}
    types: Any = made.pop("type", None)
    if not is_list(types):
        return made if types is None else {**made, "type": types}
    kinds = [{"type": one} if one == "null" else {**made, "type": one} for one in types]
    return {"anyOf": [_prepared(one, place) for one in kinds]}


def _has_free_keys(schema: Mapping[str, Any]) -> bool:
    """Whether an object is a mapping of any keys. One that has properties and allows others loses only those."""
    others = schema.get("additionalProperties", "properties" not in schema)
    return is_mapping(others) or (bool(others) and not schema.get("properties"))


def _says_a_type(schema: Mapping[str, Any]) -> bool:
    return any(key in schema for key in ("type", "$ref", "enum", "const", *_LISTS))


def _prepared_parts(schema: Mapping[str, Any], place: str) -> JSONDict:
    made: JSONDict = {}
    for key in _OF_SCHEMAS:
        if is_mapping(schema.get(key)):
            parts: Mapping[str, Any] = schema[key]
            made[key] = {name: _prepared(one, f"{place}.{name}") for name, one in parts.items()}
    for key in _LISTS:
        if is_list(schema.get(key)):
            made[key] = [_prepared(one, place) for one in schema[key]]
    if "items" in schema:
        made["items"] = _prepared(schema["items"], f"{place}[]")
    return made
