"""Strict checks by the TypedDicts of an SDK, which describe the parameters of its methods."""

import functools

from pydantic import TypeAdapter
from pydantic_core import SchemaValidator


@functools.cache
def strict_adapter(kind):
    """A validator of a TypedDict that refuses unknown keys at every depth, and looks into every iterable."""
    return SchemaValidator(_strict(TypeAdapter(kind).core_schema))


def _strict(schema):
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if isinstance(schema, tuple):
        return tuple(_strict(one) for one in schema)
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items()}
    if made.get("type") == "typed-dict":
        made["extra_behavior"] = "forbid"
    if made.get("type") == "generator":
        made["type"] = "list"
    return made
