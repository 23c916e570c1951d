"""Dispatch recipes: one call that expands to several, and a result composed of theirs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from treadle.pipeline import Parallel, Steps
from treadle.stages.calling import at_once, attempts
from treadle.stages.resolver import Recipe, Resolver, Step, as_recipe
from treadle.stages.text import cut, error_text, render
from treadle.stages.tool_runner import ToolRunner
from treadle.types import Context, RunNode, ToolCall, ToolResult

log = logging.getLogger("treadle.stages")


def cook(ctx: Context, call: ToolCall, node: RunNode) -> Steps[ToolResult]:
    """Run a call by the resolver's recipe, or directly where it has none or the recipe fails.

    Args:
        ctx: has the resolver.
        call: a valid call that was started.
        node: its node; the nodes of the sub-calls go under it.
    """
    try:
        recipe = _recipe_for(ctx, call)
        if recipe is not None:
            return (yield from _cook(ctx, call, node, recipe))
    except Exception:
        log.warning("the recipe of %r failed; resolving it directly", call.name, exc_info=True)
    return (yield from attempts(ctx, call))


def _recipe_for(ctx: Context, call: ToolCall) -> Recipe | None:
    resolver: Resolver = ctx.resolve_tool
    maker = resolver.recipe(call.name)
    return None if maker is None else as_recipe(maker(call.input or {}))


def _cook(ctx: Context, call: ToolCall, node: RunNode, recipe: Recipe) -> Steps[ToolResult]:
    results: dict[str, ToolResult] = {}
    serial = _labelled(recipe.serial, ())
    parallel = _labelled(recipe.parallel, serial)
    for label, step in serial.items():
        results[label] = yield from _take_step(ctx, f"{call.id}/{label}", node, step, results)
    together = [
        _take_step(ctx, f"{call.id}/{label}", node, step, results)
        for label, step in parallel.items()
    ]
    outcomes = yield Parallel(together, ctx.limits.max_parallel_calls)
    results.update(zip(parallel, outcomes, strict=True))
    made = recipe.compose
    composed = compose(results, tuple(serial)) if made is None else render(made(results))
    return ToolResult(call.id, cut(composed))


def _labelled(steps: Sequence[Step], taken: Sequence[str] | Mapping[str, Step]) -> dict[str, Step]:
    """The steps by label, those of one label numbered."""
    labelled: dict[str, Step] = {}
    for step in steps:
        label, number = step.label or step.tool, 1
        while label in labelled or label in taken:
            number += 1
            label = f"{step.label or step.tool} {number}"
        labelled[label] = step
    return labelled


def _take_step(
    ctx: Context, call_id: str, parent: RunNode, step: Step, results: Mapping[str, ToolResult]
) -> Steps[ToolResult]:
    """Make the steps of one sub-call, checked like any call; its failure is its result.

    The record has the sub-calls in their order, whichever of them a driver starts first.
    """
    runner: ToolRunner = ctx.runner
    node = RunNode(
        parent.agent_name,
        parent.step_index,
        kind="tool",
        name=step.tool,
        group_id=call_id,
        created_at=parent.created_at,
    )
    try:
        arguments = step.arguments(dict(results)) if callable(step.arguments) else step.arguments
        steps = runner.prepare_call(
            ctx, step.tool, call_id, arguments, node, within=parent.group_id
        )
    except Exception as error:  # noqa: BLE001 - a function of the recipe's author
        return at_once(ToolResult(call_id, error_text(error), True))
    parent.tool_calls.append(node)
    return _forgotten(runner, call_id, steps)


def _forgotten(runner: ToolRunner, call_id: str, steps: Steps[ToolResult]) -> Steps[ToolResult]:
    """The steps of a sub-call, whose result is no answer to a call of the model."""
    result = yield from steps
    runner.results.pop(call_id, None)
    if runner.paused.pop(call_id, None) is not None:
        text = "Error: it needs approval, which nobody can be asked for within a recipe."
        return ToolResult(call_id, text, True, "denied")
    return result


def compose(results: Mapping[str, ToolResult], serial: Sequence[str]) -> str:
    """Compose results where a recipe does not say how: serial ones, additional ones, errors.

    Args:
        results: all results, by label.
        serial: the labels of the serial steps.
    """
    good = {label: result for label, result in results.items() if not result.is_error}
    sections = [
        ("Results", {label: good[label] for label in serial if label in good}),
        ("Additional results", {k: v for k, v in good.items() if k not in serial}),
        ("Errors", {label: result for label, result in results.items() if result.is_error}),
    ]
    told = [
        f"## {title}\n\n"
        + "\n\n".join(f"### {label}\n{result.content}" for label, result in part.items())
        for title, part in sections
        if part
    ]
    return "\n\n".join(told) or "No results."
