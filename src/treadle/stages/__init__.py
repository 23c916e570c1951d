"""The stages of the loop, in order, and the default list of them."""

from __future__ import annotations

from typing import Any, Literal

from treadle.pipeline import Stage
from treadle.stages._budget_guard import budget_guard
from treadle.stages._circuit_breaker import circuit_breaker
from treadle.stages._dispatch_tools import decided, dispatch_tools, pending_of
from treadle.stages._inject_results import inject, inject_results
from treadle.stages._loop_decision import loop_decision
from treadle.stages._parse_tool_calls import parse_tool_calls
from treadle.stages._plan_calls import Planner, plan_calls
from treadle.stages._run_call import (
    RETRY_DELAY,
    SubagentPausedError,
    ToolRunner,
    at_once,
    attempts,
    compose,
)
from treadle.stages._validate_calls import RepairCall, validate_calls

GIVEN = ("response", "messages", "tools", "iteration", "limits", "state")
"""The fields of a context that are filled when it enters the stages."""


def default_stages(
    *,
    repair_call: RepairCall | None = None,
    max_blank_stops: int = 3,
    breaker_threshold: int = 3,
    sequential: Literal["defer", "in_step"] = "defer",
    dedupe: bool = True,
) -> list[Stage]:
    """The stages that a loop has where it is given no others.

    Args:
        repair_call: see `validate_calls`.
        max_blank_stops: see `loop_decision`.
        breaker_threshold: see `circuit_breaker`.
        sequential: see `plan_calls`.
        dedupe: see `plan_calls`.
    """
    configured: list[Any] = [
        parse_tool_calls,
        validate_calls(repair_call=repair_call),
        loop_decision(max_blank_stops=max_blank_stops),
        plan_calls(sequential=sequential, dedupe=dedupe),
        dispatch_tools,
        inject_results,
        budget_guard,
        circuit_breaker(threshold=breaker_threshold),
    ]
    return configured


__all__ = [
    "GIVEN",
    "RETRY_DELAY",
    "Planner",
    "RepairCall",
    "Stage",
    "SubagentPausedError",
    "ToolRunner",
    "at_once",
    "attempts",
    "budget_guard",
    "circuit_breaker",
    "compose",
    "decided",
    "default_stages",
    "dispatch_tools",
    "inject",
    "inject_results",
    "loop_decision",
    "parse_tool_calls",
    "pending_of",
    "plan_calls",
    "validate_calls",
]
