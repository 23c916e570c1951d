"""Context: all that the stages of an iteration see, and all that they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from treadle.limits import Budget, Limits
from treadle.messages import History, JSONDict, Response, ToolCall, ToolResult, Usage
from treadle.results import PendingCall, Reason
from treadle.run_state import RunState
from treadle.tools import Approval, Plan, Tool

_OF_LIMITS = Budget(Limits())
"""Stands for a budget of the context's own limits."""


class Decision(StrEnum):
    """What ends the run; without a decision it goes on."""

    DONE = "done"
    STOP = "stop"
    PAUSE = "pause"
    """Not ended, but put aside until somebody has decided something."""


@dataclass(frozen=True, eq=False)
class Context:
    """An immutable record that flows through the stages; a stage returns a changed copy.

    Args:
        messages: the conversation so far, without what this iteration adds until it is injected.
        tools: what the model may call, by name.
        response: the model's answer in this iteration.
        resolve_tool: resolves calls of tools that have no function; None where there is nothing to.
        iteration: the number of this iteration, from 1.
        limits: how much the run may take.
        state: the record of the run.
        runner: the table of calls in flight, with the counts of identical calls in this turn.
        has_listeners: whether anybody listens, and events are worth making.
        tool_calls: the calls of the response, ids made unique.
        plan: which of them run, and when.
        tool_results: the results so far, by id of the call.
        validation_errors: the violations of calls that make no sense, by id of the call.
        result_messages: the messages that this iteration added.
        decision: ends the run; None lets it go on.
        error: the reason, where the decision is to stop.
        output: the validated arguments of a terminal tool.
        guidance: what to tell the model in the next request, and only there.
        tool_calls_count: the tool calls that ran in this run so far.
        usage: the tokens of this run so far.
        memo: what stages remember from iteration to iteration, by the stage's name.
        started_at: when the run began, in seconds since the epoch.
        budget: what the run has used of its limits.
        approvals: what was decided of calls that waited, by id of the call.
        waiting: the calls that wait, where the decision is to pause.
        children: the paused runs of loops that are tools, by id of the call.
        trace: the names of the stages that this iteration has entered so far; it grows as it goes on.
    """

    messages: History
    tools: Mapping[str, Tool]
    response: Response
    limits: Limits
    state: RunState
    runner: Any = None
    resolve_tool: Any = None
    iteration: int = 1
    has_listeners: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    plan: Plan = field(default_factory=Plan)
    tool_results: Mapping[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    validation_errors: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]]
    )
    result_messages: tuple[JSONDict, ...] = ()
    decision: Decision | None = None
    error: Reason | None = None
    output: Any = None
    guidance: str | None = None
    tool_calls_count: int = 0
    usage: Usage = field(default_factory=Usage)
    memo: Mapping[str, Any] = field(default_factory=dict[str, Any])
    started_at: float = 0.0
    budget: Budget = field(default=_OF_LIMITS)
    approvals: Mapping[str, Approval] = field(default_factory=dict[str, Approval])
    waiting: tuple[PendingCall, ...] = ()
    children: Mapping[str, JSONDict] = field(default_factory=dict[str, JSONDict])
    trace: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.budget is _OF_LIMITS:
            made = Budget(self.limits)
            made.iterations, made.tool_calls = self.iteration, self.tool_calls_count
            made.usage, made.started_at = self.usage, self.started_at
            _set(self, "budget", made)

    @property
    def max_iterations(self) -> int:
        """The limit of iterations."""
        return self.limits.max_iterations

    @property
    def status(self) -> str:
        """``continue``, ``ok``, ``error`` or ``paused``."""
        return _STATUS[self.decision]

    def replace(self, **changes: Any) -> Context:
        """A copy with some fields changed.

        Raises:
            TypeError: a field that does not exist.
        """
        # dataclasses.replace would look at every field each time; this is one dict copied.
        values = {**self.__dict__, **changes}
        if len(values) > _FIELD_COUNT:
            unknown = ", ".join(sorted(changes.keys() - _FIELDS))
            raise TypeError(f"Context has no field {unknown}")
        copy = _new(Context)
        _set(copy, "__dict__", values)
        return copy

    def done(self, output: Any = None) -> Context:
        """Decide that the run is over, with the answer that is there."""
        return self.replace(decision=Decision.DONE, output=output)

    def stop(self, reason: Reason) -> Context:
        """Decide that the run is over without an answer."""
        return self.replace(decision=Decision.STOP, error=reason)

    def pause(self, waiting: tuple[PendingCall, ...]) -> Context:
        """Put the run aside. When it goes on, it enters the stage that says so once more.

        Args:
            waiting: what is to be decided.
        """
        return self.replace(decision=Decision.PAUSE, waiting=waiting)

    def remember(self, name: str, value: Any) -> Context:
        """Keep something for the next iterations; ``memo[name]`` has it."""
        return self.replace(memo={**self.memo, name: value})


_new, _set = object.__new__, object.__setattr__  # six times in an iteration: looked up once
_STATUS: Mapping[Decision | None, str] = {
    None: "continue",
    Decision.DONE: "ok",
    Decision.STOP: "error",
    Decision.PAUSE: "paused",
}
_FIELDS = frozenset(spec.name for spec in fields(Context))
_FIELD_COUNT = len(_FIELDS)
