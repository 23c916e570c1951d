"""Tools: their schemas, validation, invocation, policies, plan, locks, circuit breaker and repeated calls.

`treadle.stages` runs plans.
"""

from treadle.queues import LockedError, Locks
from treadle.tools.approvals import Approval, approve, deny, edit
from treadle.tools.bounds import is_plain
from treadle.tools.breaker import BreakerAnswer, BreakerState, CircuitBreaker
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
from treadle.tools.fingerprints import DEDUPE_MODES, Dedupe, fingerprint, marked, signature
from treadle.tools.in_flight import ToolCallTable
from treadle.tools.output import Output, OutputContract, PartialReader, make_output
from treadle.tools.plan import Plan, PlanReason
from treadle.tools.rendering import (
    MAX_BYTES,
    error_text,
    is_plain_error,
    make_text,
    render,
    truncate,
)
from treadle.tools.repeats import NOTE_FROM, Repeats
from treadle.tools.resolver import Recipe, RecipeStep, Resolver, check_implementations
from treadle.tools.return_value import tool_result
from treadle.tools.tool_context import ToolContext
from treadle.tools.unrun_calls import NotRun, not_run

__all__ = [
    "DEDUPE_MODES",
    "MAX_BYTES",
    "NOTE_FROM",
    "Approval",
    "BreakerAnswer",
    "BreakerState",
    "Catalog",
    "CatalogOption",
    "CircuitBreaker",
    "Dedupe",
    "Invoke",
    "LockedError",
    "Locks",
    "NotRun",
    "Output",
    "OutputContract",
    "PartialReader",
    "Plan",
    "PlanReason",
    "Recipe",
    "RecipeStep",
    "Repeats",
    "Resolver",
    "Tool",
    "ToolBehaviour",
    "ToolCallTable",
    "ToolContext",
    "ToolLike",
    "approve",
    "as_made",
    "as_tool",
    "check_implementations",
    "deny",
    "edit",
    "error_text",
    "fingerprint",
    "is_plain",
    "is_plain_error",
    "make_output",
    "make_text",
    "marked",
    "not_run",
    "render",
    "signature",
    "tool",
    "tool_hint",
    "tool_result",
    "toolset",
    "truncate",
]
