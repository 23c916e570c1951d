"""JSON Schema: compiled once for each tool, and its violations told in words a model can act on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from treadle.types.errors import ToolDefinitionError

MAX_SHOWN = 80
"""Characters of a value that the model wrote which are shown to it again."""

MAX_VIOLATIONS = 20
"""Violations that are told of one call; more are counted."""


def compile_schema(schema: Mapping[str, Any], where: str) -> Validator:
    """Make a validator.

    Args:
        schema: a JSON Schema of an object; its draft is 2020-12 where it names none, as MCP has it.
        where: what the schema belongs to, for errors.

    Returns:
        A validator that never fetches anything: references may point into the schema alone.

    Raises:
        ToolDefinitionError: it is no valid schema, not one of an object, or refers to what it lacks.
    """
    if schema.get("type") != "object":
        raise ToolDefinitionError(
            f"{where}: expected a schema of type 'object', got {schema.get('type')!r}"
        )
    made: Any = validator_for(schema, default=Draft202012Validator)
    try:
        made.check_schema(schema)
    except SchemaError as error:
        path = "".join(f"[{part!r}]" for part in error.absolute_path)
        raise ToolDefinitionError(f"{where}{path}: {error.message}") from None
    registry: Any = Registry()  # empty, where jsonschema's own would fetch over the network
    validator: Validator = made(schema, registry=registry)
    for reference in _references(schema):
        try:
            validator._resolver.lookup(reference)  # type: ignore[attr-defined]  # noqa: SLF001
        except Unresolvable:
            raise ToolDefinitionError(
                f"{where}: the reference {reference!r} leads nowhere within the schema"
            ) from None
    return validator


def _references(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():  # pyright: ignore
            if key == "$ref" and isinstance(part, str):
                yield part
            yield from _references(part)
    elif isinstance(value, list):
        for part in value:  # pyright: ignore
            yield from _references(part)


class MalformedJSONError(ValueError):
    """Arguments that are no JSON object; the text says why."""


def _refuse_constant(name: str) -> Any:
    raise MalformedJSONError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def parse_object(text: str) -> dict[str, Any]:
    """Parse arguments as a model wrote them; white space alone counts as no arguments.

    Raises:
        MalformedJSONError: no JSON, or JSON of something else than an object.
    """
    try:
        value = _decode(text) if text.strip() else {}
    except MalformedJSONError:
        raise
    except json.JSONDecodeError as error:
        near = shown(text[max(0, error.pos - 20) : error.pos + 20])
        raise MalformedJSONError(f"{error.msg} at character {error.pos}, near {near}") from None
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; endless nesting
        raise MalformedJSONError(f"{type(error).__name__}: {error}"[:MAX_SHOWN]) from None
    if not isinstance(value, dict):
        raise MalformedJSONError(f"expected a JSON object, got {json_type(value)} {shown(value)}")
    return value  # pyright: ignore[reportUnknownVariableType]


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def canonical_json(value: Any) -> str:
    """JSON text that is the same for equal values, whatever the order of keys and the white space."""
    return _canonical(value)


def violations(errors: Iterable[ValidationError]) -> list[str]:
    """Tell every violation, with its path: ``to[0].address: expected string, got integer 5``."""
    told = [f"{path_of(error.absolute_path)}: {_told(error)}" for error in errors]
    told.sort()
    return told


def path_of(parts: Iterable[str | int]) -> str:
    """A path into the arguments, as code would write it."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else shown_name(part)
    return path or "arguments"


def shown_name(name: object) -> str:
    """A name that the model wrote, bounded."""
    text = str(name)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def shown(value: Any) -> str:
    """A value that the model wrote, as JSON and bounded."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def json_type(value: Any) -> str:
    """The type of a value in JSON's words."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value) and value.is_integer()):
        return "integer"
    for kind, name in ((float, "number"), (str, "string"), (dict, "object"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "null"


def _told(error: ValidationError) -> str:
    teller = _TELLERS.get(str(error.validator))
    if teller is not None:
        return teller(error)
    if error.context:
        nearest = min(error.context, key=lambda inner: -len(inner.absolute_path))
        return f"{shown(error.instance)} fits none of the alternatives; nearest: {_told(nearest)}"
    message = error.message
    limit = 3 * MAX_SHOWN
    return message if len(message) <= limit else f"{message[:limit]}..."


def _tell_type(error: ValidationError) -> str:
    wanted: Any = error.validator_value
    names = wanted if isinstance(wanted, str) else " or ".join(wanted)
    return f"expected {names}, got {json_type(error.instance)} {shown(error.instance)}"


def _tell_required(error: ValidationError) -> str:
    missing = [name for name in error.validator_value if name not in error.instance]  # type: ignore[union-attr, operator]
    # jsonschema makes one error for each missing field, in order, with the name in its message.
    name = next((name for name in missing if error.message.startswith(repr(name))), missing[0])
    return f"missing required field {name!r}"


def _tell_enum(error: ValidationError) -> str:
    allowed = ", ".join(shown(value) for value in error.validator_value)  # type: ignore[union-attr]
    return f"expected one of {allowed}, got {shown(error.instance)}"


def _tell_const(error: ValidationError) -> str:
    return f"expected {shown(error.validator_value)}, got {shown(error.instance)}"


def _tell_additional(error: ValidationError) -> str:
    schema: Any = error.schema
    known = list(schema.get("properties", {}))
    extra = [shown_name(name) for name in error.instance if name not in known]  # type: ignore[union-attr]
    fields = ", ".join(known) or "none"
    return f"unknown field {', '.join(map(repr, extra[:5]))}; the fields are {fields}"


_TELLERS: dict[str, Callable[[ValidationError], str]] = {
    "type": _tell_type,
    "required": _tell_required,
    "enum": _tell_enum,
    "const": _tell_const,
    "additionalProperties": _tell_additional,
}
