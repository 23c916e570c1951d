"""Values in a form that every provider accepts: whatever enters a history passes through here.

So adapters need no special cases: what a model, a tool or a caller wrote cannot make a later request illegal.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from treadle.errors import safe_str
from treadle.messages.json_text import MAX_DEPTH, MalformedJSONError, parse_object
from treadle.messages.message import is_mapping

_LARGEST = int(sys.float_info.max)
"""The largest number that every parser of JSON reads."""


def valid_arguments(text: str) -> str:
    """Make arguments that every provider accepts: a text that is not a JSON object is wrapped into one.

    Servers that parse the arguments of past calls refuse the request if they cannot. So values that cannot be
    sent once they are parsed, such as an escaped lone surrogate, are replaced.
    """
    text = sendable(text)
    try:
        value = parse_object(text)
    except MalformedJSONError:
        return json.dumps({"invalid_arguments": text})
    if not is_plain(text) and (sent := sendable_json(value)) != value:
        return json.dumps(sent)
    return text if text.strip() else "{}"


def is_plain(arguments: str) -> bool:
    """Whether valid arguments have nothing that `valid_arguments` might replace."""
    is_short = len(arguments) < _LONG_NUMBER and "\\u" not in arguments  # the common case
    return arguments.isascii() and (is_short or _SUSPECT.search(arguments) is None)


_LONG_NUMBER = 300
_SUSPECT = re.compile(rf"\\u[dD]|[0-9]{{{_LONG_NUMBER}}}")


def valid_name(name: str) -> str:
    """Make a name that every provider accepts: they refuse a history with an empty name, or other characters."""
    if name.isascii() and name.isidentifier() and len(name) <= MAX_NAME:
        return name  # the common case
    return _NOT_OF_A_NAME.sub("_", name)[:MAX_NAME] or "unnamed"


MAX_NAME = 128
"""MCP's maximum length of a name, the longest one. OpenAI, Anthropic and MCP allow the same characters."""
_NOT_OF_A_NAME = re.compile(r"[^a-zA-Z0-9_.-]+")


def sendable(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded in UTF-8; the two of a pair become their character."""
    if text.isascii():
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return joined.encode("utf-8", "replace").decode()


def sendable_json(value: Any, levels: int = MAX_DEPTH) -> Any:
    """Copy JSON data so that it can be sent.

    Lone surrogates are replaced. Numbers that JSON cannot represent, or that are too large for a float, values
    that are not JSON, and those that are nested more than ``levels`` deep become text.
    """
    if isinstance(value, str):
        return sendable(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return value if -_LARGEST <= value <= _LARGEST else safe_str(value)
    if levels and is_mapping(value):
        return {
            sendable(safe_str(key)): sendable_json(part, levels - 1) for key, part in value.items()
        }
    if levels and isinstance(value, (list, tuple)):
        return [sendable_json(part, levels - 1) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return sendable(safe_str(value))
