"""The door: what a caller hands in is checked, copied, and repaired where no provider would take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.types import InvalidInput, JSONDict, as_message, kind_of, problems_of, repaired


@dataclass(frozen=True, slots=True)
class Intake:
    """What came of a caller's messages.

    Args:
        messages: a valid history of our own; empty where they were refused.
        repairs: what had to be repaired.
        refusal: why they were refused; None where they were not.
    """

    messages: Sequence[JSONDict] = ()
    repairs: tuple[str, ...] = ()
    refusal: InvalidInput | None = None


def take_in(given: Any) -> Intake:
    """Check and repair what a caller gave; it is left as it is.

    Args:
        given: a list of message dicts, or whatever else came in its place.
    """
    is_list = isinstance(given, Sequence) and not isinstance(given, (str, bytes))
    if not is_list:
        return _refused(f"messages: expected a list of message dicts, got {kind_of(given)}")
    try:
        messages = [as_message(message) for message in given]  # pyright: ignore[reportUnknownVariableType]
    except RecursionError:
        return _refused("messages: expected JSON, got a message that is nested without end")
    problems = tuple(problems_of(messages))
    if problems:
        return _refused(*problems)
    mended, repairs = repaired(messages)
    if not mended:
        return _refused("messages: expected at least one message that is not empty")
    return Intake(mended, repairs)


def _refused(*problems: str) -> Intake:
    return Intake(refusal=InvalidInput(problems))
