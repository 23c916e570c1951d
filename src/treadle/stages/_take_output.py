"""Taking the output of a run from a response: checks it, and asks the model again if it is not valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from treadle import labels
from treadle.context import Context
from treadle.effects import Call, Steps, Then, call_mode, is_awaitable
from treadle.errors import Retry
from treadle.messages import MAX_VIOLATIONS, ToolResult, safe_str
from treadle.results import OutputMissing
from treadle.stages._terminal_call import ending_call, with_output
from treadle.tools import OutputContract
from treadle.tools.output import REJECTED


def take_output(ctx: Context, output: OutputContract, *, is_cut: bool = False) -> Steps[Context]:
    """End the run if the response has a valid output; if it has an invalid one, ask again.

    The run pauses first if the call with the output needs approval.

    Args:
        ctx: the context; its response has text or calls.
        output: what the run has to end with.
        is_cut: whether its text was cut, and so is no output even if it looks like one.
    """
    ctx, ending = ending_call(ctx)
    if ctx.decision is not None:  # the call needs approval
        return ctx
    problems: Sequence[str]
    if ending is not None:
        value, problems = ctx.tools[ending.name].output_of(ending.input or {}), ()
    elif ctx.tool_calls:
        value, problems = None, _problems_of_calls(ctx, output.tools)
        if not problems:  # calls of other tools
            return ctx
    elif is_cut:
        value, problems = None, (f"it was cut off ({ctx.response.finish_reason}); be shorter",)
    else:
        value, problems = output.of_text(ctx.response.text)
    if not problems:
        try:
            value = yield from _validated(ctx, output, value)
        except Retry as error:
            problems = (safe_str(error),)
    if not problems:
        ctx = ctx.evolve(accepted=value)
        return ctx.done(value) if ending is None else with_output(ctx, ending, value)
    if ending is not None:
        text = f"Error: the output was not accepted: {problems[0]}"
        result = ToolResult(ending.id, text, True, "retry")
        ctx = ctx.evolve(tool_results={**ctx.tool_results, ending.id: result})
    return _rejected(ctx, output, problems)


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


def _problems_of_calls(ctx: Context, names: Iterable[str]) -> tuple[str, ...]:
    """The violations of the invalid calls of output tools; empty if there are none."""
    return tuple(
        problem
        for call in ctx.tool_calls
        if call.name in names
        for problem in ctx.validation_errors.get(call.id, ())
    )


def _rejected(ctx: Context, output: OutputContract, problems: Sequence[str]) -> Context:
    """Ask again; end the run if the model was asked often enough.

    While the model is asked for its last answer at a limit, the run decides how often that is.
    """
    rejected = (*output.rejected(ctx.memo), tuple(problems))
    ctx, attempts = ctx.evolve(memo={**ctx.memo, REJECTED: rejected}), len(rejected)
    if attempts > output.max_retries and ctx.run.ledger.finishing is None:
        return ctx.stop(OutputMissing(attempts, tuple(problems)))
    return ctx if ctx.tool_calls else ctx.evolve(guidance=_reminder(output, problems))


def _reminder(output: OutputContract, problems: Sequence[str]) -> str:
    listed = "\n".join(f"- {problem}" for problem in problems[:MAX_VIOLATIONS])
    if output.is_json:
        how = "Reply with JSON that matches the schema, and nothing else."
    elif output.allows_text:
        how = "Answer again."
    else:
        how = f"Call {' or '.join(map(repr, output.tools))} with your final answer."
    return f"Your last reply was not accepted as the answer:\n{listed}\n{how}"
