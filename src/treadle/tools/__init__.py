"""Tools: their schemas, validation, invocation, policies, plan, locks, circuit breaker and cached results.

`treadle.stages` runs plans.
"""

from treadle.tools.approvals import Approval, approve, deny, edit
from treadle.tools.bounds import MAX_ITEMS, is_plain
from treadle.tools.breaker import Admission, BreakerState, CircuitBreaker
from treadle.tools.conversion import (
    ToolBehaviour,
    ToolLike,
    as_tool,
    terminal_copy,
    tool,
    tool_hint,
    toolset,
)
from treadle.tools.definition import Invoke, Tool, ToolContext
from treadle.tools.fast_check import Check, compile_check
from treadle.tools.in_flight import ToolCallTable
from treadle.tools.locks import LockedError, Locks
from treadle.tools.output_option import Output
from treadle.tools.plan import NotRunReason, Plan, PlanReason
from treadle.tools.rendering import (
    MAX_BYTES,
    MAX_LINES,
    error_text,
    is_plain_error,
    make_text,
    render,
    truncate,
)
from treadle.tools.repeats import (
    DEDUPE_MODES,
    CachedResult,
    Dedupe,
    Learned,
    ResultCache,
    fingerprint,
    marked,
    signature,
)
from treadle.tools.resolver import Recipe, RecipeStep, Resolver, as_recipe, check_implementations
from treadle.tools.return_value import tool_result
from treadle.tools.tool_search import SEARCH_TOOLS, ToolSearch
from treadle.tools.wrapped_calls import CALL_TOOL, as_written

__all__ = [
    "CALL_TOOL",
    "DEDUPE_MODES",
    "MAX_BYTES",
    "MAX_ITEMS",
    "MAX_LINES",
    "SEARCH_TOOLS",
    "Admission",
    "Approval",
    "BreakerState",
    "CachedResult",
    "Check",
    "CircuitBreaker",
    "Dedupe",
    "Invoke",
    "Learned",
    "LockedError",
    "Locks",
    "NotRunReason",
    "Output",
    "Plan",
    "PlanReason",
    "Recipe",
    "RecipeStep",
    "Resolver",
    "ResultCache",
    "Tool",
    "ToolBehaviour",
    "ToolCallTable",
    "ToolContext",
    "ToolLike",
    "ToolSearch",
    "approve",
    "as_recipe",
    "as_tool",
    "as_written",
    "check_implementations",
    "compile_check",
    "deny",
    "edit",
    "error_text",
    "fingerprint",
    "is_plain",
    "is_plain_error",
    "make_text",
    "marked",
    "render",
    "signature",
    "terminal_copy",
    "tool",
    "tool_hint",
    "tool_result",
    "toolset",
    "truncate",
]
