"""Limits: how much a run may take."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from treadle.types.errors import OptionError


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one run may take; None is no limit.

    Args:
        max_iterations: model calls. Ten is LlmCore's default.
        max_tool_calls: tool calls that run; more are answered as over budget, and never run.
        max_parallel_calls: tool calls that run at the same time.
        max_input_tokens: tokens of all prompts. Token limits are looked at between iterations, since no
            provider tells before the answer what it will take.
        max_output_tokens: tokens of all answers.
        max_total_tokens: tokens of both.
        max_cost: US dollars, as far as the backend reports a cost or ``price=`` works one out.
        max_seconds: wall time in seconds; what is under way then is cancelled.

    Raises:
        OptionError: a limit that is no positive number.
    """

    max_iterations: int = 10
    max_tool_calls: int | None = None
    max_parallel_calls: int = 8
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value: Any = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            least = 0 if field.name in {"max_tool_calls", *_FRACTIONS} else 1
            what = _FRACTIONS.get(field.name, "a whole number")
            if not _is_at_least(value, least, whole=field.name not in _FRACTIONS):
                raise OptionError(
                    f"{field.name}: expected {what} of at least {least}, got {value!r}"
                )

    @property
    def has_tokens(self) -> bool:
        """Whether any limit is one of tokens, or of what they cost."""
        return not (
            self.max_input_tokens is None
            and self.max_output_tokens is None
            and self.max_total_tokens is None
            and self.max_cost is None
        )


def _is_at_least(value: Any, least: int, *, whole: bool) -> bool:
    kinds = (int,) if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= least


_FRACTIONS = {"max_seconds": "a number of seconds", "max_cost": "a number of US dollars"}
LIMIT_NAMES = frozenset(field.name for field in dataclasses.fields(Limits))
