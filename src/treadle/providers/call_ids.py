"""Ids of calls that another provider gave, in the form that a provider accepts."""

from __future__ import annotations

from treadle.messages import sha256

_DIGEST_LENGTH = 24


def fitting_id(call_id: str, most: int) -> str:
    """A call's id that is not too long; the same one for the call and for its result.

    Args:
        call_id: the id.
        most: the maximum length.
    """
    if len(call_id) <= most:
        return call_id
    digest = sha256(call_id.encode("utf-8", "replace"))[:_DIGEST_LENGTH]
    return f"{call_id[: most - _DIGEST_LENGTH - 1]}_{digest}"
