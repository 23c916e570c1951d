"""The context: what the stages of an iteration see, and the verbs with which they change it."""

from treadle.context.calls import (
    Hints,
    admitted,
    approval_questions,
    check_call,
    has_run,
    invalid_answer,
    over_budget,
    with_parsed_calls,
)
from treadle.context.context import Context, ContextChanges
from treadle.context.edits import with_plan, with_second_response
from treadle.context.iteration import Decision, Iteration
from treadle.context.request import Request, RequestChanges
from treadle.context.run_context import (
    Refused,
    Repaired,
    Reported,
    Responded,
    RunContext,
)

__all__ = [
    "Context",
    "ContextChanges",
    "Decision",
    "Hints",
    "Iteration",
    "Refused",
    "Repaired",
    "Reported",
    "Request",
    "RequestChanges",
    "Responded",
    "RunContext",
    "admitted",
    "approval_questions",
    "check_call",
    "has_run",
    "invalid_answer",
    "over_budget",
    "with_parsed_calls",
    "with_plan",
    "with_second_response",
]
