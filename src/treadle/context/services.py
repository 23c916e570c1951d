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


class EventCounter:
    """The number of the latest event of a run. It does not refer to the run, which would be a cycle."""

    __slots__ = ("latest",)

    def __init__(self, latest: int = 0) -> None:
        self.latest = latest

    def after_pause(self) -> int:
        """The number of the `RunFinished` that reports a pause, which is the next event; 0 without listeners."""
        return self.latest and self.latest + 1


@dataclass(slots=True, eq=False)
class Ledger:
    """What changes during a run, and is neither its budget nor its status; ``ctx.run.ledger``.

    Args:
        event_counter: numbers the events that the observers receive; they share it.
        clock: the latest known time of the run, such as the end of a call, in seconds since the epoch.
        found: the names of the tools that a search has found and that are offered from then on, in order.
        reserved: the planned calls of this iteration, which the budget has counted, by id; each with the uses of
            its tool that were counted.
        seen_tools: the tools of a resumed run: of a call that waited, a person saw this one.
        dispatched: the contexts whose calls ran, until a stage's context is known to contain these calls.
        notes: the results that stages reported, until they are emitted as events. Unlike the notes of a context,
            they hold if the stage discards its context: the calls ran.
        refused: the calls whose `CallNotRun` was emitted, by iteration and id.
        unsettled: the calls whose outcome the shared circuit breaker may not know yet.
        settled: the calls whose outcome it knows, by iteration and id.
        failures: the exceptions of calls, by iteration and id of the call; of the last iteration with some.
        last_response: the latest response that was put in the history.
        interrupted_request: the request that was interrupted, after the number of its iteration.
        estimated_prompt: the messages and tools of the latest request, and their estimated tokens; only with a
            limit of tokens or cost.
        payloads: the tools in the form in which they are offered, each with its `Tool`, by name.
    """

    event_counter: EventCounter = field(default_factory=EventCounter)
    clock: float = 0.0
    found: dict[str, None] = field(default_factory=dict[str, None])
    reserved: dict[str, tuple[ToolCall, int]] = field(default_factory=dict[Any, Any])
    seen_tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    dispatched: tuple[Any, ...] = ()
    notes: list[Note] = field(default_factory=list[Note])
    refused: set[tuple[int, str]] = field(default_factory=set[Any])
    unsettled: list[ToolCall] = field(default_factory=list[ToolCall])
    settled: set[tuple[int, str]] = field(default_factory=set[Any])
    failures: dict[tuple[int, str], BaseException] = field(default_factory=dict[Any, Any])
    last_response: Response | None = None
    interrupted_request: tuple[int, ModelRequest] | None = None
    estimated_prompt: tuple[Sequence[JSONDict], tuple[str, ...], int] = ((), (), 0)
    payloads: dict[str, tuple[Tool, JSONDict]] = field(default_factory=dict[Any, Any])

    def advance(self, at: float) -> None:
        """Set the clock to a time, unless a later time is known: parallel calls end in any order."""
        self.clock = max(self.clock, at)

    def note_failure(self, iteration: int, call_id: str, error: BaseException) -> None:
        """Keep the exception of a call until a call of a later iteration raises."""
        kept = {key: one for key, one in self.failures.items() if key[0] == iteration}
        self.failures = {**kept, (iteration, call_id): error}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunServices:
    """The services of a run, and its ledger; ``ctx.run``. They are the same objects until the run is forked.

    Args:
        state: the status of the run, its iterations and calls.
        budget: the limits of the run, and what it has used.
        in_flight: the calls that are running.
        repeats: the calls of this turn, what they returned, and where their repetition leads.
        ledger: what else changes during the run.
        locks: which call holds which key.
        held_locks: the keys that the call of a subagent holds, each with the name under which it is held.
        breaker: a circuit breaker that runs share.
        resolver: runs the calls of tools without a function.
        catalog: which tools the requests offer, and which ones a search finds; None offers all.
        model: None in contexts that tests construct.
        instructions: the system message of every request, or a function of the context that makes it.
        has_listeners: whether there are listeners; without them, no events are made.
        streams_to_user: whether some of them are the caller's, who may show the text of a response as it arrives.
        deps: the object that the caller passed for tools and stages.
        asks_unknown: whether a person is asked about a call that may have run already; else the model reads that.
        output: what the run has to end with; None if the text of the answer is the output.
        cost_of: returns the cost of a response in US dollars; None if only the model reports or computes costs.
        check_kept: raises if a value that a stage keeps, by its name, cannot be carried on.
        provides: the fields that each stage provides, by its full name; empty in contexts that tests construct.
    """

    state: RunState = field(default_factory=RunState)
    budget: Budget = field(default_factory=lambda: Budget(Limits()))
    in_flight: ToolCallTable = field(default_factory=ToolCallTable)
    repeats: Repeats = field(default_factory=Repeats)
    ledger: Ledger = field(default_factory=Ledger)
    locks: Locks = field(default_factory=Locks)
    held_locks: Mapping[str, str] = field(default_factory=dict[str, str])
    breaker: CircuitBreaker | None = None
    resolver: Resolver | None = None
    catalog: Catalog | None = None
    model: ModelClient | None = None
    instructions: str | Callable[[Any], str | None] | None = None
    has_listeners: bool = False
    streams_to_user: bool = False
    deps: Any = field(default=None, repr=False)
    asks_unknown: bool = False
    output: OutputContract | None = None
    cost_of: Callable[[Response], float | None] | None = None
    check_kept: Callable[[str, Any], object] | None = None
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

    def new_node(self, call: ToolCall) -> RunNode:
        """Make the node of a call of the current iteration."""
        state, index, at = self.state, 0, self.ledger.clock
        current = state.nodes[-1] if state.nodes else None
        if current is not None:
            index, at = current.step_index, current.created_at
        node = RunNode(state.agent_name, index, "tool", call.name, call.id, created_at=at)
        if current is not None:
            current.tool_calls.append(node)
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
