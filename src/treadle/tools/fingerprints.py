"""Fingerprints: telling whether two calls are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.messages import ATOMS, ToolCall, canonical_json
from treadle.tools.rendering import json_encoder


def fingerprint(name: str, arguments: Mapping[str, Any] | str) -> str:
    """Make a digest that is the same for the same call, whatever the order of keys and the white space.

    Args:
        name: the tool's name.
        arguments: the decoded arguments; or their text where it cannot be decoded, so that two different
            malformed calls are never taken for the same.

    Returns:
        SHA-256 in hexadecimal.
    """
    try:
        # pydantic's encoder takes half the time of json's; name and arguments go through it at once.
        told = json_encoder()([name, _sorted(arguments)])
    except (ValueError, RecursionError):  # lone surrogates; endless nesting
        told = canonical_json([name, arguments]).encode()
    return hashlib.sha256(told).hexdigest()


def marked(call: ToolCall) -> ToolCall:
    """The call with a fingerprint; of its text, where none was made of what is decoded."""
    if call.fingerprint:
        return call
    print_ = fingerprint(call.name, call.arguments)
    return ToolCall(call.id, call.name, call.arguments, call.input, print_, call.extra)


def _sorted(value: Any) -> Any:
    """JSON with the keys of every object in order."""
    if isinstance(value, dict):
        fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        ordered: dict[str, Any] = {}
        for key in sorted(fields):  # keys alone: to sort items, or to write it as one, takes longer
            part = fields[key]
            ordered[key] = part if part.__class__ in ATOMS else _sorted(part)
        return ordered
    if isinstance(value, list):
        return [_sorted(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def signature(fingerprints: Iterable[str]) -> str:
    """Make the digest of all calls of an iteration, whatever their order."""
    ordered = sorted(fingerprints)
    if len(ordered) == 1:
        return ordered[0]
    return hashlib.sha256("\n".join(ordered).encode()).hexdigest()
