"""What the options of a tool may be, in one table, and what MCP's annotations say where they are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.types.errors import ToolDefinitionError


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Check the options of a tool.

    Args:
        name: the tool's name.
        options: its fields.

    Raises:
        ToolDefinitionError: one is not what it has to be; the text says what was expected.
    """
    for option, (accepts, expected) in _EXPECTED.items():
        value = options[option]
        if not accepts(value):
            raise ToolDefinitionError(f"tool {name!r}: {option} must be {expected}, not {value!r}")


def is_safe_beside_others(annotations: Mapping[str, Any]) -> bool:
    """Whether calls may run at the same time as others: not where they are said to destroy something."""
    return bool(annotations.get("readOnlyHint")) or not annotations.get("destructiveHint")


def is_idempotent(annotations: Mapping[str, Any]) -> bool:
    """Whether a call made twice does no more than a call made once."""
    return bool(annotations.get("readOnlyHint") or annotations.get("idempotentHint"))


def _is_whole(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= least


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _or_none(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or accepts(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_names(value: Any) -> bool:
    is_many = isinstance(value, (tuple, list))
    return is_many and all(isinstance(name, str) for name in value)  # pyright: ignore[reportUnknownVariableType]


_FLAG = (_is_flag, "True or False")
_EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "timeout": (_or_none(_is_seconds), "above 0"),
    "retries": (_is_whole(0), "a whole number of at least 0"),
    "max_parallel": (_or_none(_is_whole(1)), "a whole number of at least 1"),
    "max_uses": (_or_none(_is_whole(0)), "a whole number of at least 0"),
    "parallel_safe": _FLAG,
    "requires_fresh_input": _FLAG,
    "dedupe": _FLAG,
    "volatile": _FLAG,
    "terminal": _FLAG,
    "idempotent": _FLAG,
    "dedupe_fields": (_or_none(_is_names), "names of fields"),
    "lock": (
        lambda value: value is None or isinstance(value, str) or callable(value),
        "a key, or a function of the arguments that makes one",
    ),
    "requires_approval": (
        lambda value: isinstance(value, bool) or callable(value),
        "True, False, or a function of the arguments",
    ),
}
