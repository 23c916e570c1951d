"""The options of a loop: one list of them, with their defaults and what is checked of them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypedDict

from treadle.loop.handle import RunHandle
from treadle.loop.observers import Observer
from treadle.loop.retry import BASE_DELAY
from treadle.pipeline import Pipeline, Steps, did_you_mean
from treadle.stages import RepairCall
from treadle.types import LIMIT_NAMES, Context, Limits, OptionError, Result, RunState

Layer: TypeAlias = Callable[[Steps[Result]], Steps[Result]]
"""Wraps the steps of a run: sees every effect that they yield, and what becomes of it."""


class LoopOptions(TypedDict, total=False):
    """The options of `Loop`, and of each of its runs; `Settings` says what they mean."""

    name: str
    stages: Sequence[Any] | None
    limits: Limits
    max_iterations: int
    max_tool_calls: int | None
    max_parallel_calls: int
    max_input_tokens: int | None
    max_output_tokens: int | None
    max_total_tokens: int | None
    max_seconds: float | None
    tools: Iterable[Any] | None
    resolve_tool: Any
    output: Any
    llm_opts: Mapping[str, Any]
    max_retries: int
    retry_delay: float
    loop_threshold: int
    breaker_threshold: int
    max_blank_stops: int
    repair_call: RepairCall | None
    on_iteration: Callable[[Context], Any] | None
    on_event: Observer | None
    state: RunState | None
    handle: RunHandle | None
    layers: Sequence[Layer]
    tracer_provider: Any
    meter_provider: Any


@dataclass(frozen=True)
class Settings:
    """The options of a loop, checked.

    Args:
        name: the name of the agent, in the record of the run and in telemetry.
        stages: the stages, in order; None is `treadle.stages.default_stages`. Bare functions from context to
            context are stages too.
        limits: how much a run may take. Its members are options too: ``max_iterations=5``.
        tools: what the model may call: functions, `Tool` objects, pydantic models, tool dicts.
        resolve_tool: runs the calls of tools that have no function: a callable that takes the call, or an
            object with ``resolve(call)``.
        output: a tool that ends the run with its arguments as ``result.output``: the name of one of
            ``tools``, a tool, a pydantic model, or a JSON Schema.
        llm_opts: options for every request to the model, in OpenAI's words.
        max_retries: tries to ask the model after the first; 0 is none.
        retry_delay: seconds before the second try; each further one waits twice as long, up to 30 s.
        loop_threshold: iterations in a row with the same calls and the same results that end the run.
            Three is Orbiter's number.
        breaker_threshold: iterations in a row in which a tool may fail alike; three is LlmCore's number.
        max_blank_stops: blank answers in a row that are forgiven.
        repair_call: see `treadle.stages.validate_calls`.
        on_iteration: is told the context after each iteration.
        on_event: is told every event.
        state: the record to go on in; None makes a new one.
        handle: watches and ends the run from outside.
        layers: wrap the steps of the run, the first outermost.
        tracer_provider: of OpenTelemetry; None is the global one.
        meter_provider: of OpenTelemetry; None is the global one.

    Raises:
        OptionError: a value that an option cannot take.
    """

    name: str = ""
    stages: Sequence[Any] | None = None
    limits: Limits = field(default_factory=Limits)
    tools: Iterable[Any] | None = None
    resolve_tool: Any = None
    output: Any = None
    llm_opts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    max_retries: int = 3
    retry_delay: float = BASE_DELAY
    loop_threshold: int = 3
    breaker_threshold: int = 3
    max_blank_stops: int = 3
    repair_call: RepairCall | None = None
    on_iteration: Callable[[Context], Any] | None = None
    on_event: Observer | None = None
    state: RunState | None = None
    handle: RunHandle | None = None
    layers: Sequence[Layer] = ()
    tracer_provider: Any = None
    meter_provider: Any = None

    def __post_init__(self) -> None:
        self._check(_NAMES)

    def _check(self, names: AbstractSet[str]) -> None:
        """Check some of the options, and make those safe to share that are given as they came."""
        for name in names & _LEAST.keys():
            value, least = getattr(self, name), _LEAST[name]
            kinds = (int, float) if name == "retry_delay" else (int,)
            is_number = isinstance(value, kinds) and not isinstance(value, bool)
            if not is_number or not value >= least:
                what = "a number of seconds" if name == "retry_delay" else "a whole number"
                raise OptionError(f"{name}: expected {what} of at least {least}, got {value!r}")
        for name in names & _KINDS.keys():
            value, wanted = getattr(self, name), _KINDS[name]
            is_left_out = value is None and _DEFAULTS[name] is None
            if not is_left_out and not wanted[0](value):
                raise OptionError(f"{name}: expected {wanted[1]}, got {type(value).__name__}")
        # What could be read only once, or changed by its owner, is not shared by all runs of a loop.
        for name in names & _MANY:
            value = getattr(self, name)
            is_unsafe = isinstance(value, (list, Iterator))
            if is_unsafe:
                object.__setattr__(self, name, tuple(value))
        if "llm_opts" in names:
            object.__setattr__(self, "llm_opts", dict(self.llm_opts))
        for name in _OF_DEFAULT_STAGES if self.stages is not None else ():
            if getattr(self, name) != _DEFAULTS[name]:
                raise OptionError(
                    f"{name} configures the default stages; where you give stages, "
                    f"give it to the stage itself"
                )

    def with_options(self, options: LoopOptions) -> Settings:
        """A copy with some options changed.

        Raises:
            OptionError: an option that does not exist; the text names the closest.
        """
        if not options:
            return self
        given: dict[str, Any] = dict(options)
        for name in given:
            if name not in _NAMES and name not in LIMIT_NAMES:
                raise OptionError(
                    f"there is no option {name!r}{did_you_mean(name, sorted(_NAMES | LIMIT_NAMES))}"
                )
        limits = {name: given.pop(name) for name in list(given) if name in LIMIT_NAMES}
        if limits:
            base = given.get("limits", self.limits)
            if isinstance(base, Limits):  # what else it is, is told below
                given["limits"] = dataclasses.replace(base, **limits)
        # A copy that checks only what is new: every run with options of its own makes one.
        changed = copy.copy(self)
        for name, value in given.items():
            object.__setattr__(changed, name, value)
        changed._check(given.keys())  # noqa: SLF001 - it is one of us
        return changed


def _is_many(value: Any) -> bool:
    return isinstance(value, (Iterable, Pipeline)) and not isinstance(value, (str, bytes, Mapping))


_LEAST: Mapping[str, float] = {
    "max_retries": 0,
    "retry_delay": 0,
    "loop_threshold": 1,
    "breaker_threshold": 1,
    "max_blank_stops": 0,
}
_MANY = frozenset({"tools", "stages", "layers"})
_OF_DEFAULT_STAGES = ("breaker_threshold", "max_blank_stops", "repair_call")
_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: isinstance(value, str), "text"),
    "limits": (lambda value: isinstance(value, Limits), "Limits"),
    "llm_opts": (lambda value: isinstance(value, Mapping), "a mapping"),
    "stages": (_is_many, "a list of stages, or a Pipeline"),
    "layers": (_is_many, "a list of layers"),
    "on_iteration": (callable, "a callable that takes a Context"),
    "on_event": (callable, "a callable that takes an event"),
    "repair_call": (callable, "a callable that takes a call and its problems"),
    "state": (lambda value: isinstance(value, RunState), "a RunState"),
    "handle": (lambda value: isinstance(value, RunHandle), "a RunHandle"),
}
_NAMES = frozenset(spec.name for spec in dataclasses.fields(Settings))
_DEFAULTS: Mapping[str, Any] = {spec.name: spec.default for spec in dataclasses.fields(Settings)}
