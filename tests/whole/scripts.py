"""Named runs, scripted to the last word: what the tests of the whole compare, record and replay."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
from pydantic import BaseModel
from tests.samples import add

from treadle import (
    Chunk,
    Err,
    Limits,
    Ok,
    Recipe,
    RecipeStep,
    Response,
    ToolCall,
    ToolSearch,
    Usage,
    stage,
    tool,
)
from treadle.messages import CallChunk
from treadle.model.retry import status_of
from treadle.stages import ask_model, default_stages, loop_decision, validate_calls
from treadle.testing import ScriptedLLM, call, calls

HELLO = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."})


@dataclass(frozen=True)
class Script:
    """One run: its model, its options and how it ends.

    Args:
        name: names it in test ids.
        ends: the stop reason.
        build: makes the backend and the options; anew each time, since tools may count.
        messages: what it starts from.
        decisions: what is decided at each of its pauses.
    """

    name: str
    ends: str
    build: Callable[[], tuple[Any, dict[str, Any]]]
    messages: Any = field(default=HELLO)
    decisions: tuple[dict[str, Any], ...] = ()

    def __repr__(self) -> str:
        return self.name


def played(way: Any, script: Script, **more: Any) -> Any:
    """Run a script in some way, with its pauses; return what was observed."""
    llm, options = script.build()
    observed = way.run(script.messages, llm, **options, **more)
    for decisions in script.decisions:
        assert observed.result.stop_reason == "paused"
        way.resume(observed, decisions, llm, **options, **more)
    assert observed.result.stop_reason == script.ends
    return observed


SCRIPTS: list[Script] = []


def script(
    ends: str = "answered", messages: Any = HELLO, decisions: tuple[dict[str, Any], ...] = ()
) -> Callable[[Any], Any]:
    """Register a function that makes a backend, or a backend and options."""

    def register(build: Callable[[], Any]) -> Any:
        def built() -> tuple[Any, dict[str, Any]]:
            made = build()
            return made if isinstance(made, tuple) else (made, {})

        SCRIPTS.append(Script(build.__name__, ends, built, messages, decisions))
        return build

    return register


# Tools.


@tool
async def join(parts: list[str]) -> str:
    """Join texts."""
    await anyio.lowlevel.checkpoint()
    return "".join(parts)


@tool
async def nap(seconds: float) -> str:
    """Sleep on the event loop."""
    await anyio.sleep(seconds)
    return f"slept {seconds}"


@tool
def doze(seconds: float) -> str:
    """Sleep in a thread."""
    time.sleep(seconds)
    return f"dozed {seconds}"


@tool
def boom(text: str = "no") -> None:
    """Fail."""
    raise ValueError(text)


@tool
async def boom_later(text: str = "no") -> None:
    """Fail after a while."""
    await anyio.sleep(0.01)
    raise LookupError(text)


@tool(parallel_safe=False)
def alone(n: int) -> str:
    """Run while nothing else runs."""
    return f"alone {n}"


def flaky(failures: int, *, is_async: bool) -> Any:
    """A tool that fails so many times, and may be tried once more."""
    left = itertools.count(failures, -1)

    def attempt() -> str:
        if next(left) > 0:
            raise OSError("not yet")
        return "at last"

    async def attempt_later() -> str:
        return attempt()

    return tool(name="flaky", description="", retries=1)(attempt_later if is_async else attempt)


def counter() -> Any:
    """A tool whose result is another each time."""
    numbers = itertools.count(1)
    return tool(name="count", description="")(lambda: next(numbers))


class Busy(Exception):
    """What a server under load answers."""

    status_code = 503


class Refused(Exception):
    """What a server answers to a request that it does not understand."""

    status_code = 400


assert status_of(Busy()) == 503


class Answer(BaseModel):
    number: int


# Text, calls, and the forms in which a backend answers.


@script()
def plain_text():
    return ScriptedLLM("Hi.")


@script()
def plain_text_of_an_async_backend():
    return ScriptedLLM("Hi.", is_async=True)


@script()
def a_response_with_usage():
    return ScriptedLLM(Response("Hi.", usage=Usage(3, 2), model="m", finish_reason="stop"))


@script()
def a_chat_completion():
    message = {"role": "assistant", "content": "Hi.", "reasoning": "They greet."}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    choices = [{"message": message, "finish_reason": "stop"}]
    return ScriptedLLM({"id": "x", "model": "m", "choices": choices, "usage": usage})


@script()
def a_backend_that_takes_messages_alone():
    return lambda messages: f"{len(messages)} messages"


@script()
def a_backend_that_takes_options_as_a_dict():
    def backend(messages, opts):
        return f"{sorted(opts)}, {opts['temperature']}"

    return backend, {"llm_opts": {"temperature": 0}, "tools": [add]}


@script()
def one_sync_call():
    model = ScriptedLLM(calls(call("add", "c1", a=1, b=2), text="Let me see."), "3.")
    return model, {"tools": [add, join]}


@script()
def one_async_call():
    return ScriptedLLM(calls(call("join", "c1", parts=["a", "b"])), "ab."), {"tools": [add, join]}


@script()
def one_call_after_another_by_an_async_backend():
    model = ScriptedLLM(
        calls(call("add", "c1", a=1, b=2)),
        calls(call("join", "c2", parts=["3"])),
        calls(call("add", "c3", a=3, b=3)),
        "6.",
        is_async=True,
    )
    return model, {"tools": [add, join]}


@script()
def parallel_calls_sync_and_async():
    batch = calls(
        call("doze", "c1", seconds=0.06),
        call("nap", "c2", seconds=0.03),
        call("add", "c3", a=1, b=1),
        call("nap", "c4", seconds=0.09),
    )
    return ScriptedLLM(batch, "Done."), {"tools": [add, nap, doze]}


@script()
def parallel_calls_two_at_a_time():
    batch = calls(*(call("nap", f"c{n}", seconds=0.01 * (5 - n)) for n in range(5)))
    return ScriptedLLM(batch, "Done."), {"tools": [nap], "limits": Limits(max_parallel_calls=2)}


@script()
def calls_that_run_alone_between_others():
    batch = calls(
        call("nap", "c1", seconds=0.01),
        call("add", "c2", a=1, b=1),
        call("alone", "c3", n=1),
        call("alone", "c4", n=2),
        call("nap", "c5", seconds=0.01),
    )
    return ScriptedLLM(batch, "Done."), {"tools": [add, nap, alone]}


@script()
def ids_that_are_empty_or_taken():
    batch = calls(
        call("add", "c1", a=1, b=1), call("add", "c1", a=2, b=2), call("add", "", a=3, b=3)
    )
    batch["tool_calls"][2]["id"] = ""
    return ScriptedLLM(batch, calls(call("add", "c1", a=4, b=4)), "Done."), {"tools": [add]}


@script()
def tools_that_return_ok_and_err():
    @tool
    def good() -> Any:
        """Succeed."""
        return Ok({"n": 1})

    @tool
    async def bad() -> Any:
        """Fail."""
        return Err("no such thing")

    return ScriptedLLM(calls(call("good", "c1"), call("bad", "c2")), "Done."), {
        "tools": [good, bad]
    }


@script()
def results_that_are_no_text():
    class Point(BaseModel):
        x: int

    values = iter([None, b"\0\1", [1, {"a": None}], Point(x=1), "x" * 60_000, "a\0b", object])

    @tool
    def value() -> Any:
        """Return something."""
        return next(values)

    model = ScriptedLLM(*(calls(call("value", f"c{n}")) for n in range(7)), "Done.")
    return model, {"tools": [value], "loop_threshold": 100}


# Tools that are searched.


def embed(texts: list[str]) -> list[list[float]]:
    """The numbers of some letters: enough to tell these tools apart."""
    return [[1.0, *(float(text.count(letter)) for letter in "ajn")] for text in texts]


async def embed_later(texts: list[str]) -> list[list[float]]:
    await anyio.sleep(0.01)
    return embed(texts)


@script()
def tools_that_are_searched_and_called_through_another():
    model = ScriptedLLM(
        calls(
            call("search_tools", "c1", query="sum of numbers"),
            call("search_tools", "c2", query="xyz"),
        ),
        calls(
            call("call_tool", "c3", name="add", arguments={"a": 1, "b": 2}),
            call("call_tool", "c4", name="ad", arguments={}),
            call("call_tool", "c5", name="add", arguments={"a": "x"}),
            call("call_tool", "c6", name="join", arguments='{"parts": ["a"]}'),
        ),
        "3.",
    )
    return model, {"tools": [add, join, nap], "tool_search": ToolSearch(limit=1)}


@script()
def tools_that_are_embedded_and_offered_once_they_are_found():
    search = calls(
        call("search_tools", "c1", query="join"), call("search_tools", "c2", query="nap")
    )
    model = ScriptedLLM(search, calls(call("join", "c3", parts=["a", "b"])), "ab.")
    found = ToolSearch("native", limit=1, embed=embed)
    return model, {"tools": [add, join, nap], "tool_search": found}


@script()
def tools_that_an_async_function_embeds():
    search = calls(
        call("search_tools", "c1", query="join"), call("search_tools", "c2", query="nap")
    )
    model = ScriptedLLM(
        search, calls(call("call_tool", "c3", name="add", arguments={"a": 1, "b": 1})), "2."
    )
    return model, {"tools": [add, join, nap], "tool_search": ToolSearch(embed=embed_later)}


# Invalid calls.


@script()
def malformed_unknown_and_invalid_calls():
    batch = calls(
        call("add", "c1", a=1, b=2),
        call("add", "c2"),
        call("add", "c3"),
        call("ad", "c4", a=1, b=2),
        call("add", "c5", a="one", b=2),
        call("add", "c6", a=1, b=2, c=3),
    )
    batch["tool_calls"][1]["function"]["arguments"] = '{"a": 1, "b"'
    batch["tool_calls"][2]["function"]["arguments"] = "[1, 2]"
    return ScriptedLLM(batch, "Sorry."), {"tools": [add]}


@script()
def a_repaired_call():
    def repair(bad: ToolCall, problems: tuple[str, ...]) -> ToolCall:
        return ToolCall(bad.id, bad.name, '{"a": 1, "b": 1}')

    broken = calls(call("add", "c1"))
    broken["tool_calls"][0]["function"]["arguments"] = "{'a': 1}"
    return ScriptedLLM(broken, "2."), {
        "tools": [add],
        "stages": [validate_calls(repair_call=repair), ...],
    }


# Blank answers, and other ends.


@script()
def a_blank_answer():
    return ScriptedLLM("", {"role": "assistant", "content": None}, "Here I am.")


@script(ends="empty_response")
def blank_answers_only():
    return ScriptedLLM(*[""] * 3), {"stages": [loop_decision(max_blank_stops=2), ...]}


@script(ends="output")
def a_terminal_tool():
    batch = calls(call("add", "c1", a=1, b=1), call("Answer", "c2", number=2))
    return ScriptedLLM(batch), {"tools": [add], "output": Answer}


@script()
def retries_of_the_model():
    model = ScriptedLLM(
        Busy("busy"), ConnectionError("gone"), calls(call("add", "c1", a=1, b=1)), "2."
    )
    return model, {"tools": [add], "retry_delay": 0}


@script(ends="llm_error")
def retries_of_the_model_that_do_not_help():
    return ScriptedLLM(*[Busy("busy")] * 3), {"max_retries": 2, "retry_delay": 0}


@script(ends="llm_error")
def a_model_that_refuses():
    return ScriptedLLM(calls(call("add", "c1", a=1, b=1)), Refused("too long")), {"tools": [add]}


@script(ends="llm_error")
def a_backend_that_answers_with_nothing():
    return lambda messages: None


@script()
def failing_tools():
    batch = calls(call("boom", "c1"), call("add", "c2", a=1, b=1), call("boom_later", "c3"))
    return ScriptedLLM(batch, "Oh."), {"tools": [add, boom, boom_later]}


@script()
def retries_of_a_sync_tool():
    return ScriptedLLM(calls(call("flaky", "c1")), "Ah."), {"tools": [flaky(1, is_async=False)]}


@script()
def retries_of_an_async_tool_that_do_not_help():
    return ScriptedLLM(calls(call("flaky", "c1")), "Oh."), {"tools": [flaky(2, is_async=True)]}


@script()
def tools_out_of_time():
    slow = tool(name="slow", timeout=0.2)(doze.fn)
    slow_async = tool(name="slow_async", timeout=0.2)(nap.fn)
    in_time = tool(name="in_time", timeout=60)(nap.fn)
    batch = calls(
        call("slow", "c1", seconds=1.2),  # much longer than its limit: a busy machine notices late
        call("slow_async", "c2", seconds=30),
        call("add", "c3", a=1, b=1),
        call("in_time", "c4", seconds=0),
    )
    return ScriptedLLM(batch, "Late."), {"tools": [slow, slow_async, in_time, add]}


@script()
def one_tool_out_of_time():
    slow = tool(name="slow", timeout=0.03)(nap.fn)
    return ScriptedLLM(calls(call("slow", "c1", seconds=5)), "Late."), {"tools": [slow]}


@script()
def a_tool_that_cancels_itself():
    import asyncio

    @tool
    async def quitter() -> None:
        """Raise a cancellation without a request."""
        raise asyncio.CancelledError

    batch = calls(call("quitter", "c1"), call("add", "c2", a=1, b=1))
    return ScriptedLLM(batch, "Oh."), {"tools": [quitter, add]}


# Streams.


@script()
def streamed_text():
    return ScriptedLLM(["Hel", "lo", "."])


@script()
def streamed_text_of_an_async_backend():
    return ScriptedLLM(("Hel", "lo", "."), is_async=True)


@script()
def streamed_chunks_with_calls():
    first = [
        Chunk("Let me ", model="m"),
        Chunk("see.", tool_calls=(CallChunk(0, "c1", "add", '{"a": 1'),)),
        Chunk(tool_calls=(CallChunk(0, arguments=', "b": 2}'), CallChunk(1, "c2", "join"))),
        Chunk(tool_calls=(CallChunk(1, arguments='{"parts": ["x"]}'),), finish_reason="tool_calls"),
        Chunk(usage=Usage(7, 5)),
    ]
    return ScriptedLLM(first, [Chunk("3."), Chunk(usage=Usage(9, 1))]), {"tools": [add, join]}


def completion_chunks(text: str, finish_reason: str | None = "stop") -> list[dict[str, Any]]:
    """A text as chat-completion chunks; without a finish reason the stream has broken off."""
    made = [
        {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": piece}}]}
        for piece in text
    ]
    if finish_reason is not None:
        made.append({"id": "x", "choices": [{"delta": {}, "finish_reason": finish_reason}]})
        made.append(
            {"id": "x", "choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}
        )
    return made


@script()
def streamed_completion_chunks():
    return ScriptedLLM(completion_chunks("Hello."), is_async=True)


@script()
def a_stream_that_breaks_off_and_is_asked_for_again():
    model = ScriptedLLM(completion_chunks("Hel", None), completion_chunks("Hello."))
    return model, {"retry_delay": 0, "stages": [ask_model(restart_streams=True), ...]}


@script()
def streams_that_raise_sync_and_async():
    def broken() -> Iterator[str]:
        yield "Hel"
        raise ConnectionError("lost")

    async def broken_later() -> AsyncIterator[str]:
        yield "Hell"
        await anyio.lowlevel.checkpoint()
        raise ConnectionError("lost again")

    streams = iter([broken, broken_later, lambda: iter(["Hello."])])
    return (lambda messages: next(streams)()), {
        "retry_delay": 0,
        "stages": [ask_model(restart_streams=True), ...],
    }


@script(ends="llm_error")
def a_stream_that_breaks_off_after_calls_were_answered():
    model = ScriptedLLM(calls(call("add", "c1", a=1, b=1)), completion_chunks("It is ", None))
    return model, {"tools": [add], "retry_delay": 0}


@script()
def an_async_generator_as_the_backend():
    async def backend(messages):
        for piece in ("Hel", "lo."):
            await anyio.lowlevel.checkpoint()
            yield piece

    return backend


@script()
def a_generator_as_the_backend():
    def backend(messages):
        yield from ("Hel", "lo.")

    return backend


# Limits and guards.


def asking_on(messages: list[Any]) -> dict[str, Any]:
    """The answer of a model that never has enough."""
    return calls(call("count", f"c{len(messages)}"))


@script(ends="max_iterations_reached")
def too_many_iterations():
    return asking_on, {"tools": [counter()], "max_iterations": 3}


@script(ends="budget_exhausted")
def too_many_tool_calls():
    batch = calls(*(call("add", f"c{n}", a=n, b=n) for n in range(4)))
    return ScriptedLLM(batch), {"tools": [add], "max_tool_calls": 2}


@script(ends="budget_exhausted")
def too_many_tokens():
    completion = {"choices": [{"message": calls(call("add", "c1", a=1, b=1))}]}
    usage = {"prompt_tokens": 50, "completion_tokens": 60}
    return ScriptedLLM({**completion, "usage": usage}), {"tools": [add], "max_total_tokens": 100}


@script(ends="deadline_exceeded")
def too_slow_tools():
    batch = calls(
        call("add", "c1", a=1, b=1), call("nap", "c2", seconds=9), call("doze", "c3", seconds=0.9)
    )
    return ScriptedLLM(batch), {"tools": [add, nap, doze], "max_seconds": 0.4}


@script(ends="deadline_exceeded")
def too_slow_a_model():
    async def backend(messages):
        await anyio.sleep(9)

    return backend, {"max_seconds": 0.2}


@script(ends="circuit_broken")
def the_same_error_again_and_again():
    model = ScriptedLLM(*(calls(call("boom", f"c{n}", text="no")) for n in range(3)))
    return model, {"tools": [boom]}


@script(ends="loop_detected")
def the_same_call_again_and_again():
    return ScriptedLLM(*(calls(call("add", f"c{n}", a=1, b=1)) for n in range(4))), {"tools": [add]}


# Stages and input that fail.


@stage
def failing(ctx: Any) -> Any:
    """A stage that raises once there are results."""
    raise RuntimeError("a bug")


@script(ends="pipeline_failed")
def a_stage_that_raises():
    stages = default_stages()
    return ScriptedLLM(calls(call("add", "c1", a=1, b=1))), {
        "tools": [add],
        "stages": [*stages[:6], failing, *stages[6:]],
    }


@script(ends="invalid_input", messages=({"role": "user"}, {"role": "robot", "content": "Hi"}))
def invalid_input():
    return ScriptedLLM()


@script(ends="invalid_input", messages=5)
def input_that_is_no_list():
    return ScriptedLLM()


BROKEN = (
    {"role": "tool", "tool_call_id": "c9", "content": "nobody asked"},
    {"role": "user", "content": "Add.", "cache_control": {"type": "ephemeral"}},
    calls(call("add", "c1", a=1, b=1), call("add", "c1", a=2, b=2)),
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "assistant", "content": ""},
    {"role": "assistant", "content": "One"},
    {"role": "assistant", "content": "two."},
    {"role": "user", "content": "Go on."},
)


@script(messages=BROKEN)
def a_history_that_is_repaired():
    return ScriptedLLM(calls(call("add", "c1", a=3, b=3)), "6."), {"tools": [add]}


# Resolvers and recipes.


def schema_of(name: str) -> dict[str, Any]:
    """A tool without a function."""
    return {"name": name, "input_schema": {"type": "object"}}


@script()
def a_resolver_function():
    def resolve(asked: ToolCall) -> Any:
        return Err("no such page") if asked.input == {} else Ok(f"{asked.name}: {asked.input}")

    batch = calls(call("page", "c1", n=1), call("page", "c2"))
    return ScriptedLLM(batch, "Done."), {"tools": [schema_of("page")], "resolve_tool": resolve}


@script()
def an_async_resolver_of_everything():
    async def resolve(asked: ToolCall) -> Any:
        await anyio.lowlevel.checkpoint()
        return {"asked": asked.name}

    return ScriptedLLM(calls(call("anything", "c1")), "Done."), {"resolve_tool": resolve}


class Library:
    """A resolver with tools and recipes."""

    def available_tools(self) -> list[str]:
        return ["page", "summary", "broken"]

    async def resolve(self, asked: ToolCall) -> Any:
        number = (asked.input or {}).get("n", 0)
        await anyio.sleep(0.02 if number == 1 else 0.0)
        if number == 13:
            raise LookupError("no page 13")
        return f"{asked.name} {number}"

    def dispatch_recipe(self, name: str) -> Any:
        if name == "broken":
            return lambda arguments: 1 / 0
        return self.summary if name == "summary" else None

    @staticmethod
    def summary(arguments: Any) -> Recipe:
        return Recipe(
            serial=[
                RecipeStep("page", {"n": 0}, "contents"),
                RecipeStep("page", lambda results: {"n": 13}),
            ],
            parallel=[RecipeStep("page", {"n": n}) for n in (1, 2, 3)] + [RecipeStep("pge")],
        )


@script()
def a_resolver_with_recipes():
    batch = calls(call("summary", "c1"), call("page", "c2", n=4), call("broken", "c3"))
    return ScriptedLLM(batch, "Done."), {"resolve_tool": Library()}


@script()
def a_recipe_that_composes():
    class Composing(Library):
        @staticmethod
        def summary(arguments: Any) -> Any:
            return {
                "parallel": [("page", {"n": n}, f"p{n}") for n in (1, 2)],
                "compose": sorted,
            }

    return ScriptedLLM(calls(call("summary", "c1")), "Done."), {"resolve_tool": Composing()}
