"""The data that flow through the stages: the fields of a context, and the properties derived from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from reprlib import recursive_repr
from typing import Any, Self

from treadle.context.request import Request, forced_tool
from treadle.context.services import Note, RunServices
from treadle.limits import Limits
from treadle.messages import NOTHING, History, JSONDict, Response, ToolCall, ToolResult, Usage
from treadle.model import ModelClient
from treadle.results import PendingCall, Reason
from treadle.run_state import RunState
from treadle.shown import shown_fields
from treadle.tools import Approval, Plan, Resolver, Tool


class Decision(StrEnum):
    """What ends the run; without a decision it continues."""

    DONE = "done"
    STOP = "stop"
    PAUSE = "pause"
    """The run waits for the decision of a person."""


@dataclass(frozen=True, eq=False, repr=False)
class Iteration:
    """The fields of a `treadle.Context`, which describes them and adds the verbs of stages."""

    messages: History
    tools: Mapping[str, Tool] = field(default_factory=lambda: NOTHING)
    response: Response = field(default_factory=lambda: Response(extra=NOTHING))
    run: RunServices = field(default_factory=RunServices)
    iteration: int = 1
    tool_calls: tuple[ToolCall, ...] = ()
    plan: Plan = field(default_factory=Plan)
    tool_results: Mapping[str, ToolResult] = field(default_factory=lambda: NOTHING)
    validation_errors: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)
    result_messages: tuple[JSONDict, ...] = ()
    decision: Decision | None = None
    error: Reason | None = None
    output: Any = None
    guidance: str | None = None
    memo: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    approvals: Mapping[str, Approval] = field(default_factory=lambda: NOTHING)
    waiting: tuple[PendingCall, ...] = ()
    paused_runs: Mapping[str, JSONDict] = field(default_factory=lambda: NOTHING)
    trace: Sequence[str] = ()
    request_changes: Mapping[str, Any] = field(default_factory=lambda: NOTHING, repr=False)
    is_asked: bool = False
    parsed: Response | None = None
    answered_by: ModelClient | None = None
    accepted: Any = None
    notes: tuple[Note, ...] = field(default=(), repr=False)

    @property
    def state(self) -> RunState:
        """The status of the run, its iterations and calls."""
        return self.run.state

    @property
    def deps(self) -> Any:
        """The object that the caller passed as ``deps=``."""
        return self.run.deps

    @property
    def instructions(self) -> str | None:
        """The system message of every request of the run; None if there is none."""
        given = self.run.instructions
        if not callable(given):
            return given
        made: Any = given(self)
        if made is not None and not isinstance(made, str):
            raise TypeError(
                f"instructions: expected the function to return a text or None, got {type(made).__name__}"
            )
        return made

    @property
    def limits(self) -> Limits:
        """The limits of the run."""
        return self.run.budget.limits

    @property
    def usage(self) -> Usage:
        """The tokens that the run has used so far."""
        return self.run.budget.usage

    @property
    def tool_calls_count(self) -> int:
        """The number of tool calls that have run so far in the run."""
        return self.run.in_flight.calls_run

    @property
    def max_iterations(self) -> int:
        """The limit of iterations."""
        return self.run.budget.limits.max_iterations

    @property
    def resolve_tool(self) -> Resolver | None:
        """The resolver, which runs the calls of tools without a function."""
        return self.run.resolver

    @property
    def is_injected(self) -> bool:
        """Whether the response and the results of this iteration are in ``messages``."""
        return bool(self.result_messages)

    @property
    def stage(self) -> str:
        """The name of the current stage; empty before the first."""
        return self.trace[-1] if self.trace else ""

    @property
    def status(self) -> str:
        """``continue``, ``ok``, ``error`` or ``paused``."""
        statuses = {"done": "ok", "stop": "error", "pause": "paused"}
        return statuses.get(self.decision or "", "continue")

    @recursive_repr("...")
    def __repr__(self) -> str:
        return shown_fields(self, (spec.name for spec in fields(self) if spec.repr))

    @property
    def request(self) -> Request:
        """The request of this iteration, with all changes so far.

        It is derived from the context each time it is read, so it includes earlier edits of ``messages`` and
        ``tools``.
        """
        model = self.run.model
        options: Mapping[str, Any] = {} if model is None else model.options
        instructions = None if self.run.instructions is None else self.instructions
        changes: Mapping[str, Any] = self.request_changes
        catalog = self.run.catalog
        if catalog is None:
            names = tuple(self.tools)
        else:  # a tool that is forced has to be offered as well
            forced = forced_tool(changes.get("tool_choice") or options.get("tool_choice"))
            names = catalog.offered(self.tools, (*self.run.ledger.found, forced))
        output, budget = self.run.output, self.run.budget
        if output is not None and (budget.is_finishing or output.is_last_attempt(self.memo)):
            offered = changes.get("tools", self.tools)
            changes = {"tool_choice": output.tool_choice(offered), **changes}
        if not changes:
            return Request(self.messages, names, None, options, instructions)
        if "tools" in changes:  # a later edit may have removed some of them
            names = tuple(name for name in changes["tools"] if name in self.tools)
        return Request(
            changes.get("messages", self.messages),
            names,
            changes.get("tool_choice"),
            {**options, **changes.get("options", NOTHING)},
            changes.get("instructions", instructions),
        )

    def evolve(self, **changes: Any) -> Self:
        """A copy with some fields changed, unchecked. A stage of a loop uses the verbs of its context instead."""
        # dataclasses.replace would look at every field each time; this is one dict copied.
        copy = _new(self.__class__)
        _set_dict(copy, {**self.__dict__, **changes})
        return copy

    def noted(self, subject: Any, outcome: Any) -> Self:
        """A copy with a note, which is emitted if the stage does not discard the copy; see `Note`."""
        return self.evolve(notes=(*self.notes, Note(subject, outcome)))

    def begin(
        self, iteration: int, trace: Sequence[str], request_changes: Mapping[str, Any]
    ) -> Self:
        """A copy for another iteration; the pipeline appends the names of its stages to ``trace``."""
        copy = _new(self.__class__)
        begun = {"iteration": iteration, "trace": trace, "request_changes": request_changes}
        _set_dict(copy, {**self.__dict__, **_UNASKED, **begun})
        return copy


_new = object.__new__  # used several times in an iteration, like the next one
_set_dict: Callable[[Iteration, dict[str, Any]], None] = vars(Iteration)["__dict__"].__set__
_KEPT = ("messages", "tools", "run", "decision", "error", "output", "guidance", "memo", "waiting")
_UNASKED = {name: one for name, one in vars(Iteration(History())).items() if name not in _KEPT}
"""The fields of an iteration in which the model was not asked yet; all iterations share the values."""
_OF_CALLS = ("tool_calls", "parsed", "plan", "tool_results", "validation_errors", "result_messages")
NO_CALLS: Mapping[str, Any] = {name: _UNASKED[name] for name in _OF_CALLS}
"""The fields of an iteration whose response has no calls yet."""
