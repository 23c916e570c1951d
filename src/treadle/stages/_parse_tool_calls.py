"""`parse_tool_calls`: reads the calls of this iteration from the response."""

from __future__ import annotations

from treadle.context import Context, with_parsed_calls
from treadle.pipeline import stage


@stage(requires=("response",), provides=("tool_calls",))
def parse_tool_calls(ctx: Context) -> Context:
    """Take the calls out of the response, each with an id that is unique in the history.

    Some providers send no ids, or the same id twice. Then it would not be clear which result belongs to which
    call. Arguments stay text: `validate_calls` checks them. With tool search, a call of `call_tool` becomes the
    call of the tool that it names.
    """
    return with_parsed_calls(ctx)
