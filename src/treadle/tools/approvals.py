"""Approvals: what a person says of a call that waits for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treadle.errors import OptionError


@dataclass(frozen=True, slots=True)
class Approval:
    """A decision on one call; made by `approve`, `deny` and `edit`.

    Args:
        runs: whether the call runs.
        reason: why not; the model is told.
        arguments: what it runs with; None is what the model asked for.
    """

    runs: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None


approve = Approval(runs=True)
"""Let a call run as the model asked."""


def deny(reason: str = "") -> Approval:
    """Do not let a call run.

    Args:
        reason: the model is told.
    """
    return Approval(runs=False, reason=reason)


def edit(arguments: Mapping[str, Any]) -> Approval:
    """Let a call run with other arguments; the model is told of the change.

    Args:
        arguments: all arguments of the call, as the tool's schema wants them.

    Raises:
        OptionError: they are no mapping.
    """
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"edit: expected a mapping of arguments, got {type(arguments).__name__}")
    return Approval(runs=True, arguments=dict(arguments))
