"""Chaos in company: chaotic models and tools with approvals, children and a user who keeps interrupting."""

from __future__ import annotations

import json
import random
from typing import Any

import anyio
import pytest

from treadle import Limits, Loop, Paused, RunHandle, Tool, approve, deny, edit
from treadle.events import ModelResponded, RunFinished, RunStarted, SubagentEvent
from treadle.testing import ChaosLLM, ChaosTools, check_history

HELLO = [{"role": "user", "content": "Go."}]
MOST_PAUSES = 60


class Trouble:
    """One run in chaos, with all that may come to it from outside; a seed decides everything about it.

    Args:
        seed: any number.
    """

    def __init__(self, seed: int) -> None:
        self.die = random.Random(f"trouble {seed}")
        self.tools = ChaosTools(seed, approvals=True)
        self.theirs = [ChaosTools(seed + 1_000, approvals=True), ChaosTools(seed + 2_000)]
        self.model = ChaosLLM(seed, longest=200, most_calls=30)
        self.options: dict[str, Any] = {
            "max_iterations": self.die.randint(2, 9),
            "max_tool_calls": self.die.choice([None, 10, 40]),
            "max_retries": 1,
            "retry_delay": 0,
            "sequential": self.die.choice(["defer", "in_step"]),
            "limits": Limits(on_limit=self.die.choice(["stop", "finish"])),
            "max_seconds": 20,
        }
        self.handle: RunHandle | None = None
        self.events: list[Any] = []
        self.pauses = self.steered = 0

    def loop(self) -> Loop:
        """The loop, made anew as another process would."""
        child = self.child("inner", self.theirs[1], [])
        return Loop(
            tools=[*self.tools, self.child("delegate", self.theirs[0], [child])], **self.options
        )

    def child(self, name: str, tools: ChaosTools, more: list[Tool]) -> Tool:
        loop = Loop(tools=[*tools, *more], retry_delay=0, max_retries=0, max_iterations=4)
        model = ChaosLLM(tools.seed, [*tools, *more], longest=200, most_calls=10)
        return loop.as_tool(name, "Give a task away.", model)

    async def run(self) -> Any:
        """Run to the end, each time it pauses as if in another process."""
        result = await self.loop().run(HELLO, self.model, **self.heard())
        while isinstance(result, Paused):
            self.pauses += 1
            check_history(result.messages)
            assert result.pending
            assert self.pauses < MOST_PAUSES
            state = json.dumps(result.state, allow_nan=False)
            decisions = self.decisions(result)
            result = await self.loop().resume(state, decisions, self.model, **self.heard())
        return result

    def decisions(self, paused: Paused) -> dict[str, Any]:
        kinds = [approve, approve, deny("No."), "edit"]
        made: dict[str, Any] = {}
        for call in paused.pending:
            if self.die.random() < 0.8 or self.pauses > MOST_PAUSES // 3:
                kind = self.die.choice(kinds)
                made[call.id] = edit(dict(call.arguments)) if kind == "edit" else kind
        return made

    def heard(self) -> dict[str, Any]:
        self.handle = RunHandle()
        return {"handle": self.handle, "on_event": self.hear}

    def hear(self, event: Any) -> None:
        """Note it; now and then say something, or stop the tools."""
        self.events.append(event)
        assert self.handle is not None
        chance = self.die.random()
        if chance < 0.03 and self.steered < 4:
            self.steered += 1
            self.handle.steer("And now?")
        elif chance > 0.98:
            self.handle.cancel_all()

    def check(self, result: Any) -> None:
        check_history(result.messages)
        json.dumps(result.messages).encode()
        assert result.stop_reason not in {"pipeline_failed", "cancelled"}, result
        extra = 2 if self.options["limits"].on_limit == "finish" else 0
        most, tree = self.options["max_iterations"], map(innermost, self.events)
        assert sum(isinstance(event, ModelResponded) for event in self.events) <= most + extra
        assert sum(isinstance(event, ModelResponded) for event in tree) <= 10 * most + extra
        ends = [event for event in self.events if isinstance(event, RunFinished)]
        starts = [event for event in self.events if isinstance(event, RunStarted)]
        assert len(ends) == len(starts) == self.pauses + 1
        assert ends[-1].result == result
        assert result.run.is_terminal


def innermost(event: Any) -> Any:
    return innermost(event.event) if isinstance(event, SubagentEvent) else event


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("block", range(4))
def test_chaos_with_approvals_children_and_steering_ends_well(block: int, backend: str):
    seeds = range(block * 20, block * 20 + 20)
    pauses = steered = 0
    for seed in seeds:
        trouble = Trouble(seed)
        try:
            trouble.check(anyio.run(trouble.run, backend=backend))
        except BaseException as error:
            error.add_note(f"Trouble({seed})")
            raise
        pauses, steered = pauses + trouble.pauses, steered + trouble.steered
    assert pauses
    assert steered
