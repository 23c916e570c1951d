"""The services of a run, and the ledger of what changes during it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from reprlib import recursive_repr
from typing import Any

from treadle.limits import Budget, Limits
from treadle.messages import NOTHING, JSONDict, Response, ToolCall, ToolResult
from treadle.model import ModelClient, ModelRequest
from treadle.run_state import RunNode, RunNodeStatus, RunState
from treadle.shown import shown_fields
from treadle.tools import (
    Catalog,
    CircuitBreaker,
    Locks,
    OutputContract,
    Repeats,
    Resolver,
    Tool,
    ToolCallTable,
)


@dataclass(slots=True, eq=False)
class Note:
    """An action of a stage, until it is emitted as an event: a stage that is a plain function emits none.

    It is a call with the result that the stage reported; messages with the response that the stage gave; or the
    name of a stage with the repairs of the history that it broke.
    """

    subject: Any
    outcome: Any
    is_reported: bool = False


def uses_of(tool: Tool | None) -> int:
    """The uses of its tool that a call is: 1 if the tool has ``max_uses``."""
    return int(tool is not None and tool.max_uses is not None)


@dataclass(slots=True, eq=False)
class EventCounter:
    """The number of the latest event of a run. It does not refer to the run, which would be a cycle."""

    latest: int = 0

    def after_pause(self) -> int:
        """The number of the `RunFinished` that reports a pause, which is the next event; 0 without listeners."""
        return self.latest and self.latest + 1


@dataclass(slots=True, eq=False)
class Ledger:
    """What changes during a run, and is neither its budget nor its status; ``ctx.run.ledger``.

    Mappings are by the name of a tool, or by the id of a call.
    """

    event_counter: EventCounter = field(default_factory=EventCounter)  # all observers share it
    clock: float = 0.0  # the latest known time, in seconds since the epoch
    found: dict[str, None] = field(default_factory=dict[str, None])  # by a search, in order
    # The planned calls, which the budget has counted, each with the uses of its tool that were counted.
    reserved: dict[str, tuple[ToolCall, int]] = field(default_factory=dict[Any, Any])
    # Of a resumed run: the tools as a person saw them who decided on calls.
    seen_tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    # The contexts whose calls ran, until a stage's context is known to contain these calls.
    dispatched: tuple[Any, ...] = ()
    # Unlike the notes of a context, these hold if a stage discards its context: the calls ran.
    notes: list[Note] = field(default_factory=list[Note])
    # The calls whose `CallNotRun` was emitted, by iteration and id.
    refused: set[tuple[int, str]] = field(default_factory=set[Any])
    # The calls whose outcome the shared circuit breaker may not know yet; those it knows, by iteration and id.
    unsettled: list[ToolCall] = field(default_factory=list[ToolCall])
    settled: set[tuple[int, str]] = field(default_factory=set[Any])
    failures: dict[str, BaseException] = field(default_factory=dict[Any, Any])  # of this iteration
    last_response: Response | None = None  # that was put in the history
    interrupted_request: tuple[int, ModelRequest] | None = None  # and the number of its iteration
    # The messages and tools of the latest request, and their tokens, for a limit of tokens or cost.
    estimated_prompt: tuple[Sequence[JSONDict], tuple[str, ...], int] = ((), (), 0)
    # The tools in the form in which they are offered.
    payloads: dict[str, tuple[Tool, JSONDict]] = field(default_factory=dict[Any, Any])

    def advance(self, at: float) -> None:
        """Set the clock to a time, unless a later time is known: parallel calls end in any order."""
        self.clock = max(self.clock, at)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunServices:
    """The services of a run, and its ledger; ``ctx.run``. They are the same objects until the run is forked."""

    state: RunState = field(default_factory=RunState)
    budget: Budget = field(default_factory=lambda: Budget(Limits()))
    in_flight: ToolCallTable = field(default_factory=ToolCallTable)
    repeats: Repeats = field(default_factory=Repeats)
    ledger: Ledger = field(default_factory=Ledger)
    locks: Locks = field(default_factory=Locks)
    # The keys that the call of a subagent holds, each with the name under which it is held.
    held_locks: Mapping[str, str] = field(default_factory=dict[str, str])
    breaker: CircuitBreaker | None = None  # that runs share
    resolver: Resolver | None = None
    catalog: Catalog | None = None  # None offers all tools
    model: ModelClient | None = None  # None in contexts that tests construct
    instructions: str | Callable[[Any], str | None] | None = None
    has_listeners: bool = False  # without them, no events are made
    streams_to_user: bool = False  # the caller may show the text of a response as it arrives
    deps: Any = field(default=None, repr=False)
    asks_unknown: bool = False  # a person about a call that may have run already, not the model
    output: OutputContract | None = None  # what the run has to end with; None is a text
    cost_of: Callable[[Response], float | None] | None = None  # in US dollars
    # Raises if a value that a stage keeps, by its name, cannot be carried on.
    check_kept: Callable[[str, Any], object] | None = None
    # The fields that each stage provides, by its full name; empty in contexts that tests construct.
    provides: Mapping[str, frozenset[str]] = field(default_factory=lambda: NOTHING)

    def reserve(self, call: ToolCall, uses: int = 0) -> None:
        """Reserve the budget of a call that is planned, and its uses of its tool; see `uses_of`."""
        self.budget.reserve(call.name, 1, uses)
        self.ledger.reserved[call.id] = call, uses

    def release(self, *calls: ToolCall) -> None:
        """Release the budget of those planned calls that have not begun, and will not."""
        for call in calls:
            node = self.node_of(call)
            is_new = node is None or node.status is RunNodeStatus.INIT
            reserved = self.ledger.reserved.pop(call.id, None) if is_new else None
            if reserved is not None:
                self.budget.reserve(call.name, -1, -reserved[1])
                if self.breaker is not None:
                    self.ledger.unsettled.append(call)

    def release_idle(self) -> None:
        """Release all calls that have not begun: none will. A stage may have discarded their plan."""
        if not self.ledger.reserved.keys() <= self.in_flight.results.keys():
            self.release(*[call for call, _ in self.ledger.reserved.values()])

    def count_response(self, response: Response) -> None:
        """Count the usage of a response, in the budget and in the node of the iteration."""
        usage, nodes = response.usage, self.state.nodes
        self.state.record_usage(usage)
        self.budget.record_response(response)
        if nodes:
            node = nodes[-1]
            node.usage = usage if node.usage is None else node.usage.plus(usage)
            node.asked += ((response.times, usage, response.model, response.provider),)

    def node_of(self, call: ToolCall) -> RunNode | None:
        """The node of a call of the current iteration; None if it was not dispatched. A pause keeps it."""
        current = self.state.current_node
        nodes = () if current is None else current.tool_calls
        return next((node for node in nodes if node.group_id == call.id), None)

    def new_node(self, name: str, call_id: str, outer: RunNode | None = None) -> RunNode:
        """Make the node of a call of the current iteration, or of a step of another call."""
        state, index, at = self.state, 0, self.ledger.clock
        if outer is None and state.nodes:
            outer = state.nodes[-1]
        if outer is not None:
            index, at = outer.step_index, outer.created_at
        node = RunNode(state.agent_name, index, "tool", name, call_id, created_at=at)
        if outer is not None:
            outer.tool_calls.append(node)
        return node

    def record(self, call: ToolCall, node: RunNode, result: ToolResult, at: float) -> None:
        """Record the end of a call."""
        self.in_flight.running.pop(call.id, None)  # a thread may have cancelled it as it ended
        self.in_flight.results[call.id] = result
        if result.status == "timeout":
            node.timeout(at)
        elif result.is_error:
            node.fail(result.content, at)
        else:
            node.succeed(at=at)

    def has_run(self, call: ToolCall) -> bool:
        """Whether a call of the current iteration was started, here or before a pause."""
        node = self.node_of(call)
        is_started = node is not None and node.status is not RunNodeStatus.INIT
        return is_started or call.id in self.in_flight.results

    @recursive_repr("...")
    def __repr__(self) -> str:
        return shown_fields(self, (spec.name for spec in fields(self) if spec.repr))
