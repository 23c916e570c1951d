"""The stages of the loop, in order, and the default list of them."""

from __future__ import annotations

from typing import Any, Literal

from treadle.pipeline import Stage
from treadle.stages.breaker import BreakerState, CircuitBreaker
from treadle.stages.budget_guard import budget_guard
from treadle.stages.calling import ChildPausedError
from treadle.stages.circuit_breaker import circuit_breaker
from treadle.stages.dispatch_tools import dispatch_tools
from treadle.stages.evidence import Evidence
from treadle.stages.fingerprint import fingerprint, signature
from treadle.stages.inject_results import inject, inject_results
from treadle.stages.locks import Locks
from treadle.stages.loop_decision import loop_decision
from treadle.stages.parse_tool_calls import parse_tool_calls
from treadle.stages.plan_calls import plan_calls
from treadle.stages.resolver import Recipe, Resolver, Step
from treadle.stages.tool_runner import ToolRunner
from treadle.stages.validate_calls import RepairCall, validate_calls

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
    "BreakerState",
    "ChildPausedError",
    "CircuitBreaker",
    "Evidence",
    "Locks",
    "Recipe",
    "RepairCall",
    "Resolver",
    "Stage",
    "Step",
    "ToolRunner",
    "budget_guard",
    "circuit_breaker",
    "default_stages",
    "dispatch_tools",
    "fingerprint",
    "inject",
    "inject_results",
    "loop_decision",
    "parse_tool_calls",
    "plan_calls",
    "signature",
    "validate_calls",
]
