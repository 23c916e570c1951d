"""`loop_decision`: decides whether the response is the answer, is empty, or the run continues."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from treadle import labels
from treadle.checks import FLAG, number
from treadle.context import Context, decision_on
from treadle.effects import Call, Steps, Then, call_mode, is_awaitable
from treadle.errors import Retry
from treadle.messages import Ending, ToolCall, ToolResult, is_of_context, safe_str
from treadle.messages.json_text import MAX_VIOLATIONS
from treadle.pipeline import stage
from treadle.results import EmptyResponse, OutputMissing, PendingCall, ResponseIncomplete
from treadle.stages._answers import edit_note, refusal
from treadle.tools import NotRun, OutputContract, not_run
from treadle.tools.output import REJECTED

BLANK_NUDGE = (
    "Your last reply was empty. Answer the question, or call one of the tools if you need to."
)
_BLANKS = "loop_decision.blanks"
_WAS_CUT = "loop_decision.was_cut"
_CUT, _FILTERED = Ending.CUT, Ending.FILTERED  # cached: access to a member of an Enum is slow


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
    ending, output, call = ctx.response.ending, ctx.run.output, None
    if ending is _FILTERED:
        return ctx.stop(incomplete(ctx))
    is_cut = ending is _CUT
    if ctx.tool_calls:
        if is_cut or ctx.memo:
            ctx = _after_calls(ctx, output, is_cut)
        if ctx.decision is None:
            ctx, call = _ending_call(ctx)
        if ctx.decision is not None or output is None:
            if call is not None:
                ctx = _ended_by(ctx, call, ctx.tools[call.name].output_of(call.input or {}))
            return ctx
    elif ending is Ending.PAUSED:
        return ctx
    elif ctx.response.is_blank:
        return ctx.stop(incomplete(ctx)) if is_cut else _after_blank(ctx, max_blank_stops)
    is_whole = accept_cut or not is_cut
    if output is not None:
        return (yield from _take_output(ctx, output, call, is_whole))
    return ctx.done() if is_whole else ctx.stop(incomplete(ctx))


def _after_calls(ctx: Context, output: OutputContract | None, is_cut: bool) -> Context:
    """Note whether a response with calls was cut; the second one in a row ends the run."""
    ctx = ctx.remember(_BLANKS, ()) if _BLANKS in ctx.memo else ctx
    if is_cut and output is not None:
        # The call of an output tool that was cut is an invalid output, which has separate retries.
        is_cut = all(call.name not in output.tools for call in ctx.tool_calls)
    was_cut = ctx.memo.get(_WAS_CUT, False)
    if was_cut and is_cut:
        return ctx.stop(incomplete(ctx))
    return ctx if was_cut == is_cut else ctx.remember(_WAS_CUT, is_cut)


def _after_blank(ctx: Context, max_blank_stops: int) -> Context:
    response = ctx.response
    finish_reasons = (*ctx.memo.get(_BLANKS, ()), response.finish_reason)
    if len(finish_reasons) > max_blank_stops:
        provider = response.provider or response.extra.get("provider")
        facts = len(finish_reasons), finish_reasons, provider, response.model
        return ctx.stop(EmptyResponse(ctx.iteration, *facts))
    return ctx.remember(_BLANKS, finish_reasons).guide(BLANK_NUDGE)


def without_nudge(ctx: Context) -> Context:
    """The context without the text after an empty response: a later text for the model replaces it."""
    guidance = ctx.guidance
    if guidance is None or not guidance.endswith(BLANK_NUDGE):
        return ctx
    return ctx.evolve(guidance=guidance.removesuffix(BLANK_NUDGE).rstrip() or None)


def incomplete(ctx: Context) -> ResponseIncomplete:
    """The reason of a run that ends with a response which is not known to be whole."""
    response, model = ctx.response, ctx.answered_by
    if response.ending is _FILTERED:
        return ResponseIncomplete("filtered", response.finish_reason, response.refusal)
    helps = model is not None and not is_of_context(response.finish_reason or "")
    option = model.length_option if helps and model else None
    return ResponseIncomplete("cut", response.finish_reason, response.refusal, option)


# Terminal tools


def _ending_call(ctx: Context) -> tuple[Context, ToolCall | None]:
    """Find the call that ends the run, or pause for its approval; denied ones before it are answered."""
    for call in ctx.tool_calls:
        tool = ctx.tools.get(call.name)
        if tool is None or not tool.terminal or call.id in ctx.tool_results:
            continue
        decided = decision_on(ctx, call)
        if decided is None:
            # A rule is asked once: it may depend on more than the arguments.
            arguments = call.input or {}
            question = ctx.plan.approvals.get(call.id) or tool.approval_question(arguments)
            if question is None:
                return ctx, call
            approvals = {**ctx.plan.approvals, call.id: question}
            ctx = ctx.evolve(plan=dataclasses.replace(ctx.plan, approvals=approvals))
            return ctx.pause((PendingCall(call.id, call.name, dict(arguments), question),)), None
        refused = refusal(ctx, call, decided)
        if refused is None:
            return ctx, call
        ctx = ctx.evolve(tool_results={**ctx.tool_results, call.id: refused})
    return ctx, None


def _ended_by(ctx: Context, ending: ToolCall, output: Any) -> Context:
    """End the run with a call of a terminal tool; the other calls are answered and do not run."""
    text, decided = "Accepted: this is the final output.", decision_on(ctx, ending)
    if decided is not None and decided.arguments is not None:
        text = f"{text}\n\n{edit_note(ending)}"
    results = {**ctx.tool_results, ending.id: ToolResult(ending.id, text)}
    for call in ctx.tool_calls:
        if call.id not in results:
            results[call.id] = not_run(call, NotRun.ENDED_RUN, ending=ending.name)
    return ctx.evolve(tool_results=results).done(output)


# Typed output


def _take_output(
    ctx: Context, output: OutputContract, ending: ToolCall | None, is_whole: bool
) -> Steps[Context]:
    """End the run if the response has a valid output, for which it must be whole; if it is invalid, ask again."""
    value: Any = None
    problems: Sequence[str] = ()
    if ending is not None:
        value = ctx.tools[ending.name].output_of(ending.input or {})
    elif ctx.tool_calls:
        calls = [call for call in ctx.tool_calls if call.name in output.tools]
        problems = [one for call in calls for one in ctx.validation_errors.get(call.id, ())]
        if not problems:  # calls of other tools
            return ctx
    elif is_whole:
        value, problems = output.of_text(ctx.response.text)
    else:
        problems = (f"it was cut off ({ctx.response.finish_reason}); be shorter",)
    if not problems:
        try:
            value = yield from _validated(ctx, output, value)
        except Retry as error:
            problems = (safe_str(error),)
        else:
            ctx = ctx.evolve(accepted=value)
            return ctx.done(value) if ending is None else _ended_by(ctx, ending, value)
    if ending is not None:
        text = f"Error: the output was not accepted: {problems[0]}"
        result = ToolResult(ending.id, text, True, "retry")
        ctx = ctx.evolve(tool_results={**ctx.tool_results, ending.id: result})
    rejected = (*output.rejected(ctx.memo), tuple(problems))
    ctx, attempts = ctx.evolve(memo={**ctx.memo, REJECTED: rejected}), len(rejected)
    # For the last answer at a limit, the run decides how often the model is asked.
    if attempts > output.max_retries and not ctx.run.budget.is_finishing:
        return ctx.stop(OutputMissing(attempts, tuple(problems)))
    return ctx if ctx.tool_calls else ctx.guide(_reminder(output, problems))


def _validated(ctx: Context, output: OutputContract, value: Any) -> Steps[Any]:
    """Call the validators in order; each may replace the output."""
    for validator, takes_context in output.validators:
        args = (ctx, value) if takes_context else (value,)
        fn, mode = _unless_same(validator, value), call_mode(validator)
        made = yield Call(fn, *args, mode=mode, label=labels.STAGE, key="output_validator")
        if made is not None:
            value = made
    return value


def _unless_same(validator: Callable[..., Any], value: Any) -> Callable[..., Any]:
    """Call a validator; None if it returns the output that it was given, which a log could not keep."""

    def replaced(made: Any) -> Any:
        return None if made is value else made

    def call(*args: Any) -> Any:
        made: Any = validator(*args)
        return Then[Any](made, replaced) if is_awaitable(made) else replaced(made)

    return call


def _reminder(output: OutputContract, problems: Sequence[str]) -> str:
    listed = "\n".join(f"- {problem}" for problem in problems[:MAX_VIOLATIONS])
    if output.is_json:
        how = "Reply with JSON that matches the schema, and nothing else."
    elif output.allows_text:
        how = "Answer again."
    else:
        how = f"Call {' or '.join(map(repr, output.tools))} with your final answer."
    return f"Your last reply was not accepted as the answer:\n{listed}\n{how}"
