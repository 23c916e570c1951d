"""Custom stages: each receives a context that it cannot edit in place, and loses no call that ran.

The verbs of a context check everything else where a stage calls them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any
from weakref import WeakSet

from treadle.context import Context, Decision
from treadle.effects import Steps, Then, is_awaitable
from treadle.messages import ReadOnlyDict, ToolResult, read_only
from treadle.pipeline import Stage
from treadle.pipeline.compiler import Kind, kind_of
from treadle.stages import concluded
from treadle.tools import NotRun, not_run

_CHECKED: WeakSet[Any] = WeakSet()
"""The functions that `checked` made."""


def checked(stage: Stage[..., Any]) -> Stage[..., Any]:
    """Copy a custom stage so that it checks its contexts; such a copy is returned unchanged."""
    fn: Any = stage.fn
    if isinstance(fn, FunctionType) and fn in _CHECKED:
        return stage

    def plain(ctx: Context, /, *args: Any, **options: Any) -> Any:
        _protect(ctx)
        after = fn(ctx, *args, **options)
        if is_awaitable(after):
            return Then[Any](after, functools.partial(_check, ctx))
        return _check(ctx, after)

    def generator(ctx: Context, /, *args: Any, **options: Any) -> Steps[Any]:
        _protect(ctx)
        return _check(ctx, (yield from fn(ctx, *args, **options)))

    async def coroutine(ctx: Context, /, *args: Any, **options: Any) -> Any:
        _protect(ctx)
        return _check(ctx, await fn(ctx, *args, **options))

    wrappers: dict[Kind, Any] = {Kind.GENERATOR: generator, Kind.CALL: coroutine}
    wrapper = functools.wraps(fn)(wrappers.get(kind_of(fn, stage.name), plain))
    _CHECKED.add(wrapper)
    return replace(stage, fn=wrapper)


_FIXED = ("run", "iteration", "paused_runs", "trace")
"""The fields that the loop sets, and no stage may change."""
_SHALLOW = (
    "tools", "tool_results", "validation_errors", "memo", "approvals", "paused_runs", "request_changes",
)  # fmt: skip


def _protect(ctx: Context) -> None:
    """Make the contents of a context read-only, before a custom stage receives it: an edit in place raises."""
    fields = ctx.__dict__
    for name in _SHALLOW:
        if fields[name].__class__ is dict:
            fields[name] = ReadOnlyDict(fields[name])
    if ctx.result_messages:
        fields["result_messages"] = tuple(map(read_only, ctx.result_messages))
    for call in (*ctx.tool_calls, *ctx.response.tool_calls):
        _protect_fields(call, "input", "extra")
    _protect_fields(ctx.response, "extra")
    _protect_fields(ctx.plan, "not_run", "duplicates", "approvals")


def _protect_fields(one: Any, *names: str) -> None:
    """Make fields of a frozen object read-only, which keeps its identity."""
    for name in names:
        value = getattr(one, name)
        if value.__class__ is dict:
            object.__setattr__(one, name, read_only(value))


def _check(before: Context, after: Any) -> Any:
    """Check the context that a custom stage returned; it gets the results of all calls that ran."""
    if not isinstance(after, Context):
        return after  # the pipeline refuses it
    if after is not before:
        _check_facts(before, after)
    after = _with_all_results(after)
    lost = lost_calls(after)
    if lost:
        raise TypeError(
            f"calls {', '.join(lost)} ran, and the returned context does not have them; "
            "return the context that dispatch_tools returned"
        )
    ran = {call.id for one in after.run.ledger.dispatched for call in one.plan.calls}
    ran |= before.tool_results.keys()
    after.run.ledger.dispatched = ()
    new = after.run.in_flight.results.keys() - ran
    reported = [call for call in after.tool_calls if call.id in new]
    return concluded(after, reported) if reported else after


def _check_facts(before: Context, after: Context) -> None:
    for name in _FIXED:
        if getattr(before, name) is not getattr(after, name):
            raise TypeError(f"{name} may not be changed")
    known, made = before.approvals, after.approvals  # `run_calls` forgets those that do not hold
    if made is not known and any(known.get(key) is not one for key, one in made.items()):
        raise TypeError("approvals may not be changed")
    # A second request puts the first exchange into the history, and has another response.
    is_earlier = before.is_injected and not after.is_injected and before.response is after.response
    if before.is_asked > after.is_asked or is_earlier:
        raise TypeError("it returned a context of an earlier stage")
    if not after.is_asked and before.response is not after.response and after.decision is None:
        raise TypeError(
            "the model was not asked yet; to answer without asking it, decide so: "
            "ctx.with_response(...).done()"
        )


def _with_all_results(ctx: Context) -> Context:
    """The context with the results of calls that ran within a stage, which dropped them or stopped the calls."""
    if ctx.result_messages or not ctx.tool_calls:
        return ctx
    done, results = ctx.run.in_flight.results, ctx.tool_results
    found: dict[str, ToolResult] = {}
    for call in ctx.tool_calls:
        if call.id in results:
            continue
        if call.id in done:
            found[call.id] = done[call.id]
        elif ctx.decision is not Decision.PAUSE and ctx.run.has_run(call):
            found[call.id] = not_run(call, NotRun.CANCELLED)
    return ctx.evolve(tool_results={**results, **found}) if found else ctx


def lost_calls(ctx: Context, dispatched: Sequence[Context] | None = None) -> list[str]:
    """The ids of calls that ran in some contexts (the latest) and are neither in a context nor its history."""
    lost: list[str] = []
    for one in ctx.run.ledger.dispatched if dispatched is None else dispatched:
        # Once the model is asked again, their results are in the history only.
        kept = ctx.tool_results if one.is_injected else {call.id for call in ctx.tool_calls}
        lost.extend(call.id for call in one.plan.calls if call.id not in kept)
    if not lost:
        return []
    made = {call["id"] for one in ctx.messages.raw() for call in one.get("tool_calls") or ()}
    return [call_id for call_id in lost if call_id not in made]
