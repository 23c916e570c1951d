"""The end of a run whose model repeats itself."""

from __future__ import annotations

from treadle.context import Context
from treadle.messages import short_name
from treadle.results import LoopDetected
from treadle.run_state import RunNode
from treadle.tools import fingerprint, signature

MAX_SHOWN = 5
"""The maximum number of calls that the reason names."""


def detected_loop(context: Context, node: RunNode) -> LoopDetected | None:
    """Add a finished iteration to those of its run, and look for an endless loop; see `Repeats`.

    A text counts if the run continues after it. The node gets the signature of calls as ``tool_signature``.
    """
    calls, response = context.tool_calls, context.response
    made = ""
    if calls:
        made = signature([one.fingerprint or fingerprint(one.name, one.arguments) for one in calls])
        node.metadata["tool_signature"] = made
    looked_at = made if calls or response.is_blank else response.text
    found = context.run.repeats.look(looked_at, calls, context.tool_results, context.tools)
    if found is None:
        return None
    rounds, period = found
    shown = tuple(f"{short_name(c.name)}({short_name(c.arguments)})" for c in calls[:MAX_SHOWN])
    return LoopDetected(shown or (short_name(response.text),), rounds, made, period)
