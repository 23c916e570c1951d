"""Parsing JSON that a model wrote, and formatting values in texts for the model."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from treadle.errors import TreadleError

MAX_LENGTH = 80
"""The number of characters of a model's value that an error text repeats."""
MAX_PATH = 3 * MAX_LENGTH
"""The maximum length of a path into arguments, in characters."""
MAX_VIOLATIONS = 20
"""The number of violations that are listed for one call; further ones are counted."""
MAX_COUNTED = 100
"""The number of violations of one call that are counted; those after it are not looked for."""
MAX_DEPTH = 100
"""The maximum nesting depth of arguments: more than tools need, and small enough for recursive code."""


class MalformedJSONError(TreadleError, ValueError):
    """A text that `parse_json` or `parse_object` does not read; the message says why."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:MAX_LENGTH]} is too large for a number")
    return value


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def _check_depth(value: Any, levels: int) -> None:
    """Raise `RecursionError` for containers that are nested more than ``levels`` deep."""
    if not isinstance(value, (dict, list)):
        return
    if levels == 0:
        raise RecursionError
    parts: Any = value.values() if isinstance(value, dict) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    for part in parts:
        _check_depth(part, levels - 1)


def parse_json(text: str) -> Any:
    """Parse JSON text that a model wrote, with numbers that a float can have, and at most `MAX_DEPTH` levels."""
    value: Any = None
    try:
        try:
            value, end = _decoder.raw_decode(text)
        except json.JSONDecodeError:
            end = -1
        if end != len(text):  # white space around it, or no JSON
            value = _decoder.decode(text)
        if len(text) > MAX_DEPTH and text.count("{") + text.count("[") > MAX_DEPTH:
            _check_depth(value, MAX_DEPTH)
    except json.JSONDecodeError as error:
        near = short_json(text[max(0, error.pos - 20) : error.pos + 20])
        raise MalformedJSONError(f"{error.msg} at character {error.pos}, near {near}") from None
    except RecursionError:
        raise MalformedJSONError(f"it is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:  # of the functions above, or an integer of thousands of digits
        raise MalformedJSONError(str(error)[: 2 * MAX_LENGTH]) from None
    return value


def parse_object(text: str) -> dict[str, Any]:
    """Parse the arguments of a call, as `parse_json` does; white space alone is an empty object."""
    value: Any = parse_json(text) if text.strip() else {}
    if not isinstance(value, dict):
        raise MalformedJSONError(
            f"expected a JSON object, got {json_type(value)} {short_json(value)}"
        )
    return value  # pyright: ignore[reportUnknownVariableType]


def is_object(text: str) -> bool:
    """Whether a text is a closed JSON object."""
    try:
        parse_object(text)
    except MalformedJSONError:
        return False
    return bool(text.strip())


canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""Encodes a value so that equal values have the same text, regardless of the order of their keys."""


def sha256(data: bytes) -> str:
    """The SHA-256 digest of data, in hexadecimal."""
    return _hasher()(data).hexdigest()


@functools.cache
def _hasher() -> Callable[[bytes], Any]:
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, which takes 3 ms

    return hashlib.sha256


def format_path(parts: Iterable[str | int]) -> str:
    """Format a path into arguments as code: ``to[0].address``."""
    path = ""
    for part in parts:
        step = f"[{part}]" if isinstance(part, int) else short_name(part)
        path += f".{step}" if path and isinstance(part, str) else step
    return (path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}...") or "arguments"


def short_name(name: object) -> str:
    """Shorten a name that the model wrote to `MAX_LENGTH` characters."""
    text = str(name)
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}..."


def short_json(value: Any) -> str:
    """Encode a value that the model wrote as JSON, shortened to `MAX_LENGTH` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return short_name(text)


def json_type(value: Any) -> str:
    """The name of a value's type in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    return next((name for kind, name in _NAMES if isinstance(value, kind)), "null")


_NAMES = (
    *((bool, "boolean"), (int, "integer"), (float, "number")),
    *((str, "string"), (dict, "object"), (list, "array")),
)
