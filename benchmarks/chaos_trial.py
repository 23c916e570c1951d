"""One run with a misbehaving model, misbehaving tools and any options; the seed decides everything about it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from chaos_checks import Facts, described, violations

from treadle import (
    Approval,
    CircuitBreaker,
    Context,
    Limits,
    Locks,
    Loop,
    Output,
    Paused,
    Response,
    Result,
    RunHandle,
    Tool,
    ToolCall,
    ToolContext,
    approve,
    default_stages,
    deny,
    edit,
)
from treadle.effects import Effect, Sleep, Steps, map_effects
from treadle.stages import circuit_breaker, loop_decision, validate_calls
from treadle.testing import ChaosLLM, ChaosTools, history_problems

MAX_PAUSES = 100
SUBAGENT_SEED = 1_000_000
"""Added to the seed of a run for the tools of its subagent."""


# What a run starts from, and its options.


class UnprintableError(Exception):
    """What callbacks of the loop raise: an error whose ``str`` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def _call(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": "call_0", "type": "function", "function": function}


MESSAGES: tuple[list[dict[str, Any]], ...] = (
    [{"role": "user", "content": "Go."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go.", "name": "ada"}],
    [
        {"role": "user", "content": [{"type": "text", "text": "Go."}]},
        {"role": "assistant", "content": "Where?", "reasoning": {"parts": ["a"]}},
        {"role": "user", "content": "On."},
    ],
    [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "I would say that"}],
    [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [_call("x", "{"), _call("y", "{}")]},
        {"role": "tool", "tool_call_id": "call_0", "content": "x"},
        {"role": "tool", "tool_call_id": "call_1_1", "content": "y"},
    ],
)
"""What runs start from. The last one is invalid, and is repaired on entry."""

SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
LLM_OPTS = {"temperature": 0, "response_format": {"type": "json_schema", "schema": {"a": [1]}}}


def _cost_of(response: Response) -> Any:
    """A price, in most cases a wrong one."""
    prices = (0.001, None, 0, -0.5, math.nan, "much", 10**400)
    place = len(response.text) % (len(prices) + 1)
    if place == len(prices):
        raise UnprintableError
    return prices[place]


def _repair_call(call: ToolCall, problems: tuple[str, ...]) -> Any:
    """A repair that seldom repairs."""
    place = (len(call.arguments) + len(problems)) % 5
    if place == 0:
        raise UnprintableError
    mended = (None, call, ToolCall(call.id, call.name, "{}"), ToolCall("x", "unknown", "\ud83d"))
    return mended[place - 1]


def _raising_stage(ctx: Context) -> Context:
    """A stage that raises in every fourth iteration."""
    if ctx.iteration % 4 == 3:
        raise UnprintableError
    return ctx


def _stages(chance: random.Random) -> list[Any]:
    """The default stages with one that raises, or without one that a run can do without."""
    stages: list[Any] = list(default_stages())
    if chance.random() < 0.5:
        stages.insert(chance.randrange(len(stages) + 1), _raising_stage)
        return stages
    removed = chance.choice(("budget_guard", "circuit_breaker", "inject_results"))
    return [stage for stage in stages if stage.name != removed]


def _one_of(*values: Any) -> Callable[[random.Random], Any]:
    return lambda chance: copy.deepcopy(chance.choice(values))


OPTIONS: Mapping[str, tuple[float, Callable[[random.Random], Any]]] = {
    "max_iterations": (0.8, _one_of(1, 2, 3, 5, 8, 12, 20)),
    "max_tool_calls": (0.25, _one_of(0, 1, 5, 20)),
    "max_total_tokens": (0.04, _one_of(1, 300, 2_000)),
    "max_cost": (0.06, _one_of(0.0, 0.01)),
    "max_seconds": (0.08, _one_of(0.0, 0.05, 0.3)),
    "sequential": (0.4, _one_of("in_step")),
    "dedupe": (0.15, _one_of("off", "strict")),
    "max_retries": (0.25, _one_of(0, 1)),
    "loop_threshold": (0.2, _one_of(1, 2, 5, None)),
    "breaker": (0.1, lambda chance: CircuitBreaker(chance.choice((1, 2)), chance.choice((0, 60)))),
    "locks": (0.1, lambda _chance: Locks()),
    "output": (0.1, _one_of(SCHEMA)),
    "llm_opts": (0.3, _one_of(LLM_OPTS)),
    "stages": (0.06, _stages),
}
"""Each option, the share of runs that have it, and how its value is chosen."""
LIMITS: Mapping[str, tuple[float, Callable[[random.Random], Any]]] = {
    "max_parallel_calls": (0.3, _one_of(1, 2, 3)),
    "max_input_tokens": (0.04, _one_of(1, 100, 1_000)),
    "max_output_tokens": (0.04, _one_of(1, 50, 200)),
    "on_limit": (0.3, _one_of("finish")),
    "show_budget": (0.2, _one_of(True)),
    "cost_of": (0.1, _one_of(_cost_of)),
}
"""As `OPTIONS`, of its limits."""
STAGES: Sequence[tuple[float, Callable[[random.Random], Any]]] = (
    (0.2, lambda chance: circuit_breaker(threshold=chance.choice((1, 2, 5)))),
    (0.2, lambda chance: loop_decision(max_blank_stops=chance.choice((0, 1)))),
    (0.1, lambda _chance: validate_calls(repair_call=_repair_call)),
)
"""Stages that take the positions of the default ones, with the share of runs that have them."""


def options_from(chance: random.Random) -> dict[str, Any]:
    """Choose the options of a loop."""
    options, limits = (
        {name: make(chance) for name, (share, make) in table.items() if chance.random() < share}
        for table in (OPTIONS, LIMITS)
    )
    configured = [make(chance) for share, make in STAGES if chance.random() < share]
    options["retry_delay"] = 0
    if limits:
        options["limits"] = Limits(**limits)
    if "stages" not in options and configured:
        options["stages"] = [*configured, ...]
    return options


# The run.


@dataclass(slots=True)
class Verdict:
    """The outcome of one seed.

    Args:
        seed: the seed.
        story: how the loop was run, and the last behaviours of the model.
        stop_reason: how it ended; ``none`` if it raised.
        iterations: the number of iterations.
        pauses: how often it paused for approval.
        violations: what was wrong.
        behaviours: the names of what the model and the tools did.
    """

    seed: int
    story: str
    stop_reason: str = "none"
    iterations: int = 0
    pauses: int = 0
    violations: list[str] = field(default_factory=list[str])
    behaviours: frozenset[str] = frozenset()


class Trial:
    """One run; ``seed`` is any number."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = chance = random.Random(f"trial {seed}")
        self.way = chance.choice(("sync", "sync", "asyncio", "asyncio", "stream", "trio"))
        self._is_async = self._share(0.5)
        self.messages = copy.deepcopy(chance.choice(MESSAGES))
        self.options = options_from(chance)
        self._approvals = self._share(0.15)
        self.tools = ChaosTools(seed, approvals=self._approvals)
        self._children = [ChaosTools(seed + SUBAGENT_SEED)] if self._share(0.1) else []
        self._has_resolver = not self._children and self._share(0.1)
        self._offered: list[Tool] = [*self.tools, *map(_subagent, self._children)]
        if "output" in self.options:
            ends = [tool.name for tool in self._offered if tool.terminal]
            self.options["output"] = [SCHEMA, *ends]
            if not ends and self._share(0.3):
                self.options.update(output=Output(SCHEMA, mode="json"))
        hangs = self._share(0.04)
        if hangs:
            self.options["max_seconds"] = 0.2
        known = self._offered if self._share(0.5) else None
        turns = chance.choice((1, 4)) if self._share(0.05) else None
        self.llm = ChaosLLM(seed, known, turns=turns, is_async=self._is_async, hangs=hangs)
        self._has_listener = self.way == "stream" or self._share(0.4)
        self._has_handle = self._has_listener and self._share(0.3)
        self._handle: RunHandle | None = None
        self._events: list[Any] = []
        self._heard = self._steered = 0

    def _share(self, share: float) -> bool:
        return self._chance.random() < share

    @property
    def story(self) -> str:
        """How it is run."""
        flags = {
            "with a listener": self._has_listener,
            "with a handle": self._has_handle,
            "with a subagent": bool(self._children),
            "with a resolver": self._has_resolver,
        }
        parts = [name for name, is_so in flags.items() if is_so]
        parts += [repr(self.llm), repr(self.tools)]
        parts += [f"{name}={value!r:.60}" for name, value in self.options.items()]
        return f"{self.way} {', '.join(parts)}"

    def run(self) -> Verdict:
        """Run it, and check the result."""
        verdict = Verdict(self.seed, self.story)
        before = copy.deepcopy(self._of_caller())
        started = time.monotonic()
        try:
            result = self._run_to_the_end(verdict)
        except Exception as error:  # noqa: BLE001 - any exception is a violation
            verdict.violations.append(f"raised: {described(error)}")
            return verdict
        finally:
            self.llm.release()
            verdict.behaviours = frozenset((*self.llm.behaviours, *self.tools.behaviours))
            verdict.story += f" ... {', '.join(self.llm.behaviours[-8:])}"
        facts = Facts(
            result=result,
            given=self.messages,
            options=self.options,
            tools=self.tools,
            others=self._children,
            seconds=time.monotonic() - started,
            events=self._events if self._has_listener else None,
            has_handle=self._has_handle,
        )
        verdict.stop_reason, verdict.iterations = result.stop_reason, result.iterations
        verdict.violations += violations(facts)
        if before != self._of_caller():
            verdict.violations.append("the caller's messages, options or schemas were changed")
        return verdict

    def _of_caller(self) -> tuple[Any, ...]:
        """What belongs to the caller, so the run must not change it."""
        schemas = [tool.input_schema for tool in self._offered]
        return self.messages, self.options.get("llm_opts"), schemas

    def _run_to_the_end(self, verdict: Verdict) -> Result:
        """Run, and resume for as long as it pauses."""
        result = self._first_run()
        while isinstance(result, Paused):
            verdict.pauses += 1
            problems = history_problems(result.messages)
            verdict.violations += [f"paused: history: {problem}" for problem in problems]
            if verdict.pauses > MAX_PAUSES:
                verdict.violations.append(f"paused: more than {MAX_PAUSES} times")
                break
            state = json.dumps(result.state, allow_nan=False)
            result = self._resumed(state, self._decisions(result, verdict.pauses))
        return result

    def _decisions(self, paused: Paused, count: int) -> dict[str, Approval]:
        """Approve, deny or edit each call, or leave it undecided."""
        made: dict[str, Approval] = {}
        for call in paused.pending:
            kinds = (approve, approve, edit(dict(call.arguments)), deny("No\ud83d"))
            if count > MAX_PAUSES // 4 or self._share(0.8):
                made[call.id] = self._chance.choice(kinds)
        return made

    def _first_run(self) -> Result | Paused:
        if self.way == "sync":
            return Loop.run_sync(self.messages, self._model(), **self._given())
        if self.way == "stream":
            return anyio.run(self._streamed)
        run = functools.partial(Loop.run, self.messages, self._model(), **self._given())
        return anyio.run(run, backend=self.way)

    async def _streamed(self) -> Result | Paused:
        async with Loop.stream(self.messages, self._model(), **self._given()) as events:
            self._handle = events
            async for event in events:
                try:
                    self._hear(event)
                except ValueError:  # meant for observers; here it would end the reader
                    continue
        if events.result is None:
            raise RuntimeError("the stream ended without a result")
        return events.result

    def _resumed(self, state: str, decisions: Mapping[str, Approval]) -> Result | Paused:
        model, given = self._model(), self._given()
        if self.way in {"sync", "stream"}:
            return Loop.resume_sync(state, decisions, model, **given)
        run = functools.partial(Loop.resume, state, decisions, model, **given)
        return anyio.run(run, backend=self.way)

    def _given(self) -> dict[str, Any]:
        """The options of one call of the loop."""
        given = {**self.options, "tools": self._offered, "middleware": [without_delays]}
        self._events.clear()
        if self._has_resolver:
            given["tools"] = [dataclasses.replace(tool, fn=None) for tool in self._offered]
            given["resolve_tool"] = self._resolve
        is_streamed = self.way == "stream" and not self.llm.sent
        if self._has_listener and not is_streamed:
            given["on_event"] = self._hear
        if self._has_handle and not is_streamed:
            given["handle"] = self._handle = RunHandle()
        return given

    def _model(self) -> Callable[..., Any]:
        """The model as it is, or as an async function."""
        if not self._is_async or self.seed % 3 == 0:
            return self.llm

        async def send(messages: list[dict[str, Any]], opts: dict[str, Any]) -> Any:
            return await self.llm(messages, opts)

        return send

    def _resolve(self, call: ToolCall) -> Any:
        tool = next(tool for tool in self.tools if tool.name == call.name)
        arguments = dict(call.input or {})
        if "_context" in inspect.signature(tool.fn).parameters:
            arguments["_context"] = ToolContext(call.id, call.name, 1)
        return tool.fn(**arguments)

    def _hear(self, event: Any) -> None:
        """Log an event; sometimes raise, or use the handle."""
        self._events.append(event)
        self._heard += 1
        chance = random.Random(f"{self.seed} {self._heard}").random()
        if self._has_handle and self._handle is not None:
            self._use_handle(self._handle, chance)
        if chance > 0.99:
            raise ValueError("an observer")

    def _use_handle(self, handle: RunHandle, chance: float) -> None:
        if chance < 0.006:
            handle.cancel()
        elif chance < 0.03:
            handle.cancel_all()
        elif chance < 0.06 and self._steered < 3:  # a run must end
            self._steered += 1
            handle.steer("And now?")


def _subagent(tools: ChaosTools) -> Tool:
    """A loop with misbehaving model and tools, as a tool."""
    llm = ChaosLLM(tools.seed, tools, most_calls=50)
    loop = Loop(tools=tools, retry_delay=0, max_iterations=4, max_retries=1)
    return loop.as_tool("delegate", "Give a task away.", llm)


def without_delays(steps: Steps[Result]) -> Steps[Result]:
    """Middleware that does not wait between attempts."""

    def change(effect: Effect) -> Effect:
        return Sleep(0) if isinstance(effect, Sleep) else effect

    return map_effects(steps, change)
