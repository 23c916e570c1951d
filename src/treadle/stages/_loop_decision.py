"""`loop_decision`: decides whether the response is the answer, is empty, or the run continues."""

from __future__ import annotations

from treadle.context import Context
from treadle.effects import Steps
from treadle.pipeline import stage
from treadle.results import EmptyResponse
from treadle.stages._take_output import take_output
from treadle.stages._terminal_call import ending_call, with_output

BLANK_NUDGE = (
    "Your last reply was empty. Answer the question, or call one of the tools if you need to."
)


@stage(requires=("tool_calls",), provides=("decision", "output", "guidance", "tool_results"))
def loop_decision(ctx: Context, *, max_blank_stops: int = 3) -> Steps[Context]:
    """Decide whether the run is over.

    Text without a call is the answer. A valid call of a terminal tool is the answer too: its arguments are
    the output, and the other calls are answered and do not run. If the tool requires approval, the run pauses
    first; a denied call is answered, and the run continues. An empty response, without text or calls,
    is a blank stop: the model is asked again, with a nudge that is not stored in the history.

    In a loop with the option ``output``, only a valid output is the answer. The model is asked again, with the
    reason, for anything else.

    Args:
        ctx: the context.
        max_blank_stops: the number of consecutive blank stops that are tolerated. Three is LlmCore's budget.
    """
    if ctx.tool_calls:
        ctx = ctx.remember(_BLANKS, ()) if _BLANKS in ctx.memo else ctx
        if ctx.run.output is not None:
            return (yield from take_output(ctx, ctx.run.output))
        for call in ctx.tool_calls:
            tool = ctx.tools.get(call.name)
            if tool is not None and tool.terminal:
                return _after_terminal_call(ctx)
        return ctx
    if ctx.response.is_blank:
        return _after_blank(ctx, max_blank_stops)
    if ctx.run.output is None:
        return ctx.done()
    return (yield from take_output(ctx, ctx.run.output))


def _after_terminal_call(ctx: Context) -> Context:
    """End the run with the output of a terminal tool, if one of its calls may end it."""
    ctx, ending = ending_call(ctx)
    if ending is None:
        return ctx
    return with_output(ctx, ending, ctx.tools[ending.name].output_of(ending.input or {}))


_BLANKS = "loop_decision.blanks"


def _after_blank(ctx: Context, max_blank_stops: int) -> Context:
    response = ctx.response
    finish_reasons = (*ctx.memo.get(_BLANKS, ()), response.finish_reason)
    if len(finish_reasons) > max_blank_stops:
        provider = response.provider or response.extra.get("provider")
        return ctx.stop(
            EmptyResponse(
                ctx.iteration, len(finish_reasons), finish_reasons, provider, response.model
            )
        )
    return ctx.remember(_BLANKS, finish_reasons).evolve(guidance=BLANK_NUDGE)
