"""Tools: their schemas, validation, invocation, policies, plan, locks, circuit breaker and cached results.

`treadle.stages` runs plans.
"""

from treadle.queues import LockedError, Locks
from treadle.tools.approvals import Approval, approve, deny, edit
from treadle.tools.bounds import is_plain
from treadle.tools.breaker import Admission, BreakerState, CircuitBreaker
from treadle.tools.catalog import Catalog, CatalogOption, as_made
from treadle.tools.conversion import (
    ToolBehaviour,
    ToolLike,
    as_tool,
    tool,
    tool_hint,
    toolset,
)
from treadle.tools.definition import Invoke, Tool
from treadle.tools.fast_check import Check, compile_check
from treadle.tools.in_flight import ToolCallTable
from treadle.tools.plan import NotRunReason, Plan, PlanReason
from treadle.tools.rendering import (
    MAX_BYTES,
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
from treadle.tools.tool_context import ToolContext

__all__ = [
    "DEDUPE_MODES",
    "MAX_BYTES",
    "Admission",
    "Approval",
    "BreakerState",
    "CachedResult",
    "Catalog",
    "CatalogOption",
    "Check",
    "CircuitBreaker",
    "Dedupe",
    "Invoke",
    "Learned",
    "LockedError",
    "Locks",
    "NotRunReason",
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
    "approve",
    "as_made",
    "as_recipe",
    "as_tool",
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
    "tool",
    "tool_hint",
    "tool_result",
    "toolset",
    "truncate",
]
