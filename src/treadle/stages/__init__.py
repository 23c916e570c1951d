"""The stages of the loop, one file each, and the default list of them."""

# ruff: noqa: I001 - the aliases of one module stand together
from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from typing import Any

from treadle.checks import ValueCheck
from treadle.pipeline import Stage as Stage
from treadle.stages._ask_model import (
    OnRetry as OnRetry,
    ask_model as ask_model,
    asked_again as asked_again,
    events_of_chunks as events_of_chunks,
    with_guidance_after_text as with_guidance_after_text,
)
from treadle.stages._attempts import (
    CallAttempt as CallAttempt,
    ReturnedError as ReturnedError,
    SubagentPausedError as SubagentPausedError,
    call_effect as call_effect,
)
from treadle.stages._budget_guard import budget_guard as budget_guard
from treadle.stages._circuit_breaker import circuit_breaker as circuit_breaker
from treadle.stages._dispatch_tools import (
    concluded as concluded,
    dispatch_tools as dispatch_tools,
    run_calls as run_calls,
)
from treadle.stages._inject_results import inject as inject, inject_results as inject_results
from treadle.stages._loop_decision import (
    incomplete as incomplete,
    loop_decision as loop_decision,
    without_nudge as without_nudge,
)
from treadle.stages._notes import report_notes as report_notes
from treadle.stages._parse_tool_calls import parse_tool_calls as parse_tool_calls
from treadle.stages._plan_calls import plan_calls as plan_calls
from treadle.stages._progress import ProgressReporter as ProgressReporter
from treadle.stages._recipes import prepare_call as prepare_call
from treadle.stages._run_call import held_locks as held_locks
from treadle.stages._validate_calls import (
    RepairCall as RepairCall,
    validate_calls as validate_calls,
)

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
