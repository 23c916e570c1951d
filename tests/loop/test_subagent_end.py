"""A subagent ends when its parent ends, and its state is complete."""

import anyio
import pytest

from treadle import (
    DeadlineExceeded,
    Loop,
    Ok,
    RunCancelled,
    RunHandle,
    RunStarted,
    SubagentEvent,
    ToolStarted,
    approve,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls, check_history

from .children import asked_each, subagent_run
from .conftest import USER, answers, of
from .notes import note


class TestEnd:
    """A subagent ends when its parent ends, and its state is complete."""

    def hanging(self, begin=lambda: None):
        @tool
        async def hang():
            begin()
            await anyio.sleep(30)

        inner = ScriptedLLM(calls(call("note", "n", n=1)), calls(call("hang", "h")))
        return Loop(tools=[hang, note]).as_tool("helper", "Helps.", inner)

    def check(self, state):
        """The state of the subagent: ended, its history valid, its call answered."""
        check_history(state.messages)
        texts = answers(state.messages)
        assert texts["n"] == "noted 1"
        assert texts["h"].startswith("Cancelled: ")
        assert (state.status, state.error) == ("failed", str(RunCancelled()))
        assert [node.status for node in state.nodes] == ["success", "failed"]
        assert state.nodes[1].tool_calls[0].status == "failed"

    def test_at_the_deadline(self, way, clock):
        subagent = self.hanging(clock.limit.strike)
        loop = Loop(tools=[subagent], max_seconds=9, middleware=[clock.middleware])
        result = way.run(loop, ScriptedLLM(asked_each()))
        assert result.reason == DeadlineExceeded(9)
        assert answers(result.messages)["k"].startswith("Cancelled: the run's time was up")
        self.check(subagent_run(result))

    def test_at_its_own_deadline(self, way, clock):
        @tool
        async def hang():
            clock.limit.strike()
            await anyio.sleep(30)

        inner = Loop(tools=[hang], max_seconds=9, middleware=[clock.middleware])
        subagent = inner.as_tool("helper", "h", ScriptedLLM(calls(call("hang", "h"))))
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked_each(), "outer"))
        assert isinstance(result, Ok)
        assert answers(result.messages)["k"].endswith("the run took longer than max_seconds=9")
        assert subagent_run(result).status == "timeout"

    def test_at_the_time_limit_of_its_call(self, way, clock):
        subagent = tool(self.hanging(clock.limit.strike), timeout=9)
        loop = Loop(tools=[subagent], middleware=[clock.middleware])
        result = way.run(loop, ScriptedLLM(asked_each(), "outer"))
        assert answers(result.messages)["k"] == "Error: 'helper' took longer than 9 s."
        self.check(subagent_run(result))

    def test_when_the_run_is_cancelled_through_its_handle(self, way):
        handle = RunHandle()
        loop = Loop(tools=[self.hanging(handle.cancel)])
        result = way.run(loop, ScriptedLLM(asked_each()), handle=handle)
        assert result.reason == RunCancelled()
        self.check(subagent_run(result))

    def test_when_the_tools_are_cancelled_and_the_run_continues(self, way):
        handle = RunHandle()
        loop = Loop(tools=[self.hanging(handle.cancel_all)])
        result = way.run(loop, ScriptedLLM(asked_each(), "then not"), handle=handle)
        assert result.unwrap().content == "then not"
        assert answers(result.messages)["k"].startswith("Cancelled: the call was stopped")
        self.check(subagent_run(result))

    def test_when_a_stage_of_the_parent_is_interrupted(self):
        def stop():
            raise KeyboardInterrupt

        handle = RunHandle()
        loop = Loop(tools=[self.hanging(stop)])
        with pytest.raises(KeyboardInterrupt):
            loop.run_sync(USER, ScriptedLLM(asked_each()), handle=handle)
        check_history(handle.messages)
        check_history(handle.state.nodes[0].tool_calls[0].run.messages)

    def test_siblings_are_ended_with_it(self, way):
        handle = RunHandle()
        inner = Loop(tools=[note])
        begun = []

        async def model(messages):
            begun.append(1)
            if len(begun) == 3:
                handle.cancel()
            await anyio.sleep(30)

        subagent = inner.as_tool("helper", "h", model)
        result = way.run(
            Loop(tools=[subagent]), ScriptedLLM(asked_each("a", "b", "c")), handle=handle
        )
        assert result.reason == RunCancelled()
        states = [subagent_run(result, place) for place in range(3)]
        assert [state.status for state in states] == ["failed"] * 3
        assert all(
            state.messages == [{"role": "user", "content": i}]
            for state, i in zip(states, "abc", strict=True)
        )


class TestWaiting:
    """A subagent that waits for a decision, in a run that ends before it."""

    @pytest.mark.parametrize(("bound", "ended"), [("handle", "failed"), ("time", "timeout")])
    def test_its_state_ends_with_that_of_its_parent(self, recorded, way, clock, bound, ended):
        """The run ends when its call starts again, before the subagent continues."""
        handle = RunHandle()
        ends = handle.cancel if bound == "handle" else clock.limit.strike

        def observe(event):
            if isinstance(event, ToolStarted):
                ends()

        inner = ScriptedLLM(calls(call("note", "n", n=1), call("wipe", "w", path="/")))
        loop = Loop(tools=[recorded.loop().as_tool("helper", "h", inner)])
        paused = way.run(loop, ScriptedLLM(asked_each()))
        assert [one.call_id for one in paused.pending] == ["k/w"]
        bounded = loop.with_options(
            max_seconds=9, middleware=[clock.middleware], handle=handle, on_event=observe
        )
        result = way.resume(bounded, paused, {"k/w": approve}, ScriptedLLM())
        node = result.run.nodes[0].tool_calls[0]
        assert (result.run.status, node.run.status) == (ended, ended)
        assert node.status == "failed"
        check_history(node.run.messages)
        assert recorded.done == ["note 1"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_event_of_a_cancelled_run_reaches_the_parent_too(backend):
    """An observer of the parent receives each start and end of the subagent."""
    events = []

    async def observe(event):
        if isinstance(event, RunStarted):
            scope.cancel()
            await anyio.sleep(30)

    async def main():
        nonlocal scope
        subagent = Loop(on_event=observe).as_tool("helper", "h", lambda m: "in")
        loop = Loop(tools=[subagent], on_event=events.append)
        with anyio.CancelScope() as scope:
            await loop.run(USER, ScriptedLLM(asked_each()))

    scope = None
    anyio.run(main, backend=backend)
    inner = [type(event.event).__name__ for event in of(events, SubagentEvent)]
    assert inner == ["RunStarted", "RunFinished"]
