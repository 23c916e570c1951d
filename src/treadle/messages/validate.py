"""Validating messages that come from outside: from the caller, or from a custom stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from treadle.errors import TreadleError
from treadle.messages.message import JSONDict, describe, problems_of, to_message
from treadle.messages.repair import repair_history


class InvalidMessagesError(TreadleError, ValueError):
    """Messages that no history can be made of.

    Args:
        problems: one line for each: where it is, what was expected, what was found.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def validate_messages(
    given: Any, taken: Iterable[str] = ()
) -> tuple[list[JSONDict], tuple[str, ...]]:
    """Copy and check messages, and repair what a provider would reject.

    Args:
        given: a list of message dicts or of an SDK's message objects; or one text, which is a user message.
            It is left as it is.
        taken: ids that calls of these messages may not have: calls that follow have them.

    Returns:
        A valid history of copies, and one line for each repair.

    Raises:
        InvalidMessagesError: it is no list, a message is malformed, or nothing is left of them.
    """
    if isinstance(given, str):
        given = [{"role": "user", "content": given}] if given.strip() else []
    if not isinstance(given, Sequence) or isinstance(given, (bytes, bytearray)):
        raise InvalidMessagesError(
            [f"messages: expected a text or a list of message dicts, got {describe(given)}"]
        )
    try:
        messages = [to_message(message) for message in given]  # pyright: ignore[reportUnknownVariableType]
    except RecursionError:
        raise InvalidMessagesError(
            ["messages: expected JSON, got a message that contains itself"]
        ) from None
    problems = list(problems_of(messages))
    if problems:
        raise InvalidMessagesError(problems)
    history, repairs = repair_history(messages, taken)
    if not history:
        raise InvalidMessagesError(["messages: expected at least one message that is not empty"])
    return history, repairs
