"""Subagents as child workflows: each call of a subagent is a separate workflow, with a separate history."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treadle.codec import decode, encode
from treadle.context import Context, RunServices
from treadle.durable.temporal.results import result_of
from treadle.effects import Call, Steps
from treadle.limits import Budget
from treadle.loop.pause import PausedRun, decisions_within
from treadle.loop.subagent import Subagent, attach, refusal, value_of
from treadle.messages import JSONDict, ToolCall, copy_json
from treadle.results import Result
from treadle.run_state import RunState
from treadle.tools import Approval, Tool

if TYPE_CHECKING:
    from treadle.loop.loop import Loop

CHILD = "child_workflow"
"""The label of the call that is a child workflow; the key is the id of the call."""


@dataclass(slots=True, eq=False)
class Child:
    """A child workflow to start.

    Args:
        id: the id of the workflow.
        given: its input.
        late: what it returned although it was cancelled; None if it returned nothing.
    """

    id: str
    given: JSONDict
    late: JSONDict | None = None


class ChildWorkflow:
    """Makes the steps of a call that is a child workflow; takes the place of a `Subagent`.

    Args:
        subagent: the subagent.
        path: the name of its loop, for the workers.
    """

    def __init__(self, subagent: Subagent, path: str) -> None:
        self._subagent = subagent
        self._path = path

    def __call__(self, ctx: Context, call: ToolCall) -> Steps[Any]:
        """Make the steps of one call.

        Args:
            ctx: the context of the run that makes the call.
            call: the call.
        """
        run, paused = ctx.run, ctx.paused_runs.get(call.id)
        too_deep = refusal(ctx, call)
        if too_deep is not None:
            return too_deep
        child_id = f"{run.state.run_id}/{call.id}"
        given: JSONDict = {"loop": self._path, "outer": _outer(run, call)}
        if paused is None:
            state = RunState(self._subagent.name_for(call), child_id)
            given["messages"] = copy_json(self._subagent.messages_of(call))
        else:
            decisions = decisions_within(call.id, ctx.approvals, paused)
            state = self.resumption(paused, decisions).run_state
            given["paused"] = paused
            given["decisions"] = {key: one.as_json() for key, one in decisions.items()}
            child_id += f"/{paused['pauses']}"  # each part of a run that pauses is a workflow
        given["name"] = state.agent_name
        attach(run, call, state)
        child = Child(child_id, given)
        try:
            made = yield Call(_start, label=CHILD, key=call.id, about=child)
        except GeneratorExit:
            raise
        except BaseException:
            if child.late is not None:
                self._take(run, call, child.late)
            raise
        return value_of(self._take(run, call, made), call)

    def _take(self, run: RunServices, call: ToolCall, made: Mapping[str, Any]) -> Result:
        """Take the result of a child workflow, its state, and what it used."""
        result = result_of(made["outcome"], self._subagent.loop)
        attach(run, call, result.run)
        run.budget.add(decode(made["used"]))
        return result

    def resumption(self, state: JSONDict, decisions: Mapping[str, Approval]) -> PausedRun:
        """Check the paused run of a call; see `Subagent.resumption`."""
        return self._subagent.resumption(state, decisions)


def _start() -> None:
    raise RuntimeError("unreachable: only a workflow performs this call")


def _outer(run: RunServices, call: ToolCall) -> JSONDict:
    """What a child workflow has to know of the run that starts it."""
    return {
        "run_id": run.state.run_id,
        "call_id": call.id,
        "has_listeners": run.has_listeners,
        "streams_to_user": run.streams_to_user,
        "budgets": [
            {
                "limits": encode(dataclasses.replace(one.limits, unmeasured=one.unmeasured)),
                "used": encode(one.used()),
                "names": [one.name, one.called],
                "started_at": one.started_at,
            }
            for one in run.budget.chain()
        ],
    }


def outer_context(outer: Mapping[str, Any], loops: list[Loop[Any]]) -> RunServices:
    """The part of the context of the outer run that a subagent sees.

    Args:
        outer: what `ChildWorkflow` wrote of it.
        loops: the loops of the outer runs, the nearest first.
    """
    budget: Budget | None = None
    for one in reversed(outer["budgets"]):
        budget = Budget(decode(one["limits"]), budget, *one["names"])
        budget.restore(decode(one["used"]))
        budget.started_at = one["started_at"]
    if budget is None:
        raise AssertionError("unreachable: every run has a budget")
    costs = (loop.settings.limits.cost_of for loop in loops)
    return RunServices(
        state=RunState("", outer["run_id"]),
        budget=budget,
        has_listeners=outer["has_listeners"],
        streams_to_user=outer["streams_to_user"],
        cost_of=next((cost_of for cost_of in costs if cost_of is not None), None),
    )


def with_child_workflows(tools: Mapping[str, Tool], path: str) -> list[Tool]:
    """The tools of a loop, each subagent as a child workflow.

    Args:
        tools: the tools, by name.
        path: the name of the loop, for the workers.
    """
    return [
        dataclasses.replace(tool, steps=ChildWorkflow(tool.steps, f"{path}/{tool.name}"))
        if isinstance(tool.steps, Subagent)
        else tool
        for tool in tools.values()
    ]


def has_subagents(tools: Mapping[str, Tool]) -> bool:
    """Whether some of the tools are subagents."""
    return any(isinstance(tool.steps, Subagent) for tool in tools.values())
