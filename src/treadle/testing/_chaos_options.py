"""What a chaotic run starts from, and under which options: every option that a loop has, by chance."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from treadle.context import Context
from treadle.loop.options import OF_DEFAULT_STAGES
from treadle.messages import JSONDict, Response, ToolCall
from treadle.stages import default_stages
from treadle.testing._chaos_arguments import LONE
from treadle.testing._chaos_errors import UnspeakableError
from treadle.tools import CircuitBreaker, Locks

MESSAGES: tuple[list[JSONDict], ...] = (
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
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": "x", "arguments": "{"}},
                {"id": "call_0", "type": "function", "function": {"name": "y", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_0", "content": "x"},
        {"role": "tool", "tool_call_id": "call_1_1", "content": "y"},
    ],
)
"""What runs start from; the last one is broken, and repaired on entry."""

_SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
_LLM_OPTS = {"temperature": 0, "response_format": {"type": "json_schema", "schema": {"a": [1]}}}


def _price(response: Response) -> Any:
    """A price list that has its own ideas."""
    prices = (0.001, None, 0, -0.5, math.nan, "much", 10**400)
    place = len(response.text) % (len(prices) + 1)
    if place == len(prices):
        raise UnspeakableError
    return prices[place]


def _repair(call: ToolCall, problems: tuple[str, ...]) -> Any:
    """A repair that hardly ever repairs."""
    place = (len(call.arguments) + len(problems)) % 5
    if place == 0:
        raise UnspeakableError
    mended = (None, call, ToolCall(call.id, call.name, "{}"), ToolCall("x", "unknown", LONE))
    return mended[place - 1]


def _raising(ctx: Context) -> Context:
    """A stage that fails in every fourth iteration."""
    if ctx.iteration % 4 == 3:  # noqa: PLR2004 - as said above
        raise UnspeakableError
    return ctx


def _stages(chance: random.Random) -> list[Any]:
    """The default stages with one that raises among them, or without one that a run can do without."""
    stages: list[Any] = list(default_stages())
    if chance.random() < 0.5:  # noqa: PLR2004 - one or the other
        stages.insert(chance.randrange(len(stages) + 1), _raising)
        return stages
    spare = chance.choice(("budget_guard", "circuit_breaker", "inject_results"))
    return [stage for stage in stages if stage.name != spare]


_Maker: TypeAlias = Callable[[random.Random], Any]


def _one_of(*values: Any) -> _Maker:
    return lambda chance: copy.deepcopy(chance.choice(values))


_OPTIONS: Mapping[str, tuple[float, _Maker]] = {
    "max_iterations": (0.8, _one_of(1, 2, 3, 5, 8, 12, 20)),
    "max_tool_calls": (0.25, _one_of(0, 1, 5, 20)),
    "max_parallel_calls": (0.3, _one_of(1, 2, 3)),
    "max_input_tokens": (0.04, _one_of(1, 100, 1_000)),
    "max_output_tokens": (0.04, _one_of(1, 50, 200)),
    "max_total_tokens": (0.04, _one_of(1, 300, 2_000)),
    "max_cost": (0.06, _one_of(0.0, 0.01)),
    "max_seconds": (0.08, _one_of(0.0, 0.05, 0.3)),
    "on_limit": (0.3, _one_of("finish")),
    "show_budget": (0.2, _one_of(True)),
    "cost_of": (0.1, _one_of(_price)),
    "sequential": (0.4, _one_of("in_step")),
    "dedupe": (0.15, _one_of(False)),
    "max_retries": (0.25, _one_of(0, 1)),
    "loop_threshold": (0.2, _one_of(1, 2, 5, None)),
    "breaker_threshold": (0.2, _one_of(1, 2, 5)),
    "breaker": (0.1, lambda chance: CircuitBreaker(chance.choice((1, 2)), chance.choice((0, 60)))),
    "locks": (0.1, lambda _chance: Locks()),
    "max_blank_stops": (0.2, _one_of(0, 1)),
    "repair_call": (0.1, _one_of(_repair)),
    "output": (0.1, _one_of(_SCHEMA)),
    "llm_opts": (0.3, _one_of(_LLM_OPTS)),
    "stages": (0.06, _stages),
}
"""Each option with its share of runs that have it, and what it is."""


def options_of(chance: random.Random) -> dict[str, Any]:
    """Choose options.

    Args:
        chance: decides.
    """
    made = {
        name: make(chance) for name, (share, make) in _OPTIONS.items() if chance.random() < share
    }
    if "stages" in made:
        made = {name: made[name] for name in made if name not in OF_DEFAULT_STAGES}
    return made
