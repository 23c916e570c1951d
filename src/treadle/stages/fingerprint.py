"""Fingerprints: telling whether two calls are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.stages.text import json_encoder
from treadle.types import ATOMS, canonical_json


def fingerprint(name: str, arguments: Mapping[str, Any] | str) -> str:
    """Make a digest that is the same for the same call, whatever the order of keys and the white space.

    Args:
        name: the tool's name.
        arguments: the decoded arguments; or their text where it cannot be decoded, so that two different
            malformed calls are never taken for the same.

    Returns:
        SHA-256 in hexadecimal.
    """
    if isinstance(arguments, str):
        told = f"?{arguments}".encode("utf-8", "surrogatepass")
    else:
        told = _canonical(arguments)
    return hashlib.sha256(b"%b\n%b" % (name.encode("utf-8", "surrogatepass"), told)).hexdigest()


def _canonical(arguments: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys, by pydantic's encoder, which takes half the time of json's."""
    try:
        return json_encoder()(_sorted(arguments))
    except (ValueError, RecursionError):  # lone surrogates; endless nesting
        return canonical_json(arguments).encode()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return {k: v if v.__class__ in ATOMS else _sorted(v) for k, v in sorted(fields.items())}
    if isinstance(value, list):
        return [_sorted(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def signature(fingerprints: Iterable[str]) -> str:
    """Make the digest of all calls of an iteration, whatever their order."""
    ordered = sorted(fingerprints)
    if len(ordered) == 1:
        return ordered[0]
    return hashlib.sha256("\n".join(ordered).encode()).hexdigest()
