"""One run in chaos: a chaotic model, chaotic tools, any options; and what was wrong with it."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from treadle.effects import Effect, Sleep, Steps, map_effects
from treadle.loop import Loop, RunHandle
from treadle.messages import JSONDict, ToolCall
from treadle.results import Paused, Result
from treadle.testing._chaos_arguments import LONE
from treadle.testing._chaos_checks import Facts, told, violations
from treadle.testing._chaos_options import MESSAGES, options_of
from treadle.testing.chaos import ChaosLLM
from treadle.testing.chaos_tools import ChaosTools
from treadle.testing.history import history_problems
from treadle.tools import Approval, Tool, ToolContext, approve, deny, edit

_MOST_PAUSES = 100
_CHILD = 1_000_000
"""Makes the seed of what a child run has of its parent's."""


@dataclass(slots=True)
class Verdict:
    """What came of one seed.

    Args:
        seed: which.
        story: how it was run, and what happened last.
        stop_reason: how it ended; ``none`` where it raised.
        iterations: how many it took.
        pauses: how often it waited for approval.
        violations: what was wrong with it.
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
    """One run in chaos; the seed decides everything about it.

    Args:
        seed: any number.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = chance = random.Random(f"trial {seed}")  # noqa: S311 - no secret
        self.way = chance.choice(("sync", "sync", "asyncio", "asyncio", "stream", "trio"))
        self._is_async = self._share(0.5)
        self.messages = copy.deepcopy(chance.choice(MESSAGES))
        self.options = options_of(chance)
        self._approvals = self._share(0.15)
        self.tools = ChaosTools(seed, approvals=self._approvals)
        self._children = [ChaosTools(seed + _CHILD)] if self._share(0.1) else []
        self._is_resolved = not self._children and self._share(0.1)
        self._offered: list[Tool] = [*self.tools, *map(_child, self._children)]
        hangs = self._share(0.04)
        if hangs:
            self.options["max_seconds"] = 0.2
        knows = self._offered if self._share(0.5) else None
        turns = chance.choice((1, 4)) if self._share(0.05) else None
        self.llm = ChaosLLM(seed, knows, turns=turns, is_async=self._is_async, hangs=hangs)
        self._is_watched = self.way == "stream" or self._share(0.4)
        self._is_handled = self._is_watched and self._share(0.3)
        self._handle: RunHandle | None = None
        self._events: list[Any] = []
        self._heard = self._steered = self._pauses = 0

    def _share(self, share: float) -> bool:
        return self._chance.random() < share

    @property
    def story(self) -> str:
        """How it is run."""
        told = [f"{name}={value!r:.60}" for name, value in self.options.items()]
        flags = {
            "has_listeners": self._is_watched,
            "with a handle": self._is_handled,
            "with a child": bool(self._children),
            "with a resolver": self._is_resolved,
        }
        said = [name for name, is_so in flags.items() if is_so]
        return f"{self.way} {', '.join([*said, repr(self.llm), repr(self.tools), *told])}"

    def run(self) -> Verdict:
        """Run it, and look at what came."""
        verdict = Verdict(self.seed, self.story)
        before = copy.deepcopy(self._of_caller())
        started = time.monotonic()
        try:
            result = self._to_the_end(verdict)
        except Exception as error:  # noqa: BLE001 - none may come out
            verdict.violations.append(f"raised: {told(error)}")
            return verdict
        finally:
            self.llm.let_go()
            verdict.behaviours = frozenset((*self.llm.behaviours, *self.tools.behaviours))
            verdict.story += f" ... {', '.join(self.llm.behaviours[-8:])}"
        facts = Facts(
            result=result,
            given=self.messages,
            options=self.options,
            tools=self.tools,
            others=self._children,
            seconds=time.monotonic() - started,
            events=self._events if self._is_watched else None,
            is_meddled=self._is_handled,
        )
        verdict.stop_reason, verdict.iterations = result.stop_reason, result.iterations
        verdict.violations += violations(facts)
        if before != self._of_caller():
            verdict.violations.append("what the caller gave was changed")
        return verdict

    def _of_caller(self) -> tuple[Any, ...]:
        """All that belongs to the caller, and nobody may change."""
        schemas = [tool.input_schema for tool in self._offered]
        return self.messages, self.options.get("llm_opts"), schemas

    def _to_the_end(self, verdict: Verdict) -> Result:
        """Run, and go on for as long as it pauses."""
        result = self._started()
        while isinstance(result, Paused):
            verdict.pauses += 1
            problems = history_problems(result.messages)
            verdict.violations += [f"paused: history: {problem}" for problem in problems]
            if verdict.pauses > _MOST_PAUSES:
                verdict.violations.append("paused: without end")
                break
            state = json.dumps(result.state, allow_nan=False)
            result = self._resumed(state, self._decisions(result, verdict.pauses))
        return result

    def _decisions(self, paused: Paused, count: int) -> dict[str, Approval]:
        """Approve, deny, edit, or say nothing yet."""
        made: dict[str, Approval] = {}
        for call in paused.pending:
            kinds = (approve, approve, edit(dict(call.arguments)), deny(f"No{LONE}"))
            if count > _MOST_PAUSES // 4 or self._share(0.8):
                made[call.id] = self._chance.choice(kinds)
        return made

    def _started(self) -> Result:
        if self.way == "sync":
            return Loop.run_sync(self.messages, self._backend(), **self._given())
        if self.way == "stream":
            return anyio.run(self._streamed)
        run = functools.partial(Loop.run, self.messages, self._backend(), **self._given())
        return anyio.run(run, backend=self.way)

    async def _streamed(self) -> Result:
        async with Loop.stream(self.messages, self._backend(), **self._given()) as events:
            self._handle = events
            async for event in events:
                try:
                    self._hear(event)
                except ValueError:  # it is for those who are called; here it would end the reader
                    continue
        if events.result is None:
            raise RuntimeError("the stream ended, and there is no result")
        return events.result

    def _resumed(self, state: str, decisions: Mapping[str, Approval]) -> Result:
        backend = self._backend()
        given = self._given()
        if self.way in {"sync", "stream"}:
            return Loop.resume_sync(state, decisions, backend, **given)
        run = functools.partial(Loop.resume, state, decisions, backend, **given)
        return anyio.run(run, backend=self.way)

    def _given(self) -> dict[str, Any]:
        """The options of one call of the loop."""
        given = {**self.options, "tools": self._offered, "retry_delay": 0, "middleware": [hurried]}
        self._events.clear()
        if self._is_resolved:
            given["tools"] = [dataclasses.replace(tool, fn=None) for tool in self._offered]
            given["resolve_tool"] = self._resolve
        is_streamed = self.way == "stream" and not self.llm.sent
        if self._is_watched and not is_streamed:
            given["on_event"] = self._hear
        if self._is_handled and not is_streamed:
            given["handle"] = self._handle = RunHandle()
        return given

    def _backend(self) -> Callable[..., Any]:
        """The model: as it is, or as an async function."""
        if not self._is_async or self.seed % 3 == 0:
            return self.llm

        async def send(messages: list[JSONDict], opts: dict[str, Any]) -> Any:
            return await self.llm(messages, opts)

        return send

    def _resolve(self, call: ToolCall) -> Any:
        tool = next(tool for tool in self.tools if tool.name == call.name)
        return tool.bound(call.input or {}, lambda: ToolContext(call.id, call.name, 1))()

    def _hear(self, event: Any) -> None:
        """Note an event; now and then raise, or do something with the handle."""
        self._events.append(event)
        self._heard += 1
        chance = random.Random(f"{self.seed} {self._heard}").random()  # noqa: S311 - as above
        if self._is_handled and self._handle is not None:
            self._meddle(self._handle, chance)
        if chance > 0.99:  # noqa: PLR2004 - one in a hundred
            raise ValueError("an observer")

    def _meddle(self, handle: RunHandle, chance: float) -> None:
        shares: tuple[tuple[float, Callable[[], object]], ...] = (
            (0.006, handle.cancel),
            (0.03, handle.cancel_all),
            (0.06, self._steer),
        )
        for share, act in shares:
            if chance < share:
                act()
                return

    def _steer(self) -> None:
        if self._handle is not None and self._steered < 3:  # noqa: PLR2004 - a run has to end
            self._steered += 1
            self._handle.steer("And now?")


def _child(tools: ChaosTools) -> Tool:
    """A loop in chaos as a tool."""
    llm = ChaosLLM(tools.seed, tools, most_calls=50)
    loop = Loop(tools=tools, retry_delay=0, max_iterations=4, max_retries=1)
    return loop.as_tool("delegate", "Give a task away.", llm)


def hurried(steps: Steps[Result]) -> Steps[Result]:
    """A layer that does not sleep between the tries of a tool."""

    def see(effect: Effect) -> Effect:
        return Sleep(0) if isinstance(effect, Sleep) else effect

    return map_effects(steps, see)
