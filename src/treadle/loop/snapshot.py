"""All that a paused run needs to go on, as plain values; and a context made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from treadle.stages import fingerprint
from treadle.types import (
    Approval,
    Context,
    HeldReason,
    History,
    JSONDict,
    OptionError,
    PendingCall,
    Plan,
    PlanReason,
    Response,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    sendable_json,
)

if TYPE_CHECKING:
    from treadle.loop.iteration import Iterations

WAITING = "Not run yet: the run waits for somebody's approval."


def snapshot(turn: Iterations, now: float) -> JSONDict:
    """Take down how a paused run stands.

    Args:
        turn: the run.
        now: seconds since the epoch.
    """
    ctx = turn.context
    children = {call_id: paused.state for call_id, paused in turn.runner.paused.items()}
    state: JSONDict = {
        "pauses": turn.pauses,
        "paused_at": now,
        "elapsed": now - turn.budget.started_at,
        "iteration": turn.iteration,
        "pending": [_pending_as_json(one) for one in ctx.waiting],
        "messages": ctx.messages.to_list(),
        "response": _response_as_json(ctx.response),
        "tool_calls": [_call_as_json(call) for call in ctx.tool_calls],
        "plan": _plan_as_json(ctx.plan),
        "results": {
            call_id: [result.content, result.is_error, result.status]
            for call_id, result in ctx.tool_results.items()
        },
        "validation_errors": {k: list(v) for k, v in ctx.validation_errors.items()},
        "approvals": {call_id: asdict(approval) for call_id, approval in ctx.approvals.items()},
        "children": children,
        "memo": dict(ctx.memo),
        "tool_calls_count": ctx.tool_calls_count,
        "count_before": turn.count_before,
        "unheard": list(turn.unheard),
        "trace": list(ctx.trace),
        "budget": turn.budget.as_json(),
        "detector": turn.detector.as_json(),
        "counts": dict(turn.runner.counts),
        "evidence": turn.runner.evidence.as_json(),
        "run": turn.state.as_json(),
    }
    return state


def _pending_as_json(one: PendingCall) -> JSONDict:
    return {
        "id": one.id,
        "name": one.name,
        "arguments": dict(one.arguments),
        "question": one.question,
    }


def _plan_as_json(plan: Plan) -> JSONDict:
    return {
        "batches": [[call.id for call in batch] for batch in plan.batches],
        "reason": plan.reason.value,
        "held": {call_id: reason.value for call_id, reason in plan.held.items()},
        "twins": dict(plan.twins),
        "approvals": dict(plan.approvals),
    }


def restored_context(
    state: Mapping[str, Any], decisions: Mapping[str, Approval], tools: Mapping[str, Tool]
) -> Callable[[Context], Context]:
    """Make what puts a new run's context where the old one stood.

    Args:
        state: a snapshot.
        decisions: by id of the call.
        tools: those of the loop that goes on.

    Raises:
        OptionError: a call was edited to arguments that its tool does not take.
    """
    calls = {told["id"]: _call_from_json(told) for told in state["tool_calls"]}
    approvals = {key: Approval(**told) for key, told in state["approvals"].items()}
    approvals |= decisions
    for call_id, decision in decisions.items():
        if decision.arguments is not None and call_id in calls:
            calls[call_id] = _edited(calls[call_id], decision.arguments, tools)
    told_plan = state["plan"]
    plan = Plan(
        tuple(tuple(calls[call_id] for call_id in batch) for batch in told_plan["batches"]),
        PlanReason(told_plan["reason"]),
        {call_id: HeldReason(reason) for call_id, reason in told_plan["held"].items()},
        told_plan["twins"],
        told_plan["approvals"],
    )
    facts: dict[str, Any] = {
        "messages": History(state["messages"]),
        "response": _response_from_json(state["response"]),
        "iteration": state["iteration"],
        "tool_calls": tuple(calls.values()),
        "plan": plan,
        "tool_results": {k: ToolResult(k, *told) for k, told in state["results"].items()},
        "validation_errors": {k: tuple(v) for k, v in state["validation_errors"].items()},
        "approvals": approvals,
        "children": state["children"],
        "memo": state["memo"],
        "tool_calls_count": state["tool_calls_count"],
        "usage": Usage.from_json(state["budget"]["usage"]),
        "trace": tuple(state["trace"]),
    }
    return lambda context: context.replace(**facts)


def _edited(call: ToolCall, arguments: Mapping[str, Any], tools: Mapping[str, Tool]) -> ToolCall:
    """The call with other arguments; the text of it stays the model's own."""
    tool = tools.get(call.name)
    told_apart = arguments
    if tool is not None:
        problems, arguments = tool.checked(arguments)
        if problems:
            raise OptionError(f"decisions[{call.id!r}]: edit: {'; '.join(problems)}")
        told_apart = tool.told_apart_by(arguments)
    print_ = fingerprint(call.name, told_apart)
    return dataclasses.replace(call, input=dict(arguments), fingerprint=print_)


def _call_as_json(call: ToolCall) -> JSONDict:
    return {
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "input": None if call.input is None else dict(call.input),
        "fingerprint": call.fingerprint,
        "extra": sendable_json(call.extra),
    }


def _call_from_json(told: Mapping[str, Any]) -> ToolCall:
    return ToolCall(**told)


def _response_as_json(response: Response) -> JSONDict:
    told = {spec.name: getattr(response, spec.name) for spec in dataclasses.fields(response)}
    return {
        **told,
        "tool_calls": [_call_as_json(call) for call in response.tool_calls],
        "usage": None if response.usage is None else response.usage.as_json(),
        "extra": sendable_json(response.extra),
    }


def _response_from_json(told: Mapping[str, Any]) -> Response:
    usage = told["usage"]
    facts: dict[str, Any] = {
        **told,
        "tool_calls": tuple(map(_call_from_json, told["tool_calls"])),
        "usage": None if usage is None else Usage.from_json(usage),
    }
    return Response(**facts)
