"""Which calls are the same, and when a repetition is skipped."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from treadle.messages import ATOMS, ToolCall, is_list, sha256
from treadle.messages.json_text import canonical_json

Dedupe: TypeAlias = Literal["evidence", "strict", "off"]
"""When a repeated call is skipped, that is answered with its earlier result.

``evidence``: once a repetition has returned the same result, and nothing new was learned since. So a cursor, a
counter, a clock, or a poll whose result changes, runs each time. ``strict``: from the first repetition on, if
nothing new was learned since the call. ``off``: never. A call that failed is never skipped.
"""
DEDUPE_MODES: tuple[Dedupe, ...] = get_args(Dedupe)


def fingerprint(name: str, arguments: Mapping[str, Any] | str) -> str:
    """Make a digest of a call that does not depend on the order of keys and on white space.

    Args:
        name: the tool's name.
        arguments: the decoded arguments; or their text if it cannot be decoded, so that two different malformed
            calls are never equal.
    """
    try:
        text = _encoder()([name, _sorted(arguments)])
    except (ValueError, RecursionError):  # lone surrogates; endless nesting
        text = canonical_json([name, arguments]).encode()
    return sha256(text)


@functools.cache
def _encoder() -> Callable[[Any], bytes]:
    from pydantic_core import to_json  # noqa: PLC0415 - slow to import; takes half the time of json

    return to_json


def _sorted(value: Any) -> Any:
    """JSON with the keys of every object in order."""
    if isinstance(value, dict):
        fields: dict[str, Any] = dict(sorted(value.items()))  # pyright: ignore[reportUnknownArgumentType]
        for key, part in fields.items():
            if part.__class__ not in ATOMS:
                fields[key] = _sorted(part)
        return fields
    return list(map(_sorted, value)) if is_list(value) else value


def marked(call: ToolCall) -> ToolCall:
    """Mark a call as invalid: without input, with the fingerprint of its text, even if an edit left others."""
    print_ = fingerprint(call.name, call.arguments)
    return dataclasses.replace(call, input=None, fingerprint=print_)


def signature(fingerprints: Sequence[str]) -> str:
    """Make a digest of all calls of an iteration that does not depend on their order."""
    if len(fingerprints) == 1:
        return fingerprints[0]
    return sha256("\n".join(sorted(fingerprints)).encode())
