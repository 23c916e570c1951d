"""The signature of the state of a paused run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeGuard

from treadle.errors import PausedStateError
from treadle.messages import sha256

VERSION = 8
"""The version of the format of a paused state. A state of another version is refused."""


def is_state(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value looks like the state of a paused run."""
    return isinstance(value, Mapping) and "digest" in value


def check_state(state: Mapping[str, Any], secret: bytes | None) -> dict[str, Any]:
    """A copy of a state without its digest, if it is as it was signed; else raises `PausedStateError`."""
    if state.get("version") != VERSION:
        raise PausedStateError(
            f"the paused state has version {state.get('version')!r}, expected {VERSION}"
        )
    import hmac  # noqa: PLC0415 - it imports hashlib, which is slow

    signed = {key: value for key, value in state.items() if key != "digest"}
    try:
        digests = str(state["digest"]).encode(), digest_of(signed, secret).encode()
        if hmac.compare_digest(*digests):
            return json.loads(json.dumps(signed))
    except (TypeError, ValueError, RecursionError):  # it is not JSON
        pass
    raise PausedStateError(
        "the paused state was changed, or signed with another secret, since it was made"
    )


def digest_of(state: Mapping[str, Any], secret: bytes | None) -> str:
    """The digest of a state, in hexadecimal: its HMAC-SHA-256, or its SHA-256 without a secret."""
    text = json.dumps(state, sort_keys=True).encode()
    if secret is None:
        return sha256(text)
    import hmac  # noqa: PLC0415 - it imports hashlib

    return hmac.new(secret, text, "sha256").hexdigest()
