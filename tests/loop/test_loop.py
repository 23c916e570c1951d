"""`Loop`: one configuration for any number of runs, on the class and on instances."""

import asyncio
import pydoc
import threading

import anyio
import pytest
from pydantic import BaseModel
from tests.samples import double

from treadle import (
    Err,
    Loop,
    OptionError,
    RunHandle,
    RunState,
    Tool,
    ToolContext,
    ToolDefinitionError,
    stage,
    tool,
)
from treadle.effects import drive_sync
from treadle.events import RunFinished, RunStarted
from treadle.stages import default_stages, validate_calls
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import USER


class Answer(BaseModel):
    """Answer."""

    text: str


class TestWaysToRun:
    """A run on the class or on an instance, with options at either."""

    @pytest.mark.parametrize("loop", [Loop, Loop(), Loop(max_iterations=3)])
    def test_sync_async_streamed_and_as_steps(self, loop):
        assert loop.run_sync(USER, lambda m: "sync").unwrap().content == "sync"

        async def main():
            result = await loop.run(USER, lambda m: "async")
            assert result.unwrap().content == "async"
            async with loop.stream(USER, lambda m: "streamed") as events:
                kinds = [type(event) async for event in events]
            assert (kinds[0], kinds[-1]) == (RunStarted, RunFinished)
            assert events.result.unwrap().content == "streamed"

        anyio.run(main)
        assert drive_sync(loop.steps(USER, lambda m: "steps")).unwrap().content == "steps"

    def test_options_of_a_run_are_for_this_run(self):
        loop = Loop(tools=[double], max_iterations=3)
        script = [calls(call("double", n=n)) for n in range(5)]
        assert loop.run_sync(USER, ScriptedLLM(*script), max_iterations=1).iterations == 1
        assert loop.run_sync(USER, ScriptedLLM(*script)).iterations == 3

    def test_tools_of_a_run_take_the_place_of_those_of_the_loop(self):
        @tool
        def triple(n: int) -> int:
            return 3 * n

        loop, model = Loop(tools=[double]), ScriptedLLM("a", "b", "c")
        loop.run_sync(USER, model, tools=[triple])
        loop.run_sync(USER, model, tools=[*loop.tools.values(), triple])
        loop.run_sync(USER, model)
        offered = [[one["function"]["name"] for one in sent.opts["tools"]] for sent in model.sent]
        assert offered == [["triple"], ["double", "triple"], ["double"]]

    def test_invalid_options_raise_in_the_call_and_not_when_it_is_awaited(self):
        with pytest.raises(OptionError):
            Loop.run(USER, lambda m: "x", max_iteration=1)
        with pytest.raises(ToolDefinitionError):
            Loop.run(USER, lambda m: "x", tools=[5])
        with pytest.raises(OptionError):
            Loop.run(USER, 5)

    def test_it_runs_within_a_running_event_loop_too(self):
        async def main():
            return Loop.run_sync(USER, ScriptedLLM("Hello", is_async=True))

        assert anyio.run(main).unwrap().content == "Hello"


class TestTools:
    """A tool without an implementation is an error when the loop is built."""

    @pytest.mark.parametrize("given", [{"name": "t"}, Tool("t"), Answer])
    def test_without_function_and_resolver_it_is_an_error(self, given):
        with pytest.raises(
            ToolDefinitionError, match="has no function, and there is no resolve_tool"
        ):
            Loop(tools=[given])
        assert Loop(tools=[given], resolve_tool=lambda call: 1).tools

    def test_a_terminal_tool_needs_neither(self):
        assert Loop(tools=[Tool("t", terminal=True)]).tools

    def test_the_model_receives_the_tools_in_order(self):
        with ScriptedLLM("x") as model:
            Loop.run_sync(USER, model, tools=[double, {"name": "t"}], resolve_tool=lambda c: 1)
        assert [t["function"]["name"] for t in model.sent[0].opts["tools"]] == ["double", "t"]

    def test_options_for_the_model_are_sent_with_every_request(self):
        with ScriptedLLM(calls(call("double", n=1)), "x") as model:
            Loop.run_sync(USER, model, tools=[double], llm_opts={"temperature": 0})
        assert [sent.opts["temperature"] for sent in model.sent] == [0, 0]


def test_one_loop_may_be_used_by_many_threads():
    """The runs do not affect each other."""
    loop = Loop(tools=[double], max_iterations=20)
    outcomes = {}

    def work(number):
        script = [calls(call("double", n=number * 100 + n)) for n in range(10)]
        result = loop.run_sync(
            [{"role": "user", "content": str(number)}], ScriptedLLM(*script, f"done {number}")
        )
        outcomes[number] = result

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in outcomes.items():
        check_history(result.messages)
        assert result.unwrap().content == f"done {number}"
        assert result.iterations == 11
        answers = [m["content"] for m in result.messages if m["role"] == "tool"]
        assert answers == [str((number * 100 + n) * 2) for n in range(10)]
    assert len({result.run.run_id for result in outcomes.values()}) == 8


def test_the_callers_messages_are_never_changed():
    given = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "assistant",
              "tool_calls": [call("double", "a", n=1)]}]  # fmt: skip
    before = repr(given)
    result = Loop.run_sync(given, lambda m: "x", tools=[double])
    result.messages[0]["content"].clear()
    assert repr(given) == before


def test_a_model_that_changes_its_messages_does_not_change_the_history():
    def mutate(messages, **opts):
        for message in messages:
            message["content"] = "broken"
        messages.clear()
        return "done"

    result = Loop.run_sync(USER, mutate)
    assert result.messages == [*USER, {"role": "assistant", "content": "done"}]


@pytest.mark.parametrize(
    "given", [None, 5, "", b"Hi", {"role": "user"}, [], [5], [{}], iter([]), {1}]
)
def test_invalid_messages_are_an_err_and_the_model_is_not_called(given):
    with ScriptedLLM() as model:
        result = Loop.run_sync(given, model)
    assert isinstance(result, Err)
    assert result.stop_reason == "invalid_input"
    assert str(result.reason).startswith("messages")
    assert result.messages == []


def test_a_message_that_contains_itself_is_an_err():
    message = {"role": "user", "content": "Hi"}
    message["self"] = message
    result = Loop.run_sync([message], lambda m: "x")
    assert result.stop_reason == "invalid_input"


def test_a_run_continues_in_the_given_state():
    state = RunState("bot", "r1")
    first = Loop.run_sync(USER, lambda m: "one", state=state)
    again = Loop.run_sync([*first.messages, *USER], lambda m: "two", state=state)
    assert again.run is state
    assert (state.iterations, again.iterations, state.run_id) == (2, 1, "r1")
    assert state.messages == again.messages


def test_the_first_middleware_is_the_outermost():
    order = []

    def middleware(name):
        def wrap(steps):
            order.append(f"{name} in")
            result = yield from steps
            order.append(f"{name} out")
            return result

        return wrap

    Loop.run_sync(USER, lambda m: "x", middleware=[middleware("a"), middleware("b")])
    assert order == ["a in", "b in", "b out", "a out"]


@pytest.mark.parametrize("kind", ["mermaid", "text"])
def test_the_diagram_has_its_stages(kind):
    drawn = Loop().diagram(kind)
    assert all(name in drawn for name in Loop().pipeline.names)
    assert drawn.startswith("flowchart") is (kind == "mermaid")
    assert Loop().diagram() == Loop().diagram("mermaid")


class TestSubclass:
    class Quick(Loop):
        """A subclass of `Loop`."""

    def test_with_options_keeps_the_class(self):
        assert type(self.Quick().with_options(max_iterations=2)) is self.Quick

    def test_a_run_on_the_class_uses_its_own_defaults(self):
        class Named(Loop):
            def __init__(self, **options):
                super().__init__(**{"name": "own", **options})

        result = Named.run_sync("Hi", ScriptedLLM("Hello"))
        assert result.run.agent_name == "own"

    def test_help_shows_the_method_and_its_docstring(self):
        assert "without an event loop" in pydoc.render_doc(Loop.run_sync)
        assert "functools.partial" not in pydoc.render_doc(Loop.run_sync)


def test_tools_and_stages_receive_the_deps_of_the_caller():
    seen = []

    @tool
    def look(context: ToolContext) -> str:
        seen.append(context.deps)
        return "seen"

    @stage
    def watch(ctx):
        seen.append(ctx.deps)
        return ctx

    deps = object()
    model = ScriptedLLM(calls(call("look")), "done")
    Loop.run_sync("Hi", model, tools=[look], deps=deps, stages=[watch, *default_stages()])
    assert seen == [deps, deps, deps]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("options", [{}, {"max_seconds": 30}], ids=["no limit", "a time limit"])
def test_a_run_in_a_cancelled_task_reports_its_end_and_makes_no_request(options, backend):
    """Not even to a model that awaits nothing, and whose tools await nothing."""
    made, events, handle = [], [], RunHandle()

    @tool
    async def pay() -> None:
        made.append("paid")

    async def model(messages):
        made.append("asked")
        return calls(call("pay", "c"))

    async def main():
        with anyio.CancelScope() as scope:
            scope.cancel()
            loop = Loop(tools=[pay], handle=handle, on_event=events.append, **options)
            await loop.run(USER, model)
        return scope.cancelled_caught

    assert anyio.run(main, backend=backend)
    assert made == []
    assert (events[-1].stop_reason, handle.result.stop_reason) == ("cancelled", "cancelled")
    check_history(handle.messages)


def test_a_tool_that_cancels_its_own_task_fails_and_the_run_goes_on():
    @tool
    async def cancel() -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    events = []
    model = ScriptedLLM(calls(call("cancel", "c")), "done")
    result = asyncio.run(Loop.run(USER, model, tools=[cancel], on_event=events.append))
    assert result.unwrap().content == "done"
    assert events[-1].tool_calls_count == 1
    check_history(result.messages)
    assert "CancelledError" in result.messages[2]["content"]


def test_an_unhashable_function_repairs_calls():
    class Repair:
        __hash__ = None

        def __call__(self, _call, _problems):
            return None

    assert (
        Loop.run_sync(
            USER, ScriptedLLM("Hello"), stages=[validate_calls(repair_call=Repair()), ...]
        ).stop_reason
        == "answered"
    )
