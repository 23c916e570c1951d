"""The context: what the stages of an iteration see, and the verbs with which they change it."""

from treadle.context.calls import (
    admitted,
    approval_questions,
    check_call,
    expect,
    found_call,
    invalid_answer,
    over_budget,
    uses_of,
    with_parsed_calls,
    with_plan,
    with_reservations,
    with_second_response,
)
from treadle.context.context import Context, ContextChanges
from treadle.context.iteration import Decision, Iteration
from treadle.context.request import Request, RequestChanges
from treadle.context.services import (
    EventCounter,
    Ledger,
    Note,
    RunServices,
)

__all__ = [
    "Context",
    "ContextChanges",
    "Decision",
    "EventCounter",
    "Iteration",
    "Ledger",
    "Note",
    "Request",
    "RequestChanges",
    "RunServices",
    "admitted",
    "approval_questions",
    "check_call",
    "expect",
    "found_call",
    "invalid_answer",
    "over_budget",
    "uses_of",
    "with_parsed_calls",
    "with_plan",
    "with_reservations",
    "with_second_response",
]
