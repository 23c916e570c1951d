"""The context: what the stages of an iteration see and change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from treadle.errors import OptionError, check_names
from treadle.fast_dataclass import fast_dataclass
from treadle.limits import Budget, Limits
from treadle.messages import (
    NOTHING,
    History,
    JSONDict,
    Response,
    ToolCall,
    ToolResult,
    Usage,
    validate_messages,
)
from treadle.model import ModelClient, ModelRequest, check_no_tools
from treadle.results import PendingCall, Reason, StoppedByStage
from treadle.run_state import RunNode, RunNodeStatus, RunState
from treadle.shown import shown_fields
from treadle.tools import (
    Approval,
    CircuitBreaker,
    Dedupe,
    Locks,
    NotRunReason,
    Plan,
    Resolver,
    ResultCache,
    Tool,
    ToolCallTable,
    ToolLike,
    check_implementations,
    toolset,
)

if TYPE_CHECKING:
    from treadle.tools.output import OutputContract
    from treadle.tools.tool_catalog import Catalog


class Decision(StrEnum):
    """What ends the run; without a decision it continues."""

    DONE = "done"
    STOP = "stop"
    PAUSE = "pause"
    """The run waits for the decision of a person."""


class RequestChanges(TypedDict, total=False):
    """What `Context.with_request` and `Request.replace` may change; `Request` describes each."""

    messages: Sequence[Mapping[str, Any]]
    tools: Iterable[str | Tool]
    tool_choice: str | Mapping[str, Any] | None
    options: Mapping[str, Any]
    instructions: str | None


@fast_dataclass
class Request:
    """What is sent to the model in one request.

    Args:
        messages: the conversation as the model sees it: the history, or a view of it that a stage made.
        tools: the names of the tools that are offered.
        tool_choice: ``auto``, ``none``, ``required``, the name of a tool, or the provider's own form; None
            leaves it to the provider.
        options: further options of the request, such as ``model`` and ``temperature``. They are not in the repr:
            a header may hold a secret.
        instructions: sent as a system message before the messages; not stored in the history.
    """

    messages: Sequence[JSONDict]
    tools: tuple[str, ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    instructions: str | None = None

    def replace(self, **changes: Unpack[RequestChanges]) -> Request:
        """Copy the request with some fields changed; ``options`` are merged.

        Raises:
            OptionError: a field that does not exist.
        """
        return _changed(self, check_request_changes(changes))


def check_request_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Check the names of changed fields, and replace tools by their names.

    Raises:
        OptionError: a field that does not exist, or a value of the wrong type.
    """
    known = RequestChanges.__annotations__
    check_names(changes, known, "a request has no field")
    checked = dict(changes)
    for name, (kinds, expected) in _REQUEST_KINDS.items():
        value = checked.get(name)
        if value is not None and not isinstance(value, kinds):
            raise OptionError(f"{name}: expected {expected}, got {type(value).__name__}")
    if checked.get("options") is None:  # nothing to merge
        checked.pop("options", None)
    check_no_tools("options", checked.get("options", {}))
    if "tools" in checked:
        checked["tools"] = _names_of("tools", checked["tools"])
    return checked


_REQUEST_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "tool_choice": ((str, Mapping), "a text or a mapping"),
    "options": ((Mapping,), "a mapping"),
    "instructions": ((str,), "a text"),
}


def _names_of(option: str, tools: Iterable[str | Tool]) -> tuple[str, ...]:
    if isinstance(tools, str) or not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(
            f"{option}: expected a list of tools or their names, got {type(tools).__name__}"
        )
    return tuple(_name_of(option, tool) for tool in tools)


def _name_of(option: str, tool: str | Tool) -> str:
    name = tool.name if isinstance(tool, Tool) else tool
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"{option}: expected tools or their names, got {type(tool).__name__}")
    return name


def _changed(request: Request, changes: Mapping[str, Any]) -> Request:
    values: dict[str, Any] = {spec.name: getattr(request, spec.name) for spec in fields(request)}
    values.update(changes)
    values["options"] = {**request.options, **changes.get("options", {})}
    return Request(**values)


@dataclass(slots=True, eq=False, repr=False)
class RunContext:
    """The state of a run that outlives an iteration, and its services; ``ctx.run``.

    Args:
        state: the status of the run, its iterations and calls.
        budget: the limits of the run, and what it has used.
        in_flight: the calls that are running, and how often the model made each call.
        result_cache: what the calls of this turn returned.
        dedupe: when repeated calls of tools that do not say so are skipped; set by `plan_calls`.
        locks: which call holds which key.
        held_locks: if the run is a subagent, the keys that its call holds, each with the name under which it is
            held.
        breaker: a circuit breaker that runs share; None if there is none.
        resolver: runs the calls of tools without a function; None if there is none.
        catalog: which tools the requests offer, and which ones a search finds; None offers all.
        found: the names of the tools that a search has found and that are offered from then on, in order.
        model: the model; None in contexts that tests construct.
        instructions: the system message of every request, or a function of the context that makes it; None
            sends none.
        show_budget: whether the model is shown what remains of the limits.
        finishing: the limit that was reached, once the model is asked for a last answer; None before.
        has_listeners: whether there are listeners; without them, no events are made.
        streams_to_user: whether some of them are the caller's, who may show the text of a response as it arrives.
        deps: the object that the caller passed for tools and stages.
        asks_unknown: whether a person is asked about a call that may have run already; else the model is told.
        output: what the run has to end with; None if the text of the answer is the output.
        accepted: the output that was checked; a stage may end the run with another one.
        cost_of: returns the cost of a response in US dollars; None if only the model reports or computes costs.
        repairs: the repairs of the stages' edits, by stage, until they are reported.
        refused: the planned calls that do not run after all, until they are reported: each with the reason, or
            None if it is only reported to the shared circuit breaker.
        reserved: the planned calls of this iteration, which the budget has counted, by id.
        estimated: the messages and tools of the latest request, and their estimated tokens; only with a limit of
            tokens or cost.
        payloads: the tools in the form in which they are offered, each with its `Tool`, by name.
        dispatched: the contexts whose calls ran, until a stage's context is known to contain these calls.
        asked_again: if a stage asked the model again in one iteration, the context with the first exchange
            in the history, and the new response; None before.
        injected: the latest response that was put in the history; None before the first.
        abandoned: the request that was interrupted, after the number of its iteration; None if none was.
        answered_by: the model that answered last, which may know the cost of its response.
        failures: the exceptions of the calls of the last iteration in which a call raised, by the number of the
            iteration and the id of the call.
        clock: the latest known time of the run, such as the end of a call, in seconds since the epoch.
        compactions: how often a stage has made the model see less of the history since the run was started or
            resumed; each begins a new epoch, and earlier iterations count for no loop.
        numbers: a list with the number of the latest event that the observers received; they share it.
        check_kept: raises if a value that a stage keeps, by its name, cannot be carried on; None checks nothing.
    """

    state: RunState = field(default_factory=RunState)
    budget: Budget = field(default_factory=lambda: Budget(Limits()))
    in_flight: ToolCallTable = field(default_factory=ToolCallTable)
    result_cache: ResultCache = field(default_factory=ResultCache)
    dedupe: Dedupe = "off"
    locks: Locks = field(default_factory=Locks)
    held_locks: Mapping[str, str] = field(default_factory=dict[str, str])
    breaker: CircuitBreaker | None = None
    resolver: Resolver | None = None
    catalog: Catalog | None = None
    found: dict[str, None] = field(default_factory=dict[str, None])
    model: ModelClient | None = None
    instructions: str | Callable[[Context], str | None] | None = None
    show_budget: bool = False
    finishing: Reason | None = None
    has_listeners: bool = False
    streams_to_user: bool = False
    deps: Any = field(default=None, repr=False)
    asks_unknown: bool = False
    output: OutputContract | None = None
    accepted: Any = None
    cost_of: Callable[[Response], float | None] | None = None
    dispatched: tuple[Context, ...] = ()
    asked_again: tuple[Context, Response] | None = None
    injected: Response | None = None
    abandoned: tuple[int, ModelRequest] | None = None
    answered_by: ModelClient | None = None
    failures: dict[tuple[int, str], BaseException] = field(
        default_factory=dict[tuple[int, str], BaseException]
    )
    clock: float = 0.0
    compactions: int = 0
    numbers: list[int] = field(default_factory=lambda: [0])
    check_kept: Callable[[str, Any], object] | None = None
    repairs: list[tuple[str, tuple[str, ...]]] = field(
        default_factory=list[tuple[str, tuple[str, ...]]]
    )
    refused: list[tuple[ToolCall, NotRunReason | None]] = field(
        default_factory=list[tuple[ToolCall, NotRunReason | None]]
    )
    payloads: dict[str, tuple[Tool, JSONDict]] = field(
        default_factory=dict[str, tuple[Tool, JSONDict]]
    )
    reserved: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    estimated: tuple[Sequence[JSONDict], tuple[str, ...], int] = ((), (), 0)

    def note_failure(self, iteration: int, call_id: str, error: BaseException) -> None:
        """Keep the exception of a call until a call of a later iteration raises.

        Args:
            iteration: the number of the iteration of the call.
            call_id: the id of the call.
            error: its exception.
        """
        kept = {key: one for key, one in self.failures.items() if key[0] == iteration}
        self.failures = {**kept, (iteration, call_id): error}

    def dedupe_of(self, tool: Tool | None) -> Dedupe:
        """When repeated calls of a tool are skipped; None is a tool that only a resolver knows."""
        return (None if tool is None else tool.dedupe_mode) or self.dedupe

    def reserve(self, calls: Sequence[ToolCall], uses: Mapping[str, int] | None = None) -> None:
        """Reserve the budget of calls that are planned to run.

        Args:
            calls: the calls.
            uses: the number of uses of each tool that has ``max_uses``.
        """
        self.budget.reserve_calls(len(calls))
        if uses:
            self.budget.reserve_uses(uses)
        for call in calls:
            self.reserved[call.id] = call

    def release(self, call: ToolCall) -> None:
        """Release the budget of a planned call that will not run."""
        if call.id in self.reserved:
            del self.reserved[call.id]
            self.budget.release_call(call.name)
            if self.breaker is not None:
                self.refused.append((call, None))

    def release_new(self, calls: Iterable[ToolCall]) -> None:
        """Release the budget of the given planned calls that have not begun."""
        for call in calls:
            node = self.node_of(call)
            if node is None or node.status is RunNodeStatus.INIT:
                self.release(call)

    def node_of(self, call: ToolCall) -> RunNode | None:
        """The node of a call of the current iteration; None if it was not dispatched. A pause keeps it."""
        current = self.state.current_node
        nodes = () if current is None else current.tool_calls
        return next((node for node in nodes if node.group_id == call.id), None)

    def note_repairs(self, repairs: Sequence[str], stage: str) -> None:
        """Note the repairs of an edit, to be reported as `HistoryRepaired`."""
        if repairs:
            self.repairs.append((stage, tuple(repairs)))

    @recursive_repr("...")
    def __repr__(self) -> str:
        return _repr_of(self)


def _repr_of(value: RunContext | Context) -> str:
    return shown_fields(value, (spec.name for spec in fields(value) if spec.repr))


class ContextChanges(TypedDict, total=False):
    """The fields that a stage may change; `Context` describes each."""

    messages: History | Sequence[Mapping[str, Any]]
    tools: Mapping[str, Tool]
    response: Response
    tool_calls: Sequence[ToolCall]
    plan: Plan
    tool_results: Mapping[str, ToolResult]
    validation_errors: Mapping[str, tuple[str, ...]]
    decision: Decision | None
    error: Reason | None
    output: Any
    guidance: str | None
    memo: Mapping[str, Any]
    waiting: tuple[PendingCall, ...]


class _OwnDict:
    """Gives each instance a dict that shares its keys with no other.

    In CPython, such a dict is the fastest to look up attributes in, and to copy.
    """

    __slots__ = ()

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        made = _new(cls)
        object.__setattr__(made, "__dict__", {})
        return made


@dataclass(frozen=True, eq=False, repr=False)
class Context(_OwnDict):
    """An immutable record that flows through the stages; a stage returns a changed copy.

    Args:
        messages: the history. The messages of this iteration are in it once they are injected.
        tools: the tools of the run, by name.
        response: the model's response in this iteration.
        run: the state of the run that outlives the iteration.
        iteration: the number of this iteration, from 1.
        tool_calls: the calls of the response, with unique ids.
        plan: which of these calls run, and in which batches.
        tool_results: the results so far, by id of the call.
        validation_errors: the violations of invalid calls, by id of the call.
        result_messages: the messages that this iteration added to the history; empty until it is injected.
        decision: ends the run; None lets it continue.
        error: the reason, if the decision is to stop.
        output: the validated arguments of a terminal tool.
        guidance: a text for the model in the next request only.
        memo: values that stages keep between iterations, by name.
        approvals: the decisions on calls that waited for approval, by id of the call.
        waiting: the calls that wait for approval, if the decision is to pause.
        paused_runs: the states of paused subagents, by id of the call.
        trace: the names of the stages that this iteration has entered so far.
        request_changes: the fields of the request that stages changed; see `with_request`.
        is_asked: whether the model was asked in this iteration.
        parsed: the response whose calls are ``tool_calls``; None before they are parsed.
    """

    messages: History
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    response: Response = field(default_factory=Response)
    run: RunContext = field(default_factory=RunContext)
    iteration: int = 1
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
    memo: Mapping[str, Any] = field(default_factory=dict[str, Any])
    approvals: Mapping[str, Approval] = field(default_factory=dict[str, Approval])
    waiting: tuple[PendingCall, ...] = ()
    paused_runs: Mapping[str, JSONDict] = field(default_factory=dict[str, JSONDict])
    trace: Sequence[str] = ()
    request_changes: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    is_asked: bool = False
    parsed: Response | None = None

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
        return _STATUS[self.decision]

    @recursive_repr("...")
    def __repr__(self) -> str:
        return _repr_of(self)

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
            forced = str(changes.get("tool_choice"))
            names = catalog.offered(self.tools, (*self.run.found, forced))
        request = Request(self.messages, names, None, options, instructions)
        output = self.run.output
        if output is not None and (self.run.finishing or output.is_last_attempt(self.memo)):
            offered = changes.get("tools", self.tools)
            changes = {"tool_choice": output.tool_choice(offered), **changes}
        if not changes:
            return request
        if "tools" in changes:  # a later edit may have removed some of them
            changes = {**changes, "tools": tuple(n for n in changes["tools"] if n in self.tools)}
        return _changed(request, changes)

    def with_request(self, **changes: Unpack[RequestChanges]) -> Context:
        """Change the request of this iteration; the history stays as it is.

        Args:
            **changes: fields of `Request`. ``options`` are merged into those of the run, ``tools`` are names
                of tools of the run.

        Raises:
            OptionError: a field or a tool that does not exist, or the model was asked already.
            InvalidMessagesError: malformed messages. A broken history is repaired, and the repair reported.
        """
        if self.is_asked:
            raise OptionError(
                "with_request: the model was asked already; put the stage before ask_model"
            )
        checked = check_request_changes(changes)
        check_names(checked.get("tools", ()), self.tools, "with_request: there is no tool")
        before = self.request_changes
        if "options" in checked and "options" in before:
            checked["options"] = {**before["options"], **checked["options"]}
        if "messages" in checked:
            checked["messages"], repairs = validate_messages(checked["messages"])
            self.run.note_repairs(repairs, self.stage)
        return self.evolve(request_changes={**before, **checked})

    def with_tools(
        self, *, add: Iterable[ToolLike] = (), remove: Iterable[str | Tool] = ()
    ) -> Context:
        """Change the tools from now on; before `ask_model`, from this request on.

        Args:
            add: tools, of any kind that ``tools=`` accepts.
            remove: tools, or their names.

        Raises:
            OptionError: a tool to remove that does not exist.
            ToolDefinitionError: an invalid tool, or one that nothing can run.
        """
        removed = _names_of("with_tools: remove", remove)
        check_names(removed, self.tools, "with_tools: there is no tool")
        added = toolset(add, "with_tools: add")
        check_implementations(added.values(), self.run.resolver, "with_tools: ")
        kept = {name: tool for name, tool in self.tools.items() if name not in removed}
        return self.evolve(tools={**kept, **added})

    def replace(self, **changes: Unpack[ContextChanges]) -> Context:
        """A copy with some fields changed.

        Raises:
            OptionError: a field that does not exist.
        """
        if not changes.keys() <= _FIELDS:
            check_names(changes, sorted(_FIELDS), "replace: a context has no field")
        return self.evolve(**changes)

    def evolve(self, **changes: Any) -> Context:
        """Like `replace`, but unchecked and for every field; custom stages may only change those of `replace`."""
        # dataclasses.replace would look at every field each time; this is one dict copied.
        copy = _new(Context)
        _set_dict(copy, self.__dict__ | changes)
        return copy

    def begin(
        self, iteration: int, trace: Sequence[str], request_changes: Mapping[str, Any]
    ) -> Context:
        """A copy for another iteration, without the response and the results of the last one.

        Args:
            iteration: its number.
            trace: the list to which the pipeline appends the names of its stages.
            request_changes: the changes of its request.
        """
        made = self.__dict__ | _UNASKED
        made["iteration"], made["trace"] = iteration, trace
        made["request_changes"] = request_changes
        copy = _new(Context)
        _set_dict(copy, made)
        return copy

    def done(self, output: Any = None) -> Context:
        """End the run with the response as its answer."""
        return self.evolve(decision=Decision.DONE, output=output)

    def stop(self, reason: Reason | str) -> Context:
        """End the run without an answer.

        Args:
            reason: a text, which becomes a `StoppedByStage` with the name of the current stage; or a
                reason, such as one of a limit that the stage guards.

        Raises:
            OptionError: it is neither.
        """
        if isinstance(reason, str):
            reason = StoppedByStage(self.stage, reason)
        elif not isinstance(reason, Reason):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"stop: expected a Reason or a text, got {type(reason).__name__}")
        return self.evolve(decision=Decision.STOP, error=reason)

    def pause(self, waiting: tuple[PendingCall, ...]) -> Context:
        """Pause the run; when it is resumed, it enters the current stage again.

        Args:
            waiting: the calls, or other questions, that wait for a decision.
        """
        return self.evolve(decision=Decision.PAUSE, waiting=tuple(waiting))

    def remember(self, name: str, value: Any) -> Context:
        """Keep a value for later iterations, as ``memo[name]``.

        Raises:
            PausedStateError: the run goes on in other processes, and the value is no data.
        """
        if self.run.check_kept is not None:
            self.run.check_kept(name, value)
        return self.evolve(memo={**self.memo, name: value})


_new = object.__new__  # used several times in an iteration, like the next one
_set_dict: Callable[[Context, dict[str, Any]], None] = vars(Context)["__dict__"].__set__
_UNASKED: dict[str, Any] = {
    "response": Response(extra=NOTHING),
    "parsed": None,
    "is_asked": False,
    "tool_calls": (),
    "plan": Plan(),
    "tool_results": NOTHING,
    "validation_errors": NOTHING,
    "result_messages": (),
    "approvals": NOTHING,
    "paused_runs": NOTHING,
}
"""The fields of an iteration in which the model was not asked yet; all iterations share the values."""
_STATUS: Mapping[Decision | None, str] = {
    None: "continue",
    Decision.DONE: "ok",
    Decision.STOP: "error",
    Decision.PAUSE: "paused",
}
_FIELDS = frozenset(spec.name for spec in fields(Context))
