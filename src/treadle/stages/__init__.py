"""The stages of the loop, one file each, and the default list of them."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from typing import Any

from treadle.checks import ValueCheck
from treadle.pipeline import Stage
from treadle.stages._ask_model import (
    OnRetry,
    ask_model,
    asked_again,
    events_of_chunks,
    with_guidance_after_text,
)
from treadle.stages._attempts import CallAttempt, ReturnedError, SubagentPausedError, call_effect
from treadle.stages._budget_guard import budget_guard
from treadle.stages._circuit_breaker import circuit_breaker
from treadle.stages._dispatch_tools import concluded, dispatch_tools, run_calls
from treadle.stages._inject_results import assistant_message, inject, inject_results
from treadle.stages._loop_decision import incomplete, loop_decision, without_nudge
from treadle.stages._notes import report_notes
from treadle.stages._parse_tool_calls import parse_tool_calls
from treadle.stages._plan_calls import plan_calls
from treadle.stages._progress import ProgressReporter
from treadle.stages._recipes import prepare_call
from treadle.stages._run_call import held_locks
from treadle.stages._validate_calls import RepairCall, validate_calls

GIVEN = ("messages", "tools", "run", "iteration", "guidance")
"""The fields of a context that are filled when it enters the stages."""


_DEFAULT: tuple[Any, ...] = (
    ask_model,
    parse_tool_calls,
    validate_calls,
    loop_decision,
    plan_calls,
    dispatch_tools,
    inject_results,
    budget_guard,
    circuit_breaker,
)
BUILT_IN: frozenset[Callable[..., Any]] = frozenset(made.fn for made in _DEFAULT)
"""The functions of these stages; the loop does not check what they return."""


def default_stages() -> list[Stage]:
    """Make the default list of stages."""
    return list(_DEFAULT)


@functools.cache
def checks_of(fn: Callable[..., Any]) -> Mapping[str, ValueCheck]:
    """The checks that the function of a stage declares for its options, by name."""
    hints = typing.get_type_hints(fn, include_extras=True)
    return {
        name: check
        for name, hint in hints.items()
        for check in getattr(hint, "__metadata__", ())
        if isinstance(check, ValueCheck)
    }


def check_options(made: Stage[..., Any], options: Mapping[str, Any]) -> None:
    """Check options of a default stage; raises `OptionError`."""
    fn: Any = made.fn
    for name, value in options.items():
        checks = checks_of(fn)
        if name in checks and not (value is None and fn.__kwdefaults__[name] is None):
            checks[name].check(name, value)


__all__ = [
    "BUILT_IN",
    "GIVEN",
    "CallAttempt",
    "OnRetry",
    "ProgressReporter",
    "RepairCall",
    "ReturnedError",
    "Stage",
    "SubagentPausedError",
    "ask_model",
    "asked_again",
    "assistant_message",
    "budget_guard",
    "call_effect",
    "check_options",
    "checks_of",
    "circuit_breaker",
    "concluded",
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
    "with_guidance_after_text",
    "without_nudge",
]
