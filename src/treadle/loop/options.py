"""The options of a loop. `LoopOptions` declares each once, with its type, default, check and docstring."""

# Annotations are read at run time: no `from __future__ import annotations`.
import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NoReturn,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    get_args,
)

from treadle.checks import FUNCTIONS, ValueCheck, copied, functions, instance, methods, number
from treadle.context import Context
from treadle.effects import Steps, is_sync_callable
from treadle.errors import check_names, migration_hints
from treadle.events import RunSummary
from treadle.fast_dataclass import light_dataclass
from treadle.limits import Limits
from treadle.loop.handle import RunHandle
from treadle.loop.observers import Observer
from treadle.loop.session_turn import RunSession
from treadle.messages import ReadOnlyDict
from treadle.model import Model, ModelMiddleware
from treadle.model.client import check_no_tools
from treadle.model.registry import check_model
from treadle.pauses import Pauses
from treadle.pipeline import Pipeline
from treadle.pipeline.components import ComponentLike, Stage
from treadle.results import Result
from treadle.run_state import RunState
from treadle.stages import ask_model, checks_of, plan_calls
from treadle.telemetry import Telemetry
from treadle.tool_search import ToolSearch
from treadle.tools import CircuitBreaker, Dedupe, Locks, ToolLike

StageList: TypeAlias = (
    Sequence[ComponentLike | Callable[[Context], Any] | EllipsisType] | Pipeline[Context]
)
"""Stages, in order: those of `treadle.stages`, functions of a context, components, and lists of these; ``...`` are
the default stages."""
Middleware: TypeAlias = Callable[[Steps[Result]], Steps[Result]]
"""A function from steps to steps, which sees every effect of a run, and its outcome."""


class RunJournal(Protocol):
    """Performs runs so that they survive their process; `treadle.durable.Journal` is one."""

    def steps(
        self, loop: Any, run_id: str, given: Any, make: Callable[..., Any], handle: RunHandle
    ) -> Steps[Result]:
        """Perform a run, or the rest of it; ``given`` are the messages of the caller, missing if the run exists.

        ``make`` makes the run of messages, or of a paused run, and of a state; and, if it is given, of whether
        listeners show text as it arrives. The handle is attached to the run.
        """
        ...


@light_dataclass(frozen=True)
class Option:
    """The facts of an option, next to its type."""

    check: ValueCheck | None = None  # of values besides None, if the type allows None
    default: Any = None
    copy: Callable[[Any], Any] | None = None  # makes the stored value of the given one
    is_of_run: bool = False  # or of the program around it, and no part of what a loop is made of
    makes_tools: bool = False
    stage: Stage[..., Any] | None = None  # takes it


def _is_many(value: Any) -> bool:
    return isinstance(value, (Iterable, Pipeline)) and not isinstance(value, (str, bytes, Mapping))


def _copied_requests(given: Mapping[str, Any]) -> dict[str, Any]:
    check_no_tools("llm_opts", given)
    return dict(given)


def _checked_model(given: Any) -> Any:
    check_model(given)
    return given


_INSTRUCTIONS = ValueCheck(
    lambda it: isinstance(it, str) or is_sync_callable(it), "text or a sync function"
)
_STAGES = ValueCheck(_is_many, "a list of stages, or a Pipeline")
_SESSION = methods("a session, such as SQLiteSessions(path).session('alice')", "load", "save")
_JOURNAL = methods("a journal, such as SQLiteJournal(path)", "steps")
_ID = ValueCheck(lambda it: isinstance(it, str) and it, "a text that is not empty")
_OBSERVERS = ValueCheck(FUNCTIONS.accepts, "a callable that takes an event, or a list of such")
_OF_CONTEXT = ValueCheck(callable, "a callable that takes a Context")
_OF_SUMMARY = ValueCheck(callable, "a callable that takes a RunSummary")


class LoopOptions(TypedDict, total=False):
    """The options of `Loop`, and of each of its runs."""

    # Each has its facts, or their owner: a stage, or `Limits`.

    name: Annotated[str, Option(instance(str, "text"), "")]
    """The name of the agent, in the run state and in telemetry."""
    instructions: Annotated[str | Callable[[Context], str | None] | None, Option(_INSTRUCTIONS)]
    """The system message of every request, or a function of the context that makes it. It is not stored in the
    history."""
    stages: Annotated[StageList | None, Option(_STAGES, copy=copied)]
    """The stages, in order; None means `treadle.stages.default_stages`, and so does ``...`` in the list:
    ``[first, ...]``. A default stage next to ``...`` takes the position of the default one, with its options:
    ``[ask_model(restart_streams=True), ...]``. The options of the loop reach the default stages of any list; an
    option of the stage itself takes precedence. Plain functions from context to context are stages, too. A list
    without a stage that provides the response gets `ask_model` at the start."""
    limits: Annotated[Limits, Option(instance(Limits, "Limits"), Limits())]
    """The limits of a run, and what happens at them. It replaces those of the loop that were not given by name."""
    max_iterations: Annotated[int, Limits]
    """Model calls of the loop. This limit and the next four take precedence over ``limits``."""
    max_tool_calls: Annotated[int | None, Limits]
    """Tool calls that run."""
    max_total_tokens: Annotated[int | None, Limits]
    """Tokens of prompts and responses."""
    max_cost: Annotated[float | None, Limits]
    """US dollars."""
    max_seconds: Annotated[float | None, Limits]
    """Wall time in seconds."""
    tools: Annotated[Iterable[ToolLike] | None, Option(copy=copied, makes_tools=True)]
    """The tools that the model may call: functions, `Tool` objects, pydantic models, tool dicts."""
    tool_search: Annotated[
        ToolSearch | None, Option(instance(ToolSearch, "a ToolSearch"), makes_tools=True)
    ]
    """Offers the model a search of the tools, and a tool that calls those that it finds; None offers all tools."""
    resolve_tool: Annotated[Any, Option()]
    """Runs the calls of tools that have no function: a callable that takes the call, or an object with
    ``resolve(call)``."""
    deps: Annotated[Any, Option(is_of_run=True)]
    """Any object, for tools and stages: ``ctx.deps``."""
    llm_opts: Annotated[
        Mapping[str, Any],
        Option(instance(Mapping, "a mapping"), ReadOnlyDict(), _copied_requests),
    ]
    """Options of every request to the model, by OpenAI's names."""
    max_retries: Annotated[int, ask_model]
    """How often a request is sent again after a temporary error, see `treadle.stages.ask_model`."""
    retry_delay: Annotated[float, ask_model]
    """Seconds before the first retry; each further delay is twice as long."""
    model_middleware: Annotated[Sequence[ModelMiddleware], ask_model]
    """Functions around each request, the first outermost."""
    sequential: Annotated[Literal["defer", "in_step"], plan_calls]
    """How calls that cannot run together are treated, see `treadle.stages.plan_calls`."""
    dedupe: Annotated[Dedupe, plan_calls]
    """When a repeated call is skipped: ``evidence``, ``strict`` or ``off``, see `treadle.tools.Dedupe`. The option
    of a tool takes precedence."""
    loop_threshold: Annotated[int | None, Option(number(1), 3)]
    """The number of consecutive iterations, with the same calls and the same results, that ends the run, but not
    before the model has seen that a call of it was skipped; None disables loop detection."""
    breaker: Annotated[CircuitBreaker | None, Option(instance(CircuitBreaker, "a CircuitBreaker"))]
    """A circuit breaker that runs share; None disables it."""
    locks: Annotated[Locks | None, Option(instance(Locks, "Locks"))]
    """A table of locks that loops share; None makes one for each run."""
    pauses: Annotated[Pauses, Option(instance(Pauses, "Pauses"), Pauses())]
    """How paused runs are signed and resumed."""
    session: Annotated[RunSession | None, Option(_SESSION, is_of_run=True)]
    """The stored session that the run continues, such as ``SQLiteSessions(path).session("alice")``: its messages
    come before those of the run, which is stored as a turn when it ends."""
    journal: Annotated[RunJournal | None, Option(_JOURNAL, is_of_run=True)]
    """Stores each outcome as it happens, such as ``SQLiteJournal(path)``, so that a run that was interrupted
    continues, in any process, when it is run with the same ``run_id``."""
    run_id: Annotated[str | None, Option(_ID, is_of_run=True)]
    """The id of the run; None makes one up."""
    on_iteration: Annotated[Callable[[Context], Any] | None, Option(_OF_CONTEXT, is_of_run=True)]
    """Called with the context after each iteration."""
    on_event: Annotated[
        Observer | Sequence[Observer] | None, Option(_OBSERVERS, copy=copied, is_of_run=True)
    ]
    """One observer of all events, or a list of them."""
    on_complete: Annotated[Callable[[RunSummary], Any] | None, Option(_OF_SUMMARY, is_of_run=True)]
    """Called with the `RunSummary` of the run, on every exit; sync or async."""
    state: Annotated[RunState | None, Option(instance(RunState, "a RunState"), is_of_run=True)]
    """The run state to continue in; None makes a new one."""
    handle: Annotated[RunHandle | None, Option(instance(RunHandle, "a RunHandle"), is_of_run=True)]
    """Observes, steers and cancels the run from outside."""
    middleware: Annotated[
        Sequence[Middleware], Option(functions("a list of middleware"), (), copied, is_of_run=True)
    ]
    """Wraps the steps of the run, the first outermost."""
    telemetry: Annotated[Telemetry | None, Option(instance(Telemetry, "Telemetry"), is_of_run=True)]
    """What is reported to OpenTelemetry, and where; None takes the global providers."""


class LoopParameters(LoopOptions, total=False):
    """With the two options that methods of `Loop` have as parameters."""

    llm_send_fn: Annotated[Model | None, Option(copy=_checked_model)]
    """The model of the runs that are not given another."""
    output: Annotated[Any, Option(copy=copied, makes_tools=True)]
    """The type of ``result.output``, or a `treadle.Output` with its options; None means the text of the answer."""


def _option_of(name: str, facts: Any) -> Option:
    if isinstance(facts, Option):
        return facts
    if isinstance(facts, Stage):
        fn: Any = facts.fn  # pyright: ignore[reportUnknownMemberType]
        default = fn.__kwdefaults__[name]
        return Option(checks_of(fn).get(name), default, copied, stage=facts)  # pyright: ignore[reportUnknownArgumentType]
    spec = facts.__dataclass_fields__[name]
    return Option(spec.metadata["check"], spec.default)


TYPES: Mapping[str, Any] = {
    name: get_args(hint)[0] for name, hint in LoopParameters.__annotations__.items()
}
"""The type of each option."""
OPTIONS: Mapping[str, Option] = {
    name: _option_of(name, get_args(LoopParameters.__annotations__[name])[1])
    for name in sorted(TYPES)
}
"""The facts of each option, by name, in alphabetical order."""
STAGE_OPTIONS: Mapping[str, Stage[..., Any]] = {
    name: option.stage for name, option in OPTIONS.items() if option.stage is not None
}
"""The options that stages of the default list take, each with its stage."""
OF_STAGES = frozenset({"stages", *STAGE_OPTIONS})
OF_TOOLS = frozenset(name for name, option in OPTIONS.items() if option.makes_tools)
SIGNATURE = inspect.Signature(
    [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=OPTIONS[name].default)
        for name in TYPES
    ]
)
"""The signature of `Loop`."""
_DEFAULTS = {
    name: option.default
    for name, option in OPTIONS.items()
    if name not in Limits.__dataclass_fields__
}


class Settings:
    """The options of a loop, checked. It has an attribute for each option, but the limits are in ``limits``."""

    if TYPE_CHECKING:  # the options are declared above

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, options: Mapping[str, Any], like: Self | None = None) -> None:
        """Change some options of other settings, or of the defaults. Only these are checked: runs make copies."""
        self.__dict__.update(_DEFAULTS if like is None else like.__dict__)
        check_names(options, OPTIONS, "there is no option", hint_of)
        limits: dict[str, Any] = {}
        for name, value in options.items():
            if name not in _DEFAULTS:
                limits[name] = value
                continue
            option = OPTIONS[name]
            takes_none = type(None) in get_args(TYPES[name]) or TYPES[name] is Any
            if value is not None or not takes_none:
                if option.check is not None:
                    option.check.check(name, value)
                if option.copy is not None:
                    value = option.copy(value)  # noqa: PLW2901 - the value to store
            self.__dict__[name] = value
        if limits or "limits" in options:  # those given by name hold until they are given again
            named = {**self.__dict__.get("_named", {}), **limits}
            self.__dict__.update(_named=named, limits=_limited(self.limits, named))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _limited(limits: Limits, named: Mapping[str, Any]) -> Limits:
    """The limits with those that were given by name; the defaults with the same ones are made once."""
    if limits is _DEFAULTS["limits"]:
        with contextlib.suppress(TypeError):  # an invalid value, which the next line names
            return _limits_of(**named)
    return dataclasses.replace(limits, **named)


_limits_of = functools.lru_cache(maxsize=64, typed=True)(Limits)


def hint_of(name: str) -> str | None:
    """Where an option of another framework, of an SDK or of a request belongs; None if it is not known."""
    if name in Limits.__dataclass_fields__:
        return f"use limits=Limits({name}=...)"
    return migration_hints("treadle.loop").get(name)
