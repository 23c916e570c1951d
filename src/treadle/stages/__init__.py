"""The stages of the loop, one file each, and the default list of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from treadle.model import BASE_DELAY, ModelMiddleware
from treadle.pipeline import Stage
from treadle.stages._ask_model import OnRetry, ask_model, events_of_chunks
from treadle.stages._budget_guard import budget_guard
from treadle.stages._circuit_breaker import circuit_breaker
from treadle.stages._dispatch_tools import dispatch_tools, run_calls
from treadle.stages._inject_results import assistant_message, inject, inject_results
from treadle.stages._loop_decision import incomplete, loop_decision
from treadle.stages._notes import report_notes
from treadle.stages._parse_tool_calls import parse_tool_calls
from treadle.stages._plan_calls import plan_calls
from treadle.stages._progress import ProgressReporter
from treadle.stages._recipes import prepare_call
from treadle.stages._run_call import (
    ReturnedError,
    SubagentPausedError,
    call_effect,
    held_locks,
)
from treadle.stages._validate_calls import RepairCall, validate_calls
from treadle.tools import Dedupe

GIVEN = ("messages", "tools", "run", "iteration", "guidance")
"""The fields of a context that are filled when it enters the stages."""


def default_stages(
    *,
    max_retries: int = 3,
    retry_delay: float = BASE_DELAY,
    restart_streams: bool = False,
    model_middleware: Sequence[ModelMiddleware] = (),
    repair_call: RepairCall | None = None,
    max_blank_stops: int = 3,
    accept_cut: bool = False,
    breaker_threshold: int = 3,
    sequential: Literal["defer", "in_step"] = "defer",
    dedupe: Dedupe = "evidence",
) -> list[Stage]:
    """Make the default list of stages.

    Args:
        max_retries: see `ask_model`.
        retry_delay: see `ask_model`.
        restart_streams: see `ask_model`.
        model_middleware: see `ask_model`.
        repair_call: see `validate_calls`.
        max_blank_stops: see `loop_decision`.
        accept_cut: see `loop_decision`.
        breaker_threshold: see `circuit_breaker`.
        sequential: see `plan_calls`.
        dedupe: see `plan_calls`.
    """
    configured: list[Any] = [
        ask_model(
            max_retries=max_retries,
            retry_delay=retry_delay,
            restart_streams=restart_streams,
            model_middleware=tuple(model_middleware),
        ),
        parse_tool_calls,
        validate_calls(repair_call=repair_call),
        loop_decision(max_blank_stops=max_blank_stops, accept_cut=accept_cut),
        plan_calls(sequential=sequential, dedupe=dedupe),
        dispatch_tools,
        inject_results,
        budget_guard,
        circuit_breaker(threshold=breaker_threshold),
    ]
    return configured


BUILT_IN: frozenset[Callable[..., Any]] = frozenset(made.fn for made in default_stages())
"""The functions of these stages; the loop does not check what they return."""

__all__ = [
    "BUILT_IN",
    "GIVEN",
    "OnRetry",
    "ProgressReporter",
    "RepairCall",
    "ReturnedError",
    "Stage",
    "SubagentPausedError",
    "ask_model",
    "assistant_message",
    "budget_guard",
    "call_effect",
    "circuit_breaker",
    "default_stages",
    "dispatch_tools",
    "events_of_chunks",
    "held_locks",
    "incomplete",
    "inject",
    "inject_results",
    "loop_decision",
    "parse_tool_calls",
    "plan_calls",
    "prepare_call",
    "report_notes",
    "run_calls",
    "validate_calls",
]
