"""Decisions on calls that wait for approval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from treadle.errors import OptionError
from treadle.fast_dataclass import fast_dataclass


@fast_dataclass
class Approval:
    """A decision on one call; made by `approve`, `deny` and `edit`.

    Args:
        runs: whether the call runs.
        reason: why it does not run, for the model.
        arguments: the arguments to run with; None keeps those of the model.
        about: the name and the arguments of the call that waited, set by the run that resumes; empty for a
            question of a stage. None concerns any call of this id, as in contexts that tests construct.
    """

    runs: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    about: tuple[str, ...] | None = field(default=None, compare=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        """What a person decided, as JSON data: the arguments of the constructor without ``about``."""
        arguments = None if self.arguments is None else dict(self.arguments)
        return {"runs": self.runs, "reason": self.reason, "arguments": arguments}


approve = Approval(runs=True)
"""Run the call with the arguments of the model."""


def deny(reason: str = "") -> Approval:
    """Do not run the call.

    Args:
        reason: why, for the model.
    """
    return Approval(runs=False, reason=reason)


def edit(arguments: Mapping[str, Any]) -> Approval:
    """Run the call with other arguments; a note in its result informs the model.

    Args:
        arguments: all arguments of the call, valid according to the tool's schema.

    Raises:
        OptionError: they are not a mapping.
    """
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"edit: expected a mapping of arguments, got {type(arguments).__name__}")
    return Approval(runs=True, arguments=dict(arguments))
