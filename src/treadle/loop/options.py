"""The options of a loop: one list of them, with their defaults and checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from types import EllipsisType
from typing import Any, Literal, TypeAlias, TypedDict

from treadle.context import Context
from treadle.effects import Steps, is_sync_callable
from treadle.errors import OptionError, check_names, one_of
from treadle.events import RunSummary
from treadle.fast_dataclass import light_dataclass
from treadle.limits import LIMIT_NAMES, Limits, Unmeasured
from treadle.loop.handle import RunHandle
from treadle.loop.journal import Journal
from treadle.loop.observers import Observer
from treadle.loop.session import RunSession
from treadle.messages import Response
from treadle.model import BASE_DELAY, Model, ModelMiddleware, check_model, check_no_tools
from treadle.pauses import ClaimStore
from treadle.pipeline import Pipeline
from treadle.pipeline.components import ComponentLike
from treadle.results import Result
from treadle.run_state import RunState
from treadle.stages import RepairCall
from treadle.tools import DEDUPE_MODES, CatalogOption, CircuitBreaker, Dedupe, Locks, ToolLike

StageList: TypeAlias = (
    Sequence[ComponentLike | Callable[[Context], Any] | EllipsisType] | Pipeline[Context]
)
"""Stages, in order: those of `treadle.stages`, functions of a context, components, and lists of these; ``...`` are
the default stages, with the options of the loop."""
Middleware: TypeAlias = Callable[[Steps[Result]], Steps[Result]]
"""A function from steps to steps, which sees every effect of a run, and its outcome."""


class LoopOptions(TypedDict, total=False):
    """The options of `Loop`, and of each of its runs; `Settings` describes them.

    ``output``, which decides the type of the result, and ``llm_send_fn`` are parameters.
    """

    name: str
    instructions: str | Callable[[Context], str | None] | None
    stages: StageList | None
    limits: Limits
    max_iterations: int
    max_tool_calls: int | None
    max_parallel_calls: int
    max_input_tokens: int | None
    max_output_tokens: int | None
    max_total_tokens: int | None
    max_cost: float | None
    max_seconds: float | None
    max_requests: int | None
    max_depth: int
    on_limit: Literal["stop", "finish"]
    show_budget: bool
    cost_of: Callable[[Response], float | None] | None
    unmeasured: Unmeasured | None
    tools: Iterable[ToolLike] | None
    tool_search: CatalogOption | None
    resolve_tool: Any
    output_mode: Literal["tool", "json"]
    max_output_retries: int
    output_validators: Callable[..., Any] | Sequence[Callable[..., Any]]
    deps: Any
    llm_opts: Mapping[str, Any]
    max_retries: int
    retry_delay: float
    restart_streams: bool
    model_middleware: Sequence[ModelMiddleware]
    sequential: Literal["defer", "in_step"]
    dedupe: Dedupe
    loop_threshold: int | None
    breaker_threshold: int
    breaker: CircuitBreaker | None
    locks: Locks | None
    max_blank_stops: int
    accept_cut: bool
    repair_call: RepairCall | None
    pause_secret: str | bytes | None
    claim_store: ClaimStore | None
    session: RunSession | None
    journal: Journal | None
    run_id: str | None
    on_unknown: Literal["tell", "ask"]
    on_iteration: Callable[[Context], Any] | None
    on_event: Observer | Sequence[Observer] | None
    on_complete: Callable[[RunSummary], Any] | None
    state: RunState | None
    handle: RunHandle | None
    middleware: Sequence[Middleware]
    tracer_provider: Any
    meter_provider: Any
    logger_provider: Any
    capture_content: bool | None
    chat_telemetry: bool


@light_dataclass(frozen=True)
class Settings:
    """The options of a loop, checked.

    Args:
        name: the name of the agent, in the run state and in telemetry.
        instructions: the system message of every request, or a function of the context that makes it. It is
            not stored in the history.
        llm_send_fn: the model of the runs that are not given another.
        stages: the stages, in order; None means `treadle.stages.default_stages`, and so does ``...`` in the list:
            ``[first, ...]``. Plain functions from context to context are stages, too. A list without `ask_model`
            gets it at the start.
        limits: the limits of a run. Its fields are options as well: ``max_iterations=5``.
        on_limit: what happens if a limit of iterations, calls, tokens or cost is reached, or a loop is
            detected: ``stop`` ends the run with the reason, ``finish`` asks the model for a last answer first.
        show_budget: show the model what remains of the limits, in each request.
        cost_of: takes a response and returns its cost in US dollars, or None; called if the model does not
            report a cost, in place of what the model computes. None takes that of the run that calls this loop
            as a subagent.
        unmeasured: what happens if a limit of tokens or cost is set, and a response does not report what it
            used: ``stop`` ends the run with `LimitNotMeasurable` before another model call, ``estimate`` counts
            tokens estimated from the texts, ``ignore`` runs without such a limit. None takes that of the run
            that calls this loop as a subagent; without one, it is ``stop``.
        tools: what the model may call: functions, `Tool` objects, pydantic models, tool dicts.
        tool_search: offers the model a search of the tools, and a tool that calls those that it finds; None offers
            all tools.
        resolve_tool: runs the calls of tools that have no function: a callable that takes the call, or an
            object with ``resolve(call)``.
        output: the type of ``result.output``: a pydantic model, dataclass, TypedDict, union, list, scalar or any
            type that pydantic validates; a JSON Schema; a tool, or the name of one of ``tools``, whose arguments
            are the output; or a list of alternatives. ``str`` among them allows plain text. None means the text
            of the answer.
        output_mode: how the model gives the output: ``tool``, by the call of a tool, works with every model;
            ``json``, as text, uses the provider's ``response_format``.
        max_output_retries: how often the model is asked again if it gives no valid output. In tool mode, the last
            request forces the call.
        output_validators: functions that check the output, sync or async: they take it, or the context and it.
            They return what to use instead, or None, and raise `Retry` with the reason if the model should
            correct it.
        deps: any object, for tools and stages: ``ctx.deps``.
        llm_opts: options of every request to the model, by OpenAI's names.
        max_retries: see `treadle.stages.ask_model`.
        retry_delay: see `treadle.stages.ask_model`.
        restart_streams: see `treadle.stages.ask_model`.
        model_middleware: see `treadle.stages.ask_model`.
        sequential: see `treadle.stages.plan_calls`.
        dedupe: when a repeated call is skipped: ``evidence``, ``strict`` or ``off``, see `treadle.tools.Dedupe`.
            A tool may have its own.
        loop_threshold: the number of consecutive iterations, with the same calls and the same results, that
            ends the run, but not before the model has seen that a call of it was skipped; None disables loop
            detection. Three is Orbiter's number.
        breaker_threshold: see `treadle.stages.circuit_breaker`.
        breaker: a circuit breaker that runs share; None disables it.
        locks: a table of locks that loops share; None makes one for each run.
        max_blank_stops: see `treadle.stages.loop_decision`.
        accept_cut: whether a text that was cut at a limit of tokens is the answer; by default the run ends with
            `ResponseIncomplete`.
        repair_call: see `treadle.stages.validate_calls`.
        pause_secret: signs the state of paused runs, so that no one else can forge one; None detects accidental
            changes only.
        claim_store: remembers which pauses are resumed, so that each is resumed once: `SQLiteClaims`, or another
            `ClaimStore`, for several processes. None uses a table in this process.
        session: the stored session that the run continues, such as ``SQLiteSessions(path).session("alice")``: its
            messages come before those of the run, which is stored as a turn when it ends. None if there is none.
        journal: stores each outcome as it happens, such as ``SQLiteJournal(path)``, so that a run that was
            interrupted continues, in any process, when it is run with the same ``run_id``; None stores nothing.
        run_id: the id of the run; None makes one up.
        on_unknown: what happens to a call that may have run already, because the process ended while it ran, and
            whose tool is not ``idempotent``: ``tell`` tells the model that its outcome is unknown, ``ask`` pauses
            the run for a person's decision.
        on_iteration: called with the context after each iteration.
        on_event: one observer of all events, or a list of them.
        on_complete: called with the `RunSummary` of the run, on every exit; sync or async.
        state: the run state to continue in; None makes a new one.
        handle: observes, steers and cancels the run from outside.
        middleware: wraps the steps of the run, the first outermost.
        tracer_provider: OpenTelemetry's; None means the global one.
        meter_provider: OpenTelemetry's; None means the global one.
        logger_provider: OpenTelemetry's, for the completion event; None means the global one.
        capture_content: whether spans have messages, arguments and results; None uses the environment variable
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``, which is off by default.
        chat_telemetry: report model calls as spans and metrics; set it to False if the model's SDK is
            instrumented and reports them itself.

    Raises:
        OptionError: a value that an option does not accept.
    """

    name: str = ""
    instructions: str | Callable[[Context], str | None] | None = None
    llm_send_fn: Model | None = None
    stages: StageList | None = None
    limits: Limits = field(default_factory=Limits)
    on_limit: Literal["stop", "finish"] = "stop"
    show_budget: bool = False
    cost_of: Callable[[Response], float | None] | None = None
    unmeasured: Unmeasured | None = None
    tools: Iterable[ToolLike] | None = None
    tool_search: CatalogOption | None = None
    # An object that may show a secret, such as a password of a database, is not in the repr.
    resolve_tool: Any = field(default=None, repr=False)
    output: Any = None
    output_mode: Literal["tool", "json"] = "tool"
    max_output_retries: int = 2
    output_validators: Callable[..., Any] | Sequence[Callable[..., Any]] = ()
    deps: Any = field(default=None, repr=False)
    llm_opts: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    max_retries: int = 3
    retry_delay: float = BASE_DELAY
    restart_streams: bool = False
    model_middleware: Sequence[ModelMiddleware] = ()
    sequential: Literal["defer", "in_step"] = "defer"
    dedupe: Dedupe = "evidence"
    loop_threshold: int | None = 3
    breaker_threshold: int = 3
    breaker: CircuitBreaker | None = None
    locks: Locks | None = None
    max_blank_stops: int = 3
    accept_cut: bool = False
    repair_call: RepairCall | None = None
    pause_secret: str | bytes | None = field(default=None, repr=False)
    claim_store: ClaimStore | None = field(default=None, repr=False)
    session: RunSession | None = None
    journal: Journal | None = field(default=None, repr=False)
    run_id: str | None = None
    on_unknown: Literal["tell", "ask"] = "tell"
    on_iteration: Callable[[Context], Any] | None = None
    on_event: Observer | Sequence[Observer] | None = None
    on_complete: Callable[[RunSummary], Any] | None = None
    state: RunState | None = None
    handle: RunHandle | None = None
    middleware: Sequence[Middleware] = ()
    tracer_provider: Any = None
    meter_provider: Any = None
    logger_provider: Any = None
    capture_content: bool | None = None
    chat_telemetry: bool = True

    def __post_init__(self) -> None:
        self._check(_NAMES)

    def _check(self, names: AbstractSet[str]) -> None:
        """Check some of the options, and copy mutable values, which runs share."""
        if "llm_send_fn" in names and self.llm_send_fn is not None:
            check_model(self.llm_send_fn)
        for name in names:
            if name in _LEAST:
                _check_number(name, getattr(self, name))
            elif name in _CHOICES:
                check_choice(name, getattr(self, name))
            elif name in _KINDS:
                _check_kind(name, getattr(self, name))
        # An iterator can be read only once, and the caller could change a list.
        for name in names & _MANY:
            value = getattr(self, name)
            is_unsafe = isinstance(value, (list, Iterator))
            if is_unsafe:
                object.__setattr__(self, name, tuple(value))  # pyright: ignore[reportUnknownArgumentType]
        if "llm_opts" in names:
            check_no_tools("llm_opts", self.llm_opts)
            object.__setattr__(self, "llm_opts", dict(self.llm_opts))
        if self.stages is not None and not self.has_default_stages:
            self.check_is_default([name for name in OF_DEFAULT_STAGES if name not in OF_ASK_MODEL])

    @property
    def has_default_stages(self) -> bool:
        """Whether the default stages are among the given ones, as ``...``."""
        given = self.stages
        return isinstance(given, (list, tuple)) and any(one is ... for one in given)

    def check_is_default(self, names: Iterable[str]) -> None:
        """Check that options of the default stages are not given, because stages are.

        Raises:
            OptionError: one of them has another value.
        """
        for name in names:
            if getattr(self, name) != _DEFAULTS[name]:
                raise OptionError(
                    f"{name} configures the default stages; where you give stages, give it to the stage itself, "
                    f"or have the default ones among them: stages=[first, ...]"
                )

    def with_options(self, options: Mapping[str, Any]) -> Settings:
        """A copy with some options changed.

        Raises:
            OptionError: an option that does not exist; the text names the closest.
        """
        if not options:
            return self
        given: dict[str, Any] = dict(options)
        check_names(given, OPTION_NAMES, "there is no option", hint_of)
        limits = {name: given.pop(name) for name in list(given) if name in LIMIT_NAMES}
        if limits:
            base = given.get("limits", self.limits)
            if isinstance(base, Limits):  # any other kind is reported below
                given["limits"] = dataclasses.replace(base, **limits)
        # Only the changed options are checked: every run with options makes a copy.
        changed = object.__new__(Settings)
        object.__setattr__(changed, "__dict__", self.__dict__ | given)
        changed._check(given.keys())
        return changed


def hint_of(name: str) -> str | None:
    """Where an option of another framework, of an SDK or of a request belongs; None if it is not known."""
    from treadle.loop.migration_hints import HINTS  # noqa: PLC0415 - most programs need no hint

    return HINTS.get(name)


def _check_number(name: str, value: Any) -> None:
    if value is None and name in _MAY_BE_OFF:
        return
    least, is_seconds = _LEAST[name], name == "retry_delay"
    kinds = (int, float) if is_seconds else (int,)
    if not isinstance(value, kinds) or isinstance(value, bool) or not value >= least:
        what = "a number of seconds" if is_seconds else "a whole number"
        raise OptionError(f"{name}: expected {what} of at least {least}, got {value!r}")


def check_choice(name: str, value: Any) -> None:
    """Check an option that has a few possible values.

    Raises:
        OptionError: the value is none of them; the text names all.
    """
    choices = _CHOICES[name]
    is_left_out = value is None and _DEFAULTS[name] is None
    if not is_left_out and value not in choices:
        raise OptionError(f"{name}: expected {one_of(choices)}, got {value!r}")


def _check_kind(name: str, value: Any) -> None:
    accepts, expected = _KINDS[name]
    is_left_out = value is None and _DEFAULTS[name] is None
    if not is_left_out and not accepts(value):
        raise OptionError(f"{name}: expected {expected}, got {type(value).__name__}")


def _is_callables(value: Any) -> bool:
    return callable(value) or (isinstance(value, (list, tuple)) and all(map(callable, value)))  # pyright: ignore[reportUnknownArgumentType]


def _is_many(value: Any) -> bool:
    return isinstance(value, (Iterable, Pipeline)) and not isinstance(value, (str, bytes, Mapping))


def _is_middleware(value: Any) -> bool:
    return _is_many(value) and (isinstance(value, Iterator) or all(map(callable, value)))


def _is_session(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("load", "save"))


def _is_journal(value: Any) -> bool:
    return callable(getattr(value, "open", None))


def _is_claim_store(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("claim", "release"))


_LEAST: Mapping[str, float] = {
    "max_retries": 0,
    "retry_delay": 0,
    "loop_threshold": 1,
    "breaker_threshold": 1,
    "max_blank_stops": 0,
    "max_output_retries": 0,
}
_MANY = frozenset({"tools", "stages", "middleware", "on_event", "output", "output_validators"})
OF_ASK_MODEL = ("max_retries", "retry_delay", "restart_streams", "model_middleware")
OF_DEFAULT_STAGES = (
    *OF_ASK_MODEL,
    "sequential",
    "dedupe",
    "breaker_threshold",
    "max_blank_stops",
    "accept_cut",
    "repair_call",
)
OF_STAGES = frozenset({"stages", *OF_DEFAULT_STAGES})
OF_TOOLS = frozenset(
    {"tools", "tool_search", "output", "output_mode", "max_output_retries", "output_validators"}
)
_MAY_BE_OFF = frozenset({"loop_threshold"})
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "dedupe": DEDUPE_MODES,
    "on_limit": ("stop", "finish"),
    "on_unknown": ("tell", "ask"),
    "sequential": ("defer", "in_step"),
    "output_mode": ("tool", "json"),
    "unmeasured": ("stop", "estimate", "ignore"),
}
_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: isinstance(value, str), "text"),
    "instructions": (
        lambda value: isinstance(value, str) or is_sync_callable(value),
        "text or a sync function",
    ),
    "limits": (lambda value: isinstance(value, Limits), "Limits"),
    "show_budget": (lambda value: isinstance(value, bool), "True or False"),
    "cost_of": (is_sync_callable, "a sync callable that takes a response"),
    "breaker": (lambda value: isinstance(value, CircuitBreaker), "a CircuitBreaker"),
    "locks": (lambda value: isinstance(value, Locks), "Locks"),
    "tool_search": (
        lambda value: isinstance(value, CatalogOption) and not isinstance(value, type),
        "a ToolSearch",
    ),
    "pause_secret": (
        lambda value: isinstance(value, (str, bytes)) and bool(value),
        "text or bytes",
    ),
    "claim_store": (
        _is_claim_store,
        "an object with claim and release, such as SQLiteClaims(path)",
    ),
    "journal": (_is_journal, "a journal, such as SQLiteJournal(path)"),
    "run_id": (lambda value: isinstance(value, str) and bool(value), "a text that is not empty"),
    "session": (_is_session, "a session, such as SQLiteSessions(path).session('alice')"),
    "llm_opts": (lambda value: isinstance(value, Mapping), "a mapping"),
    "stages": (_is_many, "a list of stages, or a Pipeline"),
    "output_validators": (_is_callables, "a callable that takes the output, or a list of such"),
    "middleware": (_is_middleware, "a list of middleware"),
    "model_middleware": (_is_middleware, "a list of functions that take a request and send"),
    "restart_streams": (lambda value: isinstance(value, bool), "True or False"),
    "on_iteration": (callable, "a callable that takes a Context"),
    "on_event": (_is_callables, "a callable that takes an event, or a list of such"),
    "on_complete": (callable, "a callable that takes a RunSummary"),
    "capture_content": (lambda value: isinstance(value, bool), "True, False or None"),
    "chat_telemetry": (lambda value: isinstance(value, bool), "True or False"),
    "accept_cut": (lambda value: isinstance(value, bool), "True or False"),
    "repair_call": (is_sync_callable, "a sync callable that takes a call and its problems"),
    "state": (lambda value: isinstance(value, RunState), "a RunState"),
    "handle": (lambda value: isinstance(value, RunHandle), "a RunHandle"),
    "tracer_provider": (lambda value: hasattr(value, "get_tracer"), "a TracerProvider"),
    "meter_provider": (lambda value: hasattr(value, "get_meter"), "a MeterProvider"),
    "logger_provider": (lambda value: hasattr(value, "get_logger"), "a LoggerProvider"),
}
_NAMES = frozenset(spec.name for spec in dataclasses.fields(Settings))
OPTION_NAMES = dict.fromkeys(sorted(_NAMES | LIMIT_NAMES))
_DEFAULTS: Mapping[str, Any] = {spec.name: spec.default for spec in dataclasses.fields(Settings)}
