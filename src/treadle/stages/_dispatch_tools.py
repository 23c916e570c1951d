"""`dispatch_tools`: runs the plan."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.codec import decode
from treadle.context import (
    Context,
    Decision,
    admitted,
    decision_on,
    expect,
    found_call,
    with_plan,
)
from treadle.effects import Bounded, Parallel, Steps, Stopped
from treadle.messages import ToolCall, ToolResult
from treadle.pipeline import stage
from treadle.results import Paused, PendingCall
from treadle.run_state import RunNode
from treadle.stages._answers import refusal
from treadle.stages._circuit_breaker import report_calls
from treadle.stages._plan_calls import SHOWN_AGAIN
from treadle.stages._recipes import run_call
from treadle.tools import NotRun, approve, not_run, truncate


@stage(requires=("plan",), provides=("tool_results",))
def dispatch_tools(ctx: Context) -> Steps[Context]:
    """Run the planned calls, batch after batch, those of one batch at the same time.

    Every call gets a result, even if its tool raises, is cancelled, or reaches a time limit. A call that fails
    does not affect the others. If a call needs approval, the calls before it run, and the run pauses.
    """
    if not ctx.plan.batches or ctx.result_messages:  # the answers to the calls are in the history
        return ctx
    run, in_flight = ctx.run, ctx.run.in_flight
    if in_flight.results:  # calls of this iteration ran before
        ctx = ctx.evolve(tool_results={**in_flight.results, **ctx.tool_results})
    # A stage may have released them in a discarded context.
    ctx = functools.reduce(admitted, ctx.plan.calls, ctx)
    plan, batches = ctx.plan, ctx.plan.batches
    calls = planned = plan.calls
    still_paused: Mapping[str, Paused] = {}
    if plan.approvals or ctx.paused_runs or ctx.tool_results:
        ctx, batches, still_paused = _apply_decisions(ctx)
        calls = tuple(itertools.chain.from_iterable(batches))
    nodes = _nodes(ctx, calls)
    in_flight.renew()
    run.ledger.dispatched += (ctx,)
    in_flight.start(calls)
    for batch in batches:
        made = [run_call(ctx, call, nodes[call.id]) for call in batch]
        running: Steps[Any] = made[0] if len(made) == 1 else _together(ctx, made)
        yield from running if in_flight.stop is None else _stoppable(ctx, calls, running)
        if in_flight.paused or in_flight.unknown:
            break
    in_flight.paused.update(still_paused)
    before = ctx.tool_results  # they keep their order, and the edits of stages
    ctx = ctx.evolve(tool_results={**before, **in_flight.results, **before})
    if plan.approvals or in_flight.paused or in_flight.unknown:
        in_flight.running.clear()  # the calls of further batches have not begun
        ctx, waiting = _waiting(ctx)
        # A stage of a subagent may have paused it for another reason.
        if waiting or in_flight.paused:
            run.ledger.unsettled += [call for call in planned if call.id in ctx.tool_results]
            return ctx.pause(waiting)
    ended = run.repeats.not_learned(ctx.iteration, planned)  # `run_calls` runs a part of a plan
    if run.breaker is not None:
        yield from report_calls(ctx, ended)
    return concluded(ctx, ended)


def run_calls(ctx: Context, calls: Iterable[ToolCall | str]) -> Steps[Context]:
    """Run calls of the iteration at the same time, for a stage that replaces `dispatch_tools`.

    Approvals, limits, locks, retries, events, spans and counting are those of `dispatch_tools`. Calls that are
    answered already do not run again.

    Args:
        ctx: the context.
        calls: calls of ``ctx.tool_calls``, or their ids. One that is not in the plan is added to it, if the limits
            allow that.

    Returns:
        The context with their results. If a call waits for a person, it has the decision to pause, and the
        stage returns it at once: the resumed run enters the stage again.

    Raises:
        OptionError: it is no list, or one of them is no call of the iteration.
    """
    if ctx.decision is Decision.PAUSE or ctx.result_messages:
        return ctx
    is_many = isinstance(calls, Iterable) and not isinstance(calls, str)  # pyright: ignore[reportUnnecessaryIsInstance]
    expect(is_many, "run_calls", "a list of calls or of their ids", calls)
    ids = {found_call(ctx, call, "run_calls").id for call in calls}
    batch = tuple(call for call in ctx.tool_calls if call.id in ids)
    known = {*ctx.run.ledger.reserved, *ctx.tool_results, *ctx.plan.duplicates}
    new = [call for call in batch if call.id not in known]
    if new:
        planned = tuple(call for call in new if not ctx.run.has_run(call))
        batches = (*ctx.plan.batches, planned)
        ctx = with_plan(ctx, dataclasses.replace(ctx.plan, batches=batches))
    whole = ctx.plan
    runnable = tuple(call for call in whole.calls if call.id in ids)
    twins = {twin: first for twin, first in whole.duplicates.items() if first in ids}
    part = dataclasses.replace(whole, batches=(runnable,) if runnable else (), duplicates=twins)
    ctx = yield from dispatch_tools.fn(ctx.evolve(plan=part))
    whole = dataclasses.replace(ctx.plan, batches=whole.batches, duplicates=whole.duplicates)
    return ctx.evolve(plan=whole)


def _stoppable(ctx: Context, calls: Sequence[ToolCall], running: Steps[Any]) -> Steps[None]:
    """Run a batch until a handle cancels the calls that run now; those that wait for a person stay reserved."""
    try:
        # After a batch that was cancelled, the next ends at once.
        yield Bounded(running, until=ctx.run.in_flight.stop)
    except Stopped:
        ctx.run.in_flight.cancel_all()  # again: a replay has only the effects, not the handle
        ctx.run.release(*calls)


def _together(ctx: Context, running: list[Steps[ToolResult]]) -> Steps[None]:
    yield Parallel(running, ctx.limits.max_parallel_calls)


def _nodes(ctx: Context, calls: Iterable[ToolCall]) -> dict[str, RunNode]:
    """The nodes of calls; one that continues after a pause has a node already, and was counted."""
    run, iterations = ctx.run, ctx.run.state.nodes
    nodes: dict[str, RunNode] = {}
    if iterations and iterations[-1].tool_calls:
        nodes = {node.group_id or "": node for node in iterations[-1].tool_calls}
    for call in calls:
        if call.id not in nodes:
            nodes[call.id] = run.new_node(call.name, call.id)
            run.repeats.count(call)
    return nodes


def concluded(ctx: Context, calls: Iterable[ToolCall]) -> Context:
    """Record the results of calls, and answer the duplicates of a batch with the result of the first."""
    plan, results = ctx.plan, ctx.tool_results
    ctx.run.repeats.learn(ctx.iteration, calls, results, ctx.tools)
    if not plan.duplicates:
        return ctx
    answers = {
        call.id: _duplicate(ctx, call, results.get(plan.duplicates[call.id]))
        for call in ctx.tool_calls
        if call.id in plan.duplicates and call.id not in results  # a stage may have answered it
    }
    return ctx.evolve(tool_results={**results, **answers})


def _duplicate(ctx: Context, call: ToolCall, first: ToolResult | None) -> ToolResult:
    if first is None:
        return not_run(call, NotRun.NOT_PLANNED)
    twin = next((one for one in ctx.tool_calls if one.id == first.tool_call_id), call)
    if twin.fingerprint != call.fingerprint:
        return not_run(call, NotRun.DEFERRED, why="the identical call was changed")
    more = "Only a tool declared volatile=True would run twice."
    if ctx.run.repeats.mode_of(ctx.tools.get(call.name)) == "evidence":
        more = "If you need it twice, call it again in your next response."
    content, reason = truncate(first.content, *SHOWN_AGAIN), NotRun.DUPLICATE_IN_BATCH
    return not_run(call, reason, is_error=first.is_error, more=more, content=content)


# Approvals


def _apply_decisions(
    ctx: Context,
) -> tuple[Context, tuple[tuple[ToolCall, ...], ...], dict[str, Paused]]:
    """Answer denied calls; return the batches of those before the first undecided one, and what stays paused."""
    plan, results = ctx.plan, dict(ctx.tool_results)
    batches: list[tuple[ToolCall, ...]] = []
    still_paused: dict[str, Paused] = {}
    is_blocked = False
    for batch in plan.batches:
        runnable: list[ToolCall] = []
        for call in batch:
            if call.id in results:
                continue
            if call.id in ctx.paused_runs:
                state = ctx.paused_runs[call.id]
                paused = Paused(tuple(decode(state["pending"])), state=state)
                keys = [f"{call.id}/{one.id}" for one in paused.pending]
                if is_blocked or (keys and ctx.approvals.keys().isdisjoint(keys)):
                    still_paused[call.id] = paused
                    is_blocked = True
            decided = decision_on(ctx, call) if call.id in plan.approvals else approve
            if is_blocked or decided is None:
                is_blocked = True
                continue
            refused = refusal(ctx, call, decided)
            if refused is None:
                runnable.append(call)
                continue
            results[call.id] = refused
            node = ctx.run.node_of(call)
            if node is not None and node.is_running:  # it was started, so it counts
                ctx.run.in_flight.calls_run += 1
                node.fail(refused.content, ctx.run.ledger.clock)
            ctx.run.release(call)
        batches.append(tuple(runnable))
    return ctx.evolve(tool_results=results), tuple(filter(None, batches)), still_paused


def _waiting(ctx: Context) -> tuple[Context, tuple[PendingCall, ...]]:
    """The calls that wait, also in subagents; an earlier approval of one that may have run does not count."""
    in_flight = ctx.run.in_flight
    # Calls after one that waits, which a handle has cancelled before they began.
    ctx.run.release(*[call for call in ctx.plan.calls if call.id in in_flight.results])
    if in_flight.unknown:
        questions = {**ctx.plan.approvals, **in_flight.unknown}
        ctx = ctx.evolve(
            plan=dataclasses.replace(ctx.plan, approvals=questions),
            approvals={k: one for k, one in ctx.approvals.items() if k not in in_flight.unknown},
        )
    waiting: list[PendingCall] = []
    for call in ctx.plan.calls:
        question = ctx.plan.approvals.get(call.id)
        if call.id in in_flight.paused:
            pending = in_flight.paused[call.id].pending
            inner = [dataclasses.replace(one, id=f"{call.id}/{one.id}") for one in pending]
            waiting += [one for one in inner if one.id not in ctx.approvals]
        elif question is None or call.id in ctx.tool_results:
            continue
        elif decision_on(ctx, call) is None:
            waiting.append(PendingCall(call.id, call.name, dict(call.input or {}), question))
    return ctx, tuple(waiting)
