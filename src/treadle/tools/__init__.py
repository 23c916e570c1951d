"""Tools: their schemas, validation, invocation, policies, plan, locks, circuit breaker and repeated calls.

`treadle.stages` runs plans.
"""

# ruff: noqa: I001 - the aliases of one module stand together
from treadle.queues import LockedError as LockedError, Locks as Locks
from treadle.tools.approvals import (
    Approval as Approval,
    approve as approve,
    deny as deny,
    edit as edit,
)
from treadle.tools.breaker import (
    BreakerAnswer as BreakerAnswer,
    BreakerState as BreakerState,
    CircuitBreaker as CircuitBreaker,
)
from treadle.tools.catalog import (
    Catalog as Catalog,
    as_made as as_made,
)
from treadle.tools.conversion import (
    ToolBehaviour as ToolBehaviour,
    ToolLike as ToolLike,
    as_tool as as_tool,
    tool as tool,
    tool_hint as tool_hint,
    toolset as toolset,
)
from treadle.tools.definition import Invoke as Invoke, Tool as Tool
from treadle.tools.fingerprints import (
    DEDUPE_MODES as DEDUPE_MODES,
    Dedupe as Dedupe,
    fingerprint as fingerprint,
    marked as marked,
    signature as signature,
)
from treadle.tools.in_flight import ToolCallTable as ToolCallTable
from treadle.tools.output import (
    Output as Output,
    OutputContract as OutputContract,
    PartialReader as PartialReader,
    make_output as make_output,
)
from treadle.tools.plan import Plan as Plan, PlanReason as PlanReason
from treadle.tools.rendering import (
    MAX_BYTES as MAX_BYTES,
    error_text as error_text,
    is_plain as is_plain,
    is_plain_error as is_plain_error,
    make_text as make_text,
    truncate as truncate,
)
from treadle.tools.repeats import NOTE_FROM as NOTE_FROM, Repeats as Repeats
from treadle.tools.resolver import (
    Recipe as Recipe,
    RecipeStep as RecipeStep,
    Resolver as Resolver,
    check_implementations as check_implementations,
)
from treadle.tools.return_value import tool_result as tool_result
from treadle.tools.tool_context import ToolContext as ToolContext
from treadle.tools.unrun_calls import NotRun as NotRun, not_run as not_run
