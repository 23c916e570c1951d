"""How paused runs are protected: the option ``pauses`` of a loop, and the signature of their states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeGuard

from treadle.checks import ValueCheck, check_fields, checked, choice, methods
from treadle.errors import PausedStateError
from treadle.fast_dataclass import fast_dataclass_kw
from treadle.messages import sha256
from treadle.pauses.claims import ClaimStore

VERSION = 8
"""The version of the format of a paused state. A state of another version is refused."""


@fast_dataclass_kw
class Pauses:
    """How the pauses of a loop are protected: ``Loop(pauses=Pauses(secret=...))``.

    Raises:
        OptionError: a value that a field does not accept.
    """

    secret: str | bytes | None = checked(
        None,
        ValueCheck(lambda value: isinstance(value, (str, bytes)) and value, "text or bytes"),
        repr=False,
    )
    """Signs the state of paused runs, so that no one else can forge one; None detects accidental changes only."""
    claims: ClaimStore | None = checked(
        None,
        methods("an object with claim and release, such as SQLiteClaims(path)", "claim", "release"),
        repr=False,
    )
    """Remembers which pauses are resumed, so that each is resumed once: `SQLiteClaims`, or another `ClaimStore`,
    for several processes. None uses a table in this process."""
    on_unknown: Literal["tell", "ask"] = checked("tell", choice("tell", "ask"))
    """What happens to a call that may have run already, because the process ended while it ran, and whose tool is
    not ``idempotent``: ``tell`` reports the outcome to the model as unknown, ``ask`` pauses the run for a person's
    decision."""

    def __post_init__(self) -> None:
        check_fields(self)


def is_state(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value looks like the state of a paused run."""
    return isinstance(value, Mapping) and "digest" in value


def check_state(state: Mapping[str, Any], secret: str | bytes | None) -> dict[str, Any]:
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


def digest_of(state: Mapping[str, Any], secret: str | bytes | None) -> str:
    """The digest of a state, in hexadecimal: its HMAC-SHA-256, or its SHA-256 without a secret."""
    text = json.dumps(state, sort_keys=True).encode()
    if secret is None:
        return sha256(text)
    import hmac  # noqa: PLC0415 - it imports hashlib

    key = secret.encode() if isinstance(secret, str) else secret
    return hmac.new(key, text, "sha256").hexdigest()
