"""A resumed run that is cancelled or fails keeps the results from before and after the pause."""

import anyio
import pytest
from tests.deciding import on

from treadle import (
    DeadlineExceeded,
    Err,
    Limits,
    Loop,
    RunCancelled,
    RunHandle,
    RunStarted,
    approve,
    deny,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import BATCH, SYNC, answers, stored


@pytest.fixture
def paused(recorded):
    """A loop, its model and a paused run of it."""
    loop, model = recorded.loop(), ScriptedLLM(BATCH, "done")
    return loop, model, SYNC.run(loop, model)


class TestCancelled:
    """A resumed run that is cancelled keeps the results from before and after the pause."""

    ONE_BY_ONE = {"sequential": "in_step", "limits": Limits(max_parallel_calls=1)}  # noqa: RUF012 - never changed

    @pytest.fixture
    def hanging(self, recorded):
        @tool
        async def hang():
            self.begin()
            await anyio.sleep(30)

        recorded.tools.append(hang)
        return calls(*BATCH["tool_calls"], call("hang", "h"))

    def begin(self):
        pass

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_by_its_task(self, recorded, hanging, backend):
        before = calls(call("note", "y", n=8), call("note", "z", n=9))
        loop, model = recorded.loop(**self.ONE_BY_ONE), ScriptedLLM(before, hanging)
        pause, handle = SYNC.run(loop, model), RunHandle()

        async def main():
            with anyio.CancelScope() as scope:
                self.begin = scope.cancel
                await loop.resume(stored(pause), on(pause, {"b": approve}), model, handle=handle)
            return scope.cancelled_caught

        assert anyio.run(main, backend=backend)
        check_history(handle.messages)
        texts = answers(handle.messages)
        assert (texts["a"], texts["b"], texts["c"]) == ("noted 1", "wiped /", "noted 3")
        assert texts["h"].startswith("Cancelled: ")
        assert handle.result.reason == RunCancelled()
        assert handle.result.tool_calls_count == 6
        assert handle.state.status == "failed"

    def test_through_its_handle(self, recorded, hanging, way):
        loop, model, handle = recorded.loop(**self.ONE_BY_ONE), ScriptedLLM(hanging), RunHandle()
        pause = SYNC.run(loop, model)
        self.begin = handle.cancel
        result = way.resume(loop, stored(pause), {"b": deny()}, model, handle=handle)
        assert result.reason == RunCancelled()
        texts = answers(result.messages)
        assert (texts["a"], texts["c"]) == ("noted 1", "noted 3")
        assert texts["h"].startswith("Cancelled: ")
        assert (result.iterations, result.tool_calls_count) == (1, 3)

    def test_by_its_time_limit(self, recorded, hanging, way, clock):
        loop, model = recorded.loop(**self.ONE_BY_ONE), ScriptedLLM(hanging)
        pause = SYNC.run(loop, model)
        self.begin = clock.limit.strike
        options = {"max_seconds": 9, "middleware": [clock.middleware]}
        result = way.resume(loop, stored(pause), {"b": approve}, model, **options)
        assert result.reason == DeadlineExceeded(9)
        texts = answers(result.messages)
        assert (texts["a"], texts["b"], texts["c"]) == ("noted 1", "wiped /", "noted 3")
        assert result.run.nodes[0].status == "timeout"

    @pytest.mark.parametrize("when", ["before", "as it starts"])
    def test_before_anything_ran(self, recorded, paused, way, when):
        """Nothing ran, and the results from before the pause are in the history."""
        loop, model, pause = paused
        handle = RunHandle()
        if when == "before":
            handle.cancel()

        def observe(event):
            handle.cancel()

        options = {} if when == "before" else {"on_event": observe}
        result = way.resume(loop, pause, {"b": approve}, model, handle=handle, **options)
        assert result.reason == RunCancelled()
        assert recorded.done == ["note 1"]
        assert answers(result.messages)["a"] == "noted 1"
        assert set(answers(result.messages)) == {"a", "b", "c"}
        assert handle.messages == result.messages
        assert (result.iterations, result.tool_calls_count) == (1, 1)
        assert result.run.nodes[0].status == "failed"

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_by_its_task_before_anything_ran(self, paused, recorded, backend):
        loop, model, pause = paused
        handle = RunHandle()

        async def observe(event):
            scope.cancel()
            await anyio.sleep(30 if isinstance(event, RunStarted) else 0)

        async def main():
            nonlocal scope
            with anyio.CancelScope() as scope:
                await loop.resume(
                    pause, on(pause, {"b": approve}), model, handle=handle, on_event=observe
                )

        scope = None
        anyio.run(main, backend=backend)
        check_history(handle.messages)
        assert answers(handle.messages)["a"] == "noted 1"
        assert recorded.done == ["note 1"]

    def test_an_interrupt_while_an_approved_call_runs(self, recorded):
        @tool(requires_approval=True)
        def stop():
            raise KeyboardInterrupt

        recorded.tools.append(stop)
        loop, handle = recorded.loop(), RunHandle()
        model = ScriptedLLM(calls(call("note", "a", n=1), call("stop", "s")))
        pause = SYNC.run(loop, model)
        with pytest.raises(KeyboardInterrupt):
            loop.resume_sync(pause, on(pause, {"s": approve}), model, handle=handle)
        check_history(handle.messages)
        assert answers(handle.messages)["a"] == "noted 1"


class TestFailing:
    """Whatever ends a resumed run, its history is valid and complete."""

    def test_a_model_that_fails(self, paused, way):
        loop, _, pause = paused
        result = way.resume(loop, pause, {"b": approve}, ScriptedLLM(TypeError("no")))
        assert (type(result), result.stop_reason) == (Err, "llm_error")
        assert answers(result.messages) == {"a": "noted 1", "b": "wiped /", "c": "noted 3"}

    def test_a_stage_that_fails(self, recorded, paused, way):
        _, _, pause = paused

        def broken(ctx):
            raise ValueError("stage")

        loop = Loop(tools=recorded.tools)
        stages = loop.pipeline.insert_before("inject_results", broken)
        result = way.resume(Loop(tools=recorded.tools, stages=stages), pause, {"b": deny("x")}, len)
        assert (result.stop_reason, result.reason.stage) == ("pipeline_failed", "broken")
        assert answers(result.messages)["a"] == "noted 1"
        assert "did not approve this call: x" in answers(result.messages)["b"]

    def test_a_limit_that_the_iteration_reached(self, recorded, way):
        loop, model = recorded.loop(max_iterations=1), ScriptedLLM(BATCH)
        pause = way.run(loop, model)
        result = way.resume(loop, stored(pause), {"b": approve}, model)
        assert (result.stop_reason, result.iterations) == ("max_iterations_reached", 1)
        assert result.run.nodes[0].status == "success"
        assert len(answers(result.messages)) == 3
