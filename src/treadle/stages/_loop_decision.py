"""`loop_decision`: decides whether the response is the answer, is empty, or the run continues."""

from __future__ import annotations

from treadle.context import Context
from treadle.messages import ToolCall, ToolResult
from treadle.pipeline import stage
from treadle.results import EmptyResponse

BLANK_NUDGE = (
    "Your last reply was empty. Answer the question, or call one of the tools if you need to."
)


@stage(requires=("tool_calls",), provides=("decision", "output", "guidance", "tool_results"))
def loop_decision(ctx: Context, *, max_blank_stops: int = 3) -> Context:
    """Decide whether the run is over.

    Text without a call is the answer. A valid call of a terminal tool is the answer too: its arguments are
    the output, and the other calls are answered and do not run. An empty response, without text or calls,
    is a blank stop: the model is asked again, with a nudge that is not stored in the history.

    Args:
        ctx: the context.
        max_blank_stops: the number of consecutive blank stops that are tolerated. Three is LlmCore's budget.
    """
    if ctx.tool_calls:
        ctx = ctx.remember(_BLANKS, ()) if _BLANKS in ctx.memo else ctx
        for call in ctx.tool_calls:
            tool = ctx.tools.get(call.name)
            if tool is not None and tool.terminal and call.id not in ctx.tool_results:
                return _with_output(ctx, call)
        return ctx
    if not ctx.response.is_blank:
        return ctx.done()
    finish_reasons = (*ctx.memo.get(_BLANKS, ()), ctx.response.finish_reason)
    if len(finish_reasons) > max_blank_stops:
        response = ctx.response
        provider = response.provider or response.extra.get("provider")
        return ctx.stop(
            EmptyResponse(
                ctx.iteration, len(finish_reasons), finish_reasons, provider, response.model
            )
        )
    return ctx.remember(_BLANKS, finish_reasons).evolve(guidance=BLANK_NUDGE)


_BLANKS = "loop_decision.blanks"


def _with_output(ctx: Context, ending: ToolCall) -> Context:
    results = dict(ctx.tool_results)
    results[ending.id] = ToolResult(ending.id, "Accepted: this is the final output.")
    for call in ctx.tool_calls:
        if call.id not in results:
            text = f"Not run: the call of {ending.name!r} ended the run."
            results[call.id] = ToolResult(call.id, text, True, "skipped")
    model = ctx.tools[ending.name].model
    output = dict(ending.input or {}) if model is None else model.model_validate(ending.input)
    return ctx.evolve(tool_results=results).done(output)
