"""Renders the return value or exception of a tool as the text that the model reads."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from treadle.messages import ATOMS, safe_str
from treadle.tools.bounds import Bounds, is_plain
from treadle.tracebacks import causes_of, leaves_of

MAX_LINES = 2_000
MAX_BYTES = 50_000
"""The limits of one result."""


def render(value: Any) -> str:
    """Render a value as text.

    Args:
        value: text is kept; bytes and text with NUL characters become a placeholder; everything else is serialized
            as JSON, with ``str`` for types that JSON does not have, and an iterator as a list of its first items,
            see `treadle.tools.bounds`.
    """
    if isinstance(value, str):
        text = value
    elif value is None:
        return "(no output)"
    elif isinstance(value, (bytes, bytearray)):
        return f"(binary output, {len(value)} bytes)"
    elif isinstance(value, memoryview):
        return f"(binary output, {value.nbytes} bytes)"
    elif type(value) is int and abs(value) <= sys.maxsize:  # str refuses very long numbers
        return str(value)
    else:
        bounds = Bounds()
        if isinstance(value, Iterator):
            value = bounds.first(value)  # pyright: ignore[reportUnknownArgumentType]
        try:
            if not is_plain(value):  # pyright: ignore[reportUnknownArgumentType]
                value = bounds.apply(value)
            text = json_encoder()(value, fallback=str, inf_nan_mode="strings").decode()
        except Exception:  # noqa: BLE001 - a cycle, bytes that are not text, a lone surrogate
            text = safe_str(value)
    if "\0" in text:
        return f"(binary output, {len(text.encode('utf-8', 'replace'))} bytes)"
    return text or "(no output)"


@functools.cache
def json_encoder() -> Callable[..., bytes]:
    """The encoder of pydantic, which supports dataclasses, dates and the like; imported when first needed."""
    from pydantic_core import to_json  # noqa: PLC0415 - slow to import

    return to_json


def error_text(error: BaseException) -> str:
    """Describe an exception for the model; a group by the exceptions in it."""
    texts = [f"{type(one).__name__}: {safe_str(one)}" for one in leaves_of(error)]
    if len(texts) == 1:
        return truncate(f"Error: {texts[0]}")
    return truncate("\n- ".join((f"Error: {len(texts)} errors:", *texts)))


def is_plain_error(error: BaseException) -> bool:
    """Whether the text of an exception is made without code of the user."""
    return (
        isinstance(type(error).__str__, types.WrapperDescriptorType)
        and all(part.__class__ in ATOMS for part in error.args)
        and error.__cause__ is None
        and error.__context__ is None
    )


def make_text(error: BaseException) -> None:
    """Make the texts of an exception and its causes once, where a time limit can end it if that takes forever."""
    for one in causes_of(error):
        error_text(one)


def truncate(text: str, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> str:
    """Truncate a text at the limit that is reached first, and append a note of how much is missing.

    Args:
        text: a text for the model; lone surrogates, which cannot be sent, are replaced.
        max_lines: lines that are kept.
        max_bytes: bytes of UTF-8 that are kept.
    """
    is_ascii = text.isascii()
    if is_ascii and len(text) <= max_lines <= max_bytes:  # most results are short
        return text
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= max_bytes and text.count("\n", 0, -1) < max_lines:
        return text if is_ascii else encoded.decode()
    lines = encoded.split(b"\n", max_lines)
    kept = b"\n".join(lines[:max_lines])[:max_bytes]
    start = kept.decode("utf-8", "ignore")
    missing_bytes = len(encoded) - len(start.encode())
    missing_lines = encoded.count(b"\n", 0, -1) - kept.count(b"\n")
    return f"{start}\n[cut: {missing_lines:,} more lines, {missing_bytes:,} more bytes]"
