"""`dispatch_tools`: runs the plan."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, TypeAlias

from treadle.codec import decode
from treadle.context import Context
from treadle.effects import Bounded, Parallel, Steps, Stopped
from treadle.messages import JSONDict, ToolCall, ToolResult
from treadle.pipeline import stage
from treadle.results import Paused, PendingCall
from treadle.run_state import RunNode
from treadle.stages._decisions import refusal
from treadle.stages._plan_calls import approval_questions, fits_budget, shown_again
from treadle.stages._run_call import run_call
from treadle.stages._shared_breaker import report_calls
from treadle.stages._validate_calls import check_call, invalid_call_text
from treadle.tools import Learned, approve

Batches: TypeAlias = tuple[tuple[ToolCall, ...], ...]


@stage(requires=("plan",), provides=("tool_results",))
def dispatch_tools(ctx: Context) -> Steps[Context]:
    """Run the planned calls, batch after batch, those of one batch at the same time.

    Every call gets a result, even if its tool raises, is cancelled, or reaches a time limit. A call that fails
    does not affect the others. If a call needs approval, the calls before it run, and the run pauses.
    """
    if not ctx.plan.batches or ctx.result_messages:  # the answers to the calls are in the history
        return ctx
    ctx = _admitted(ctx)
    run, plan = ctx.run, ctx.plan
    batches, calls = plan.batches, plan.calls
    in_flight = run.in_flight
    if in_flight.results:  # calls of this iteration ran before
        ctx = ctx.evolve(tool_results={**in_flight.results, **ctx.tool_results})
    still_paused: Mapping[str, Paused] = {}
    if plan.approvals or ctx.paused_runs or ctx.tool_results:
        ctx, batches, still_paused = _apply_decisions(ctx)
        calls = tuple(itertools.chain.from_iterable(batches))
    nodes, new = _nodes(ctx, calls)
    in_flight.renew()
    run.dispatched = (*run.dispatched, ctx)
    in_flight.start(new)
    if len(new) < len(calls):
        in_flight.restart(calls)
    for batch in batches:
        running = (
            run_call(ctx, batch[0], nodes[batch[0].id])
            if len(batch) == 1
            else _together(ctx, batch, nodes)
        )
        yield from running if in_flight.stop is None else _stoppable(ctx, running)
        if in_flight.paused or in_flight.unknown:
            break
    in_flight.paused.update(still_paused)
    before = ctx.tool_results  # they keep their order, and the edits of stages
    ctx = ctx.evolve(tool_results={**before, **in_flight.results, **before})
    if plan.approvals or in_flight.paused or in_flight.unknown:
        ctx = _with_questions(ctx)
        waiting = _pending(ctx)
        if (
            waiting or in_flight.paused
        ):  # a stage of a subagent may have paused it for another reason
            return ctx.pause(waiting)
    if run.breaker is not None:
        yield from report_calls(ctx, plan.calls)
    return _concluded(ctx)


def _with_questions(ctx: Context) -> Context:
    """The context with the questions about calls that may have run already; an earlier approval does not count."""
    unknown = ctx.run.in_flight.unknown
    if not unknown:
        return ctx
    plan = dataclasses.replace(ctx.plan, approvals={**ctx.plan.approvals, **unknown})
    approvals = {key: one for key, one in ctx.approvals.items() if key not in unknown}
    return ctx.evolve(plan=plan, approvals=approvals)


def _admitted(ctx: Context) -> Context:
    """Check the calls that a stage has planned and dispatches itself: they are valid, and within the budget."""
    reserved = ctx.run.reserved
    for call in ctx.plan.calls:
        if reserved.get(call.id) is not call and call.id not in ctx.tool_results:
            return _checked(ctx)
    return ctx


def _checked(ctx: Context) -> Context:
    run, results = ctx.run, dict(ctx.tool_results)
    calls = {call.id: call for call in ctx.tool_calls}
    batches: list[tuple[ToolCall, ...]] = []
    for batch in ctx.plan.batches:
        admitted: list[ToolCall] = []
        for call in batch:
            if run.reserved.get(call.id) is not call and call.id not in results:
                run.release(call)
                checked, problems = check_call(ctx, call)
                calls[call.id] = checked
                if problems:
                    text = invalid_call_text(call, problems)
                    results[call.id] = ToolResult(call.id, text, True, "invalid")
                    continue
                refused = fits_budget(ctx, checked)
                if refused is not None:
                    results[call.id] = refused
                    continue
                call = checked  # noqa: PLW2901
            admitted.append(call)
        batches.append(tuple(admitted))
    plan = dataclasses.replace(ctx.plan, batches=tuple(batches))
    # Questions about calls that may have run already are no questions of their tools.
    questions = {**ctx.plan.approvals, **approval_questions(ctx, plan.calls)}
    plan = dataclasses.replace(plan, approvals=questions)
    return ctx.evolve(tool_calls=tuple(calls.values()), tool_results=results, plan=plan)


def _stoppable(ctx: Context, running: Steps[Any]) -> Steps[None]:
    """Run the calls of a batch until a handle cancels them."""
    try:
        # After a batch that was cancelled, the next ends at once.
        yield Bounded(running, until=ctx.run.in_flight.stop)
    except Stopped:
        ctx.run.in_flight.cancel_all()  # again: a replay has only the effects, not the handle
        ctx.run.release_new(ctx.plan.calls)


def _together(
    ctx: Context, batch: tuple[ToolCall, ...], nodes: Mapping[str, RunNode]
) -> Steps[None]:
    calls = [run_call(ctx, call, nodes[call.id]) for call in batch]
    yield Parallel(calls, ctx.limits.max_parallel_calls)


def _nodes(
    ctx: Context, calls: tuple[ToolCall, ...]
) -> tuple[dict[str, RunNode], tuple[ToolCall, ...]]:
    """The nodes of calls in the run state, and the calls whose nodes are new.

    A call that continues after a pause has one already, and was counted.
    """
    iteration = ctx.run.state.current_node
    nodes: dict[str, RunNode] = {}
    created, step_index = ctx.run.clock, 0
    if iteration is not None:
        created, step_index = iteration.created_at, iteration.step_index
        if iteration.tool_calls:
            nodes = {node.group_id or "": node for node in iteration.tool_calls}
            calls = tuple(call for call in calls if call.id not in nodes)
    agent_name = ctx.run.state.agent_name
    for call in calls:
        nodes[call.id] = node = RunNode(
            agent_name, step_index, "tool", call.name, call.id, created_at=created
        )
        if iteration is not None:
            iteration.tool_calls.append(node)
    return nodes, calls


def _concluded(ctx: Context) -> Context:
    """Record what the calls returned, and answer the duplicates of a batch with the result of the first."""
    plan, results = ctx.plan, ctx.tool_results
    calls = plan.calls
    learned: list[tuple[str, str, bool]] = []
    has_changed, outdated, writes, has_polled = False, 0, 0, False
    for call in calls:
        result = results.get(call.id)
        if result is not None and result.status in _RAN:
            tool = ctx.tools.get(call.name)
            if tool is None or tool.may_only_write:  # a resolver runs it, or it has no such option
                writes += 1
            else:
                writes += not tool.read_only
                has_polled |= tool.volatile
                # A tool that must not run next to others may have changed what they return.
                if not tool.parallel_safe and not tool.read_only and not result.is_error:
                    has_changed, outdated = True, len(learned)
            learned.append((call.fingerprint, result.content, result.is_error))
    if learned:
        facts = _WROTE if writes else _READ
        if writes > 1 or has_changed or has_polled:
            facts = Learned(has_changed, outdated, writes, has_polled)
        ctx.run.result_cache.learn(ctx.iteration, learned, facts)
    if len(learned) < len(calls) and any(_was_cut_short(ctx, call) for call in calls):
        ctx.run.result_cache.note_write()
    if not plan.duplicates:
        return ctx
    answers = {
        call.id: _duplicate(ctx, call, results.get(plan.duplicates[call.id]))
        for call in ctx.tool_calls
        if call.id in plan.duplicates and call.id not in results  # a stage may have answered it
    }
    return ctx.evolve(tool_results={**results, **answers})


_RAN = frozenset({"done", "timeout"})
_CUT_SHORT = frozenset({"cancelled", "unknown"})
_READ, _WROTE = Learned(), Learned(writes=1)


def _was_cut_short(ctx: Context, call: ToolCall) -> bool:
    """Whether a call that is not read-only may have changed something, and has no result."""
    result, tool = ctx.tool_results.get(call.id), ctx.tools.get(call.name)
    is_read_only = tool is not None and tool.read_only
    return result is not None and result.status in _CUT_SHORT and not is_read_only


def _duplicate(ctx: Context, call: ToolCall, first: ToolResult | None) -> ToolResult:
    if first is None:
        return ToolResult(
            call.id, "Not run: the identical call of this response was not.", True, "skipped"
        )
    is_evidence = ctx.run.dedupe_of(ctx.tools.get(call.name)) == "evidence"
    text = (
        f"Not run twice: this response has an identical call. {_BOTH[is_evidence]} "
        f"Its result:\n{shown_again(first.content)}"
    )
    return ToolResult(call.id, text, first.is_error, "suppressed")


_BOTH = {
    True: "If you need it twice, call it again in your next response.",
    False: "Only a tool declared volatile=True would run twice.",
}


# Approvals


def _apply_decisions(ctx: Context) -> tuple[Context, Batches, dict[str, Paused]]:
    """Decide which calls of a plan may run, if some of them need approval.

    In the order of the request, everything before the first undecided call may run.

    Args:
        ctx: has the plan, the results so far and the decisions.

    Returns:
        The context with the answers to denied calls; the batches; and the paused subagents that stay paused,
        by id of the call.
    """
    plan, results = ctx.plan, dict(ctx.tool_results)
    batches: list[tuple[ToolCall, ...]] = []
    still_paused: dict[str, Paused] = {}
    is_blocked = False
    for batch in plan.batches:
        runnable: list[ToolCall] = []
        for call in batch:
            if call.id in results:
                continue
            if call.id in ctx.paused_runs and (is_blocked or not _has_decision(ctx, call.id)):
                still_paused[call.id] = _paused(ctx.paused_runs[call.id])
                is_blocked = True
            if is_blocked:
                continue
            decided = ctx.approvals.get(call.id) if call.id in plan.approvals else approve
            if decided is None:
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
                node.fail(refused.content, ctx.run.clock)
            else:
                ctx.run.release(call)
        if runnable:
            batches.append(tuple(runnable))
    return ctx.evolve(tool_results=results), tuple(batches), still_paused


def _has_decision(ctx: Context, call_id: str) -> bool:
    """Whether there is a decision that the subagent of a call waits for."""
    waiting = [pending["id"] for pending in ctx.paused_runs[call_id]["pending"]]
    return not waiting or any(f"{call_id}/{inner}" in ctx.approvals for inner in waiting)


def _paused(state: JSONDict) -> Paused:
    return Paused(tuple(decode(state["pending"])), state=state)


def _pending(ctx: Context) -> tuple[PendingCall, ...]:
    """The calls that wait for approval: those of the plan, and those of its subagents."""
    waiting: list[PendingCall] = []
    for call in ctx.plan.calls:
        paused = ctx.run.in_flight.paused.get(call.id)
        if paused is not None:
            waiting.extend(
                PendingCall(f"{call.id}/{inner.id}", inner.name, inner.arguments, inner.question)
                for inner in paused.pending
                if f"{call.id}/{inner.id}" not in ctx.approvals
            )
        elif call.id not in ctx.tool_results and call.id not in ctx.approvals:
            question = ctx.plan.approvals.get(call.id)
            if question is not None:
                waiting.append(PendingCall(call.id, call.name, dict(call.input or {}), question))
    return tuple(waiting)
