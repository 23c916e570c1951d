"""One run for each stop reason."""

from __future__ import annotations

from typing import Any

import anyio

from treadle import Limits, Loop, RunHandle, tool
from treadle.stages import circuit_breaker, loop_decision
from treadle.testing import ScriptedLLM, call, calls

DRIVERS = ("sync", "asyncio", "trio")
USER = [{"role": "user", "content": "Hi"}]


def go(driver: str, messages: Any, llm: Any, **options: Any) -> Any:
    """Run a loop under one of `DRIVERS`."""
    if driver == "sync":
        return Loop.run_sync(messages, llm, **options)
    return anyio.run(lambda: Loop.run(messages, llm, **options), backend=driver)


@tool
def double(n: int):
    return n * 2


@tool
def fail():
    raise ValueError("no")


@tool(requires_approval=True)
def sign():
    return "signed"


@tool
async def hang():
    await anyio.sleep(60)


def broken(ctx):
    raise ValueError("stage")


def handle():
    made = RunHandle()
    made.cancel()
    return made


ONE = [calls(call("double", n=1))]
EXITS = {
    "answered": (["done"], {}),
    "output": (ONE, {"output": "double"}),
    "max_iterations_reached": (ONE, {"max_iterations": 1}),
    "budget_exhausted": (ONE, {"max_tool_calls": 0}),
    "deadline_exceeded": ([calls(call("hang"))], {"max_seconds": 0.03}),
    "circuit_broken": ([calls(call("fail"))], {"stages": [circuit_breaker(threshold=1), ...]}),
    "loop_detected": (ONE, {"loop_threshold": 1, "dedupe": "off"}),
    "llm_error": ([TypeError()], {}),
    "paused": ([calls(call("sign"))], {}),
    "finished": ([*ONE, "so far"], {"max_iterations": 1, "limits": Limits(on_limit="finish")}),
    "empty_response": ([""], {"stages": [loop_decision(max_blank_stops=0), ...]}),
    "pipeline_failed": (["x"], {"stages": [broken]}),
    "invalid_input": ([], {"messages": []}),
    "cancelled": (["x"], {"handle": handle}),
}


def end(driver: str, stop_reason: str, **more: Any) -> Any:
    """End a run in some way, under some driver."""
    script, options = EXITS[stop_reason]
    options = {
        key: made() if callable(made) and key == "handle" else made for key, made in options.items()
    }
    messages = options.pop("messages", USER)
    tools = [double, fail, sign, hang]
    return go(driver, messages, ScriptedLLM(*script), tools=tools, name="bot", **options, **more)
