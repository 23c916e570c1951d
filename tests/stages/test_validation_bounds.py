"""The check of calls is bounded: what may take long runs where time limits apply, and answers are short."""

import threading
from typing import Annotated

import anyio
import pytest
from pydantic import AfterValidator
from tests.growth import is_linear

from treadle import Loop, labels
from treadle.context.calls import MAX_HINTS, MAX_LISTED
from treadle.messages import Response, ToolCall
from treadle.stages import parse_tool_calls, validate_calls
from treadle.stages._validate_calls import MAX_INLINE
from treadle.testing import ScriptedLLM
from treadle.tools import Tool, tool


@tool
def note(text: str): ...


@tool
def points(n: Annotated[int, AfterValidator(lambda n: n)]): ...


def effects_of(ctx):
    """The keys of the effects that the check of a response needs, and the context after it."""
    found, steps = [], validate_calls(parse_tool_calls(ctx))
    try:
        effect = next(steps)
        while True:
            found.append((effect.label, effect.key, effect.mode.value))
            effect = steps.send(effect.fn(*effect.args))
    except StopIteration as stop:
        return found, stop.value


def test_short_arguments_are_checked_at_once(context):
    ctx = context(("note", {"text": "x"}), ("note", {"text": 1}), ("nope", {}), tools=[note])
    found, ctx = effects_of(ctx)
    assert found == []
    assert [call.input for call in ctx.tool_calls] == [{"text": "x"}, None, None]


def test_arguments_that_are_long_together_are_checked_in_a_thread(context):
    half = {"text": "x" * (MAX_INLINE // 2)}
    found, ctx = effects_of(context(("note", half), ("note", half), ("note", {}), tools=[note]))
    assert found == [(labels.VALIDATE, "c2", "thread"), (labels.VALIDATE, "c3", "thread")]
    assert [call.input for call in ctx.tool_calls] == [half, half, None]


def test_arguments_of_a_type_with_validators_are_checked_in_a_thread(context):
    found, ctx = effects_of(context(("points", {"n": 1}), tools=[points]))
    assert found == [(labels.VALIDATE, "c1", "thread")]
    assert ctx.tool_calls[0].input == {"n": 1}


class Hanging:
    """A validator that waits until a test releases it."""

    def __init__(self):
        self.release = threading.Event()

    def tool(self):
        def wait(n):
            self.release.wait()
            return n

        def take(n: Annotated[int, AfterValidator(wait)]): ...

        return tool(take)


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_a_validator_that_hangs_ends_with_the_time_limit_of_the_run(backend):
    hanging = Hanging()
    loop = Loop(tools=[hanging.tool()], max_seconds=0.2)
    model = ScriptedLLM(Response(None, (ToolCall("c1", "take", '{"n": 1}'),)), "Done.")

    async def run():
        result = await loop.run("Hi", model)
        hanging.release.set()  # before the event loop waits for its threads
        return result

    try:
        result = (
            loop.run_sync("Hi", model) if backend == "sync" else anyio.run(run, backend=backend)
        )
    finally:
        hanging.release.set()
    assert result.stop_reason == "deadline_exceeded"


# Names


def unknown_calls(number):
    return [ToolCall(f"c{n}", f"tool_{n:04}_{'abcde' * 20}", "{}") for n in range(number)]


def many_tools(number):
    return [Tool(f"tool{n:04}_{'abcdf' * 20}", fn=lambda: "x") for n in range(number)]


def test_many_unknown_names_get_few_suggestions_and_short_answers(context):
    ctx = context(*unknown_calls(250), tools=many_tools(200))
    _, ctx = effects_of(ctx)
    texts = [result.content for result in ctx.tool_results.values()]
    assert sum("Did you mean 'tool" in text for text in texts) == MAX_HINTS
    assert sum("Available tools" in text for text in texts) == MAX_HINTS
    assert f"and {200 - MAX_LISTED} more" in texts[0]
    assert texts[-1].endswith("The answers above list the available tools.")


def test_the_same_unknown_name_gets_the_same_answer_each_time(context):
    ctx = context(*[("ad", {})] * 2 * MAX_HINTS, tools=[Tool("add", fn=lambda: "x")])
    _, ctx = effects_of(ctx)
    texts = {result.content for result in ctx.tool_results.values()}
    assert len(texts) == 1
    assert "Did you mean 'add'?" in texts.pop()


def test_unknown_names_take_time_linear_in_their_number(context):
    tools = many_tools(100)

    def make(size):
        ctx = parse_tool_calls(context(*unknown_calls(size), tools=tools))
        return lambda: list(validate_calls(ctx))

    assert is_linear(make, 50)
