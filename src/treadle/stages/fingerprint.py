"""Fingerprints: telling whether two calls are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.types import canonical_json


def fingerprint(name: str, arguments: Mapping[str, Any] | str) -> str:
    """Make a digest that is the same for the same call, whatever the order of keys and the white space.

    Args:
        name: the tool's name.
        arguments: the decoded arguments; or their text where it cannot be decoded, so that two different
            malformed calls are never taken for the same.

    Returns:
        SHA-256 in hexadecimal.
    """
    told = f"?{arguments}" if isinstance(arguments, str) else canonical_json(arguments)
    text = f"{name}\n{told}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def signature(fingerprints: Iterable[str]) -> str:
    """Make the digest of all calls of an iteration, whatever their order."""
    ordered = sorted(fingerprints)
    if len(ordered) == 1:
        return ordered[0]
    return hashlib.sha256("\n".join(ordered).encode()).hexdigest()
