"""The finish pass: at a limit, the model is asked for a last answer with what it has (RunaxAI's policy)."""

from __future__ import annotations

import dataclasses

from treadle.loop.iteration import Iterations
from treadle.loop.plant import Plant
from treadle.loop.request import request
from treadle.pipeline import Steps, Trace
from treadle.stages import inject, loop_decision, parse_tool_calls, validate_calls
from treadle.types import Context, Decision, Reason, Response, ToolResult

GUIDANCE = (
    "The budget for this task is spent ({reason}). Do not call any more tools. "
    "Give your final answer now, with what you have{how}."
)
NOT_RUN = "Not run: the budget for this task is spent. Give your final answer with what you have."
NO_ANSWER = "I could not finish this within the limits I was given ({reason})."


def finish(turn: Iterations, plant: Plant, reason: Reason) -> Steps[Reason | None]:
    """Ask for a last answer; the guidance for it does not stay in the history.

    The model is asked once with its tools on offer. If it calls some it is asked once more, with tools
    disabled. If there is no text then either, a plain sentence is the answer.

    Args:
        turn: the run.
        plant: what it works with.
        reason: the limit that was reached.

    Returns:
        Why there is no answer; None where there is one.
    """
    terminal = [tool.name for tool in plant.tools.values() if tool.terminal]
    how = f", by a call of {' or '.join(terminal)}" if terminal else ""
    guidance = GUIDANCE.format(reason=reason, how=how)
    for uses_tools in (True, False):
        parent = turn.budget.parent
        spent = None if parent is None else parent.spent()
        if spent is not None:  # what is a parent's is not ours to overdraw
            return spent
        yield from turn.is_steered()
        response = yield from request(turn, guidance, uses_tools=uses_tools)
        if isinstance(response, Reason):
            return response
        is_last = not uses_tools
        if not response.tool_calls or is_last:
            yield from turn.close(_answered(turn, response, reason))
            return None
        context = _refused(turn, response)
        yield from turn.close(context)
        if context.decision is Decision.DONE:
            return None
    raise AssertionError("unreachable: the last request is answered one way or another")


def _refused(turn: Iterations, response: Response) -> Context:
    """The calls in the history, each with the answer that it is too late for it.

    But a valid call of a terminal tool is the answer that was asked for.
    """
    begun = turn.begun(response, Trace()).replace(decision=None, error=None)
    context = loop_decision(validate_calls(parse_tool_calls(begun)))
    results = {
        call.id: ToolResult(call.id, NOT_RUN, True, "over_budget") for call in context.tool_calls
    }
    return inject(context.replace(tool_results={**results, **context.tool_results}))


def _answered(turn: Iterations, response: Response, reason: Reason) -> Context:
    """The text as the answer; calls beside it are dropped, since nothing would ever answer them."""
    text = response.content if (response.content or "").strip() else None
    if text is None and not (response.refusal or "").strip():
        text = NO_ANSWER.format(reason=reason)
    extra = {key: value for key, value in response.extra.items() if key != "content" or not text}
    response = dataclasses.replace(response, content=text, tool_calls=(), extra=extra)
    context = turn.begun(response, Trace()).replace(decision=None, error=None)
    return inject(context).done()
