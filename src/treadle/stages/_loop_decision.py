"""`loop_decision`: decides whether the response is the answer, is empty, or the run continues."""

from __future__ import annotations

from typing import Annotated, Literal

from treadle.checks import FLAG, number
from treadle.context import Context
from treadle.effects import Steps
from treadle.messages import Ending, is_of_context
from treadle.pipeline import stage
from treadle.results import EmptyResponse, ResponseIncomplete
from treadle.stages._take_output import take_output
from treadle.stages._terminal_call import ending_call, with_output
from treadle.tools import OutputContract

BLANK_NUDGE = (
    "Your last reply was empty. Answer the question, or call one of the tools if you need to."
)


@stage(requires=("tool_calls",), provides=("decision", "output", "guidance", "tool_results"))
def loop_decision(
    ctx: Context,
    *,
    max_blank_stops: Annotated[int, number(0)] = 3,
    accept_cut: Annotated[bool, FLAG] = False,
) -> Steps[Context]:
    """Decide whether the run is over.

    Text without a call is the answer. A valid call of a terminal tool is the answer too: its arguments are
    the output, and the other calls are answered and do not run. If the tool requires approval, the run pauses
    first; a denied call is answered, and the run continues. An empty response, without text or calls,
    is a blank stop: the model is asked again, with a nudge that is not stored in the history.

    A response that is not complete is no answer (`treadle.messages.Ending`). A text that was cut, a filtered
    response, and the second cut response with calls in a row end the run with `ResponseIncomplete`. A paused
    response goes back to the provider, which continues it.

    In a loop with the option ``output``, only a valid output is the answer. An invalid or cut one goes back to the
    model with the reason.

    Args:
        ctx: the context.
        max_blank_stops: the number of consecutive blank stops that are tolerated.
        accept_cut: whether a text that was cut is the answer.
    """
    ending = ctx.response.ending
    if ending is _FILTERED:
        return ctx.stop(incomplete(ctx, "filtered"))
    is_cut, output = ending is _CUT, ctx.run.output
    if ctx.tool_calls:
        ctx = _after_calls(ctx, output, is_cut)
        is_decided = ctx.decision is not None
        return ctx if output is None or is_decided else (yield from take_output(ctx, output))
    if ending is Ending.PAUSED:
        return ctx
    if ctx.response.is_blank and not is_cut:
        return _after_blank(ctx, max_blank_stops)
    is_answer = not ctx.response.is_blank and (accept_cut or not is_cut)
    if output is not None and not ctx.response.is_blank:
        return (yield from take_output(ctx, output, is_cut=not is_answer))
    return ctx.done() if is_answer else ctx.stop(incomplete(ctx, "cut"))


_CUT, _FILTERED = Ending.CUT, Ending.FILTERED  # cached: access to a member of an Enum is slow


def _after_calls(ctx: Context, output: OutputContract | None, is_cut: bool) -> Context:
    ctx = ctx.remember(_BLANKS, ()) if _BLANKS in ctx.memo else ctx
    if is_cut or _WAS_CUT in ctx.memo:
        # The call of an output tool that was cut is an invalid output, which has separate retries.
        names = () if output is None else output.tools
        is_cut = is_cut and not any(call.name in names for call in ctx.tool_calls)
        was_cut = ctx.memo.get(_WAS_CUT, False)
        if was_cut and is_cut:
            return ctx.stop(incomplete(ctx, "cut"))
        ctx = ctx if was_cut == is_cut else ctx.remember(_WAS_CUT, is_cut)
    for call in ctx.tool_calls if output is None else ():
        tool = ctx.tools.get(call.name)
        if tool is not None and tool.terminal:
            return _after_terminal_call(ctx)
    return ctx


_WAS_CUT = "loop_decision.was_cut"


def incomplete(ctx: Context, kind: Literal["cut", "filtered"]) -> ResponseIncomplete:
    """The reason of a run that a response ends which is not known to be whole.

    Args:
        ctx: has the response.
        kind: see `ResponseIncomplete`.
    """
    response, model = ctx.response, ctx.answered_by
    helps = kind == "cut" and model is not None and not is_of_context(response.finish_reason or "")
    return ResponseIncomplete(
        kind,
        response.finish_reason,
        response.refusal,
        model.length_option if helps and model else None,
    )


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
