"""Recipes: a call that the resolver makes of several other calls; and the run of any call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.context import (
    Context,
    approval_questions,
    check_call,
    invalid_answer,
    over_budget,
    uses_of,
)
from treadle.effects import NOW, Parallel, Steps, without_frame
from treadle.messages import ToolCall, ToolResult
from treadle.run_state import RunNode, RunNodeStatus
from treadle.stages._attempts import Work, attempts, failed_call, failure_of_call, log_exception
from treadle.stages._run_call import held_locks, perform_call
from treadle.tools import NotRun, Recipe, RecipeStep, Resolver, tool_result
from treadle.tracebacks import from_user_code


def run_call(ctx: Context, call: ToolCall, node: RunNode) -> Steps[ToolResult]:
    """Run a valid call that was started, by its recipe if the resolver has one."""
    tool, resolver = ctx.tools.get(call.name), ctx.run.resolver
    if resolver is not None and (tool is None or not tool.has_implementation):
        return perform_call(ctx, call, node, _by_recipe(ctx, call, node, resolver))
    return perform_call(ctx, call, node, attempts(ctx, call))


def _by_recipe(ctx: Context, call: ToolCall, node: RunNode, resolver: Resolver) -> Work:
    """Run a call by the resolver's recipe, or directly if there is none or it cannot be built.

    If a recipe fails after its steps ran, the call fails: resolving it directly would repeat their effects.
    """
    try:
        recipe = resolver.recipe(call.name, call.input or {})
    except Exception as error:  # noqa: BLE001 - a function of the resolver's author
        text = "the recipe of %r cannot be built; resolving it directly"
        log_exception(ctx, call, text, error=from_user_code(without_frame(error)))
        recipe = None
    if recipe is None:
        return (yield from attempts(ctx, call))
    started = yield NOW
    try:
        result = yield from _run_recipe(ctx, call, node, recipe)
    except Exception as error:  # noqa: BLE001 - as above
        result = failed_call(ctx, call, failure_of_call(call, error))
    ended = yield NOW
    return result, started, ended


def _run_recipe(ctx: Context, call: ToolCall, node: RunNode, recipe: Recipe) -> Steps[ToolResult]:
    results: dict[str, ToolResult] = {}

    def sub_call(label: str, step: RecipeStep) -> Steps[ToolResult]:
        # Its node is made at once, so that the driver does not affect the order.
        made = ctx.run.new_node(step.tool, f"{call.id}/{label}", node)
        return _run_step(ctx, call.id, made, step, results)

    serial = _labelled(recipe.serial, {})
    parallel = _labelled(recipe.parallel, serial)
    for label, step in serial.items():
        results[label] = yield from sub_call(label, step)
    together = [sub_call(label, step) for label, step in parallel.items()]
    outcomes = yield Parallel(together, ctx.limits.max_parallel_calls)
    results.update(zip(parallel, outcomes, strict=True))
    compose = recipe.compose
    composed = _composed(results, serial) if compose is None else compose(results)
    return tool_result(call.id, composed)


def _labelled(steps: Sequence[RecipeStep], used: Mapping[str, RecipeStep]) -> dict[str, RecipeStep]:
    """The steps by label; steps with the same label are numbered."""
    labelled: dict[str, RecipeStep] = {}
    for step in steps:
        label, number = step.label or step.tool, 1
        while label in labelled or label in used:
            number += 1
            label = f"{step.label or step.tool} {number}"
        labelled[label] = step
    return labelled


def _run_step(
    ctx: Context, outer_id: str, node: RunNode, step: RecipeStep, results: Mapping[str, ToolResult]
) -> Steps[ToolResult]:
    """Run a step as a call, which is checked like any other call; a failure becomes its result."""
    call_id = node.group_id or ""
    try:
        arguments = step.arguments(dict(results)) if callable(step.arguments) else step.arguments
        result = yield from prepare_call(ctx, step.tool, call_id, arguments, node, within=outer_id)
    except Exception as error:  # noqa: BLE001 - a function of the recipe's author
        call = ToolCall(call_id, step.tool, "{}")
        return failed_call(ctx, call, failure_of_call(call, error))
    finally:  # also if it was cancelled: it is no call of the model
        ctx.run.in_flight.running.pop(call_id, None)
        ctx.run.in_flight.results.pop(call_id, None)
    if ctx.run.in_flight.paused.pop(call_id, None) is not None:
        return _needs_approval(call_id, step.tool)
    return result


def prepare_call(
    ctx: Context,
    name: str,
    call_id: str,
    arguments: Mapping[str, Any] | str,
    node: RunNode | None = None,
    *,
    within: str | None = None,
) -> Steps[ToolResult]:
    """Check a call that the model did not make, and make the steps that run it; they always return a result.

    Within another call, it is a step of its recipe. Without a node, the run state does not have the call.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
    call, problems = check_call(ctx, ToolCall(call_id, name, text), {}, is_ours=within is not None)
    ctx.run.in_flight.start((call,))
    return _prepared(ctx, call, problems, node or RunNode(kind="tool", created_at=0.0), within)


def _prepared(
    ctx: Context, call: ToolCall, problems: tuple[str, ...], node: RunNode, within: str | None
) -> Steps[ToolResult]:
    run, in_flight = ctx.run, ctx.run.in_flight
    if within is None:
        run.repeats.count(call)
    else:
        in_flight.held_locks[call.id] = held_locks(ctx, within)
    if problems:
        refused: ToolResult | None = invalid_answer(call, problems)
    elif approval_questions(ctx, [call]):
        refused = _needs_approval(call.id, call.name)
    else:
        refused = over_budget(ctx, call, is_step=True)
    if refused is not None:
        in_flight.mark_done(call.id, refused)
        return refused
    uses = uses_of(ctx.tools.get(call.name))
    run.budget.reserve(call.name, 0, uses)
    try:
        return (yield from perform_call(ctx, call, node, attempts(ctx, call), within))
    except BaseException:
        if node.status is RunNodeStatus.INIT:  # cancelled before it began
            run.budget.reserve(call.name, 0, -uses)
        raise


def _needs_approval(call_id: str, name: str) -> ToolResult:
    text = f"Error: {name!r} needs approval, which cannot be requested within a recipe."
    return ToolResult(call_id, text, True, NotRun.DENIED)


def _composed(results: Mapping[str, ToolResult], serial: Mapping[str, RecipeStep]) -> Any:
    """Compose the results of a recipe without ``compose``: a text; or a list of it and of the media in it."""
    sections: dict[str, list[str]] = {"Results": [], "Additional results": [], "Errors": []}
    for label, result in results.items():
        title = "Results" if label in serial else "Additional results"
        section = sections["Errors" if result.is_error else title]
        section.append(f"### {label}\n{result.content}")
    made = ["\n\n".join((f"## {title}", *of)) for title, of in sections.items() if of]
    text = "\n\n".join(made) or "No results."
    parts = [part for result in results.values() for part in result.parts or ()]
    media = [part for part in parts if part.get("type") != "text"]
    return [text, *media] if media else text
