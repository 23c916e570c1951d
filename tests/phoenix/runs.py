"""Runs that report to Phoenix, each with a script and a project.

The token counts of the responses are powers of ten, so that a sum shows which responses were counted, and how
often: 1 and 2, 10 and 20, 100 and 200.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opentelemetry.trace import Tracer

from treadle import Chunk, Loop, Recipe, RecipeStep, Usage, approve, tool
from treadle.stages import ask_model
from treadle.testing import ScriptedLLM, call, calls

QUESTION = [
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "What is twice 21, in confidence?"},
]
MODEL = {"model": "gpt-4o-mini", "temperature": 0.5}
SHOWN = {"openinference.span.kind": "CHAIN", "input.value": "twice 21?"}
PIXEL = "iVBORw0KGgo="

RUNS: dict[str, Callable[[Tracer, dict[str, Any]], Any]] = {}
"""The function of each project; it receives a tracer and the options of its loops."""


def project(run: Callable[[Tracer, dict[str, Any]], Any]) -> Callable[..., Any]:
    """Register a run; its project has the name of the function."""
    RUNS[run.__name__.replace("_", "-")] = run
    return run


def answer(message: Any, place: int) -> dict[str, Any]:
    """A chat completion of a text or of calls.

    Args:
        message: the text, or an assistant message.
        place: the power of ten of its tokens.
    """
    if isinstance(message, str):
        message = {"role": "assistant", "content": message}
    has_calls = bool(message.get("tool_calls"))
    return {
        "id": f"answer-{place}",
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [{"message": message, "finish_reason": "tool_calls" if has_calls else "stop"}],
        "usage": {
            "prompt_tokens": 10**place,
            "completion_tokens": 2 * 10**place,
            "total_tokens": 3 * 10**place,
            "prompt_tokens_details": {"cached_tokens": 10**place // 2},
        },
    }


class Busy(Exception):
    """The error of an overloaded server."""

    status_code = 503


@tool
def double(n: int) -> int:
    """Double a number."""
    return n * 2


@tool
def broken(n: int) -> int:
    """Fail."""
    raise ValueError(f"no {n} in confidence")


@tool(requires_approval=True)
def sign(n: int) -> str:
    """Sign."""
    return f"signed {n}"


@tool
async def hang() -> None:
    """Wait forever."""
    await asyncio.sleep(3600)


def capturing(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with telemetry that captures content."""
    return options | {"telemetry": replace(options["telemetry"], capture_content=True)}


def two_tools(**options: Any) -> None:
    """One call that works, one that fails, an answer."""
    model = ScriptedLLM(
        answer(calls(call("double", "c1", n=21)), 0),
        answer(calls(call("broken", "c2", n=4), text="Let me see."), 1),
        answer("It is 42.", 2),
    )
    Loop.run_sync(QUESTION, model, tools=[double, broken], name="helper", llm_opts=MODEL, **options)


@project
def with_content(tracer: Tracer, options: dict[str, Any]) -> None:
    """The same with content."""
    two_tools(**capturing(options))


@project
def without_content(tracer: Tracer, options: dict[str, Any]) -> None:
    """The same without content."""
    two_tools(**options)


@project
def nested(tracer: Tracer, options: dict[str, Any]) -> None:
    """A subagent that is called twice in parallel."""

    def theirs(messages: list[dict[str, Any]]) -> dict[str, Any]:
        task = messages[0]["content"]
        place = {"one": 1, "two": 3}[task]
        if len(messages) > 1:
            return answer("in", place + 1)
        return answer(calls(call("double", "same", n=place)), place)

    child = Loop(tools=[double], name="kid").as_tool("ask", "Asks.", theirs)
    ours = ScriptedLLM(
        answer(calls(call("ask", "k1", task="one"), call("ask", "k2", task="two")), 0),
        answer("out", 5),
    )
    Loop.run_sync(QUESTION, ours, tools=[child], name="parent", **options)


@project
def retried(tracer: Tracer, options: dict[str, Any]) -> None:
    """A model that is busy twice, and a tool that works at the second attempt."""
    tries: list[int] = []

    @tool(retries=1)
    def flaky() -> str:
        """Work at the second attempt."""
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not yet")
        return "at last"

    model = ScriptedLLM(
        Busy("busy"), Busy("busy"), answer(calls(call("flaky", "c1")), 0), answer("Done.", 1)
    )
    Loop.run_sync(QUESTION, model, tools=[flaky], stages=[ask_model(retry_delay=0), ...], **options)


@project
def resumed(tracer: Tracer, options: dict[str, Any]) -> None:
    """A run that waits for an approval and is resumed."""
    model = ScriptedLLM(answer(calls(call("sign", "c1", n=1)), 0), answer("Signed.", 1))
    loop = Loop(tools=[sign], name="clerk", **options)
    paused = loop.run_sync(QUESTION, model)
    loop.resume_sync(json.dumps(paused.state), {call.id: approve for call in paused.pending}, model)


@project
def failed(tracer: Tracer, options: dict[str, Any]) -> None:
    """A model with an error that is not retried."""
    model = ScriptedLLM(answer(calls(call("double", "c1", n=1)), 0), TypeError("in confidence"))
    Loop.run_sync(QUESTION, model, tools=[double], **options)


@project
def streamed(tracer: Tracer, options: dict[str, Any]) -> None:
    """Streamed responses; the last chunk has the tokens."""

    def pieces(place: int, *texts: str) -> list[Chunk]:
        usage = Usage(10**place, 2 * 10**place)
        end = Chunk(finish_reason="stop", usage=usage, model="gpt-4o-mini-2024-07-18")
        return [*(Chunk(text) for text in texts), end]

    async def stream() -> None:
        model = ScriptedLLM(pieces(0, "It ", "is ", "42."), is_async=True)
        async with Loop.stream(QUESTION, model, llm_opts=MODEL, **options) as events:
            async for _ in events:
                pass

    asyncio.run(stream())


class RecipeResolver:
    """A resolver whose ``report`` is a recipe."""

    def resolve(self, made: Any) -> Any:
        return f"{made.name} done"

    def available_tools(self) -> list[str]:
        return ["fetch", "count", "sort"]

    def dispatch_recipe(self, name: str) -> Any:
        return self.report if name == "report" else None

    def report(self, arguments: dict[str, Any]) -> Recipe:
        return Recipe(
            serial=[RecipeStep("fetch", {})],
            parallel=[RecipeStep("count", {}), RecipeStep("sort", {})],
        )


REPORT = {
    "name": "report",
    "input_schema": {"type": "object", "properties": {"what": {"type": "string"}}},
}


@project
def recipe(tracer: Tracer, options: dict[str, Any]) -> None:
    """A call that is executed as a recipe."""
    model = ScriptedLLM(answer(calls(call("report", "c1", what="x")), 0), answer("Done.", 1))
    Loop.run_sync(QUESTION, model, tools=[REPORT], resolve_tool=RecipeResolver(), **options)


@project
def cancelled(tracer: Tracer, options: dict[str, Any]) -> None:
    """A run whose task is cancelled while a tool of its subagent hangs."""
    child = Loop(tools=[hang], name="kid").as_tool(
        "ask", "Asks.", ScriptedLLM(answer(calls(call("hang", "h")), 1))
    )
    model = ScriptedLLM(answer(calls(call("ask", "k", task="wait")), 0))

    async def cancel() -> None:
        run = Loop.run(QUESTION, model, tools=[child], name="parent", **options)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(run, 0.3)

    asyncio.run(cancel())


@project
def sessions(tracer: Tracer, options: dict[str, Any]) -> None:
    """Two runs of one conversation, each in a span of the application."""
    for place in (0, 1):
        ids = {"session.id": "conversation-7", "user.id": "ada"}
        with tracer.start_as_current_span("request", attributes=ids | SHOWN):
            Loop.run_sync(QUESTION, ScriptedLLM(answer("42.", place)), **options)


@project
def pictures(tracer: Tracer, options: dict[str, Any]) -> None:
    """A question with several parts, and an answer with reasoning."""
    content = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.jpg"}},
    ]
    said = {"role": "assistant", "content": "A cat.", "reasoning_content": "It has whiskers."}
    messages = [{"role": "user", "name": "ada", "content": content}]
    Loop.run_sync(messages, ScriptedLLM(answer(said, 0)), **capturing(options))


@project
def hostile(tracer: Tracer, options: dict[str, Any]) -> None:
    """Invalid names, arguments and texts."""
    odd = "\ud800 \x00 \u202e </script> \U0001f9f5"
    made = calls(call("double", odd, n=1), call("double", "c2", n=2), call(odd, "c3", n=3))
    made["tool_calls"][1]["function"]["arguments"] = '{"n": NaN}'
    model = ScriptedLLM(answer(made, 0), answer(f"done {odd}", 1))
    messages = [{"role": "user", "content": odd}]
    Loop.run_sync(messages, model, tools=[double], **capturing(options))
