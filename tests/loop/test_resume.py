"""Resuming is a run like any other: awaited, streamed, observed, steered, cancelled."""

import anyio
import pytest
from tests.deciding import on

from treadle import (
    DeadlineExceeded,
    Err,
    HistoryRepaired,
    IterationFinished,
    Limits,
    Loop,
    Ok,
    OptionError,
    Paused,
    RunCancelled,
    RunFinished,
    RunHandle,
    RunStarted,
    UserMessageAdded,
    approve,
    deny,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import BATCH, SYNC, USER, answers, of, stored


@pytest.fixture
def paused(recorded):
    """A loop, its model and a paused run of it."""
    loop, model = recorded.loop(), ScriptedLLM(BATCH, "done")
    return loop, model, SYNC.run(loop, model)


def names(events):
    return [type(event).__name__ for event in events]


class TestEvents:
    """The events of a pause, and of the resumed run."""

    PAUSING = (
        "RunStarted IterationStarted ModelRequested ModelResponded CallsPlanned ToolStarted ToolFinished "
        "RunFinished"
    )
    RESUMED = (
        "RunStarted ToolStarted ToolFinished ToolStarted ToolFinished IterationFinished "
        "IterationStarted ModelRequested ModelResponded IterationFinished RunFinished"
    )

    def test_the_run_ends_as_paused_and_starts_as_resumed(self, recorded, way):
        events = []
        loop = recorded.loop(
            on_event=events.append, limits=Limits(max_parallel_calls=1), sequential="in_step"
        )
        model = ScriptedLLM(BATCH, "done")
        paused = way.run(loop, model)
        assert names(events) == self.PAUSING.split()
        assert events[-1] == RunFinished(
            stop_reason="paused",
            total_iterations=1,
            tool_calls_count=1,
            result=paused,
            at=0,
            usage=paused.usage,
        )
        assert events[-1].result is paused
        events.clear()
        result = way.resume(loop, stored(paused), {"b": approve}, model)
        assert names(events) == self.RESUMED.split()
        assert isinstance(events[0], RunStarted)
        assert events[0].resumed
        assert events[0].limits == loop.settings.limits
        assert [tool["function"]["name"] for tool in events[0].tools] == list(loop.tools)
        assert events[0].run_id == paused.run.run_id
        assert events[-1].result is result
        assert [event.iteration for event in of(events, IterationFinished)] == [1, 2]

    def test_repairs_of_the_input_are_reported_once(self, recorded, way):
        events = []
        loop, model = recorded.loop(on_event=events.append), ScriptedLLM(BATCH, "done")
        paused = way.run(loop, model, [*USER, {"role": "assistant", "content": ""}])
        assert len(of(events, HistoryRepaired)) == 1
        result = way.resume(loop, stored(paused), {"b": approve}, model)
        assert len(of(events, HistoryRepaired)) == 1
        assert result.run.repairs == paused.run.repairs != ()

    def test_the_start_of_a_run_that_was_not_paused_is_not_marked_as_resumed(self):
        events = []
        Loop.run_sync(USER, lambda m: "x", on_event=events.append)
        assert events[0].resumed is False

    def test_observers_of_iterations_see_the_whole_iteration(self, recorded):
        seen = []
        loop, model = recorded.loop(on_iteration=seen.append), ScriptedLLM(BATCH, "done")
        paused = SYNC.run(loop, model)
        assert seen == []
        SYNC.resume(loop, paused, {"b": approve}, model)
        assert list(seen[0].tool_results) == ["a", "b", "c"]
        assert [one.iteration for one in seen] == [1, 2]


class TestWays:
    """A run can be resumed in every way that it can be started."""

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_streamed_to_the_pause_and_from_it(self, recorded, backend):
        loop, model = recorded.loop(), ScriptedLLM(BATCH, "done")

        async def main():
            async with loop.stream(USER, model) as events:
                first = [event async for event in events]
            check_history(events.result.messages)
            assert isinstance(events.result, Paused)
            assert events.messages == events.result.messages
            async with loop.resume_stream(
                events.result, on(events.result, {"b": approve}), model
            ) as later:
                second = [event async for event in later]
            return first, second, later.result

        first, second, result = anyio.run(main, backend=backend)
        assert (first[-1].stop_reason, second[0].resumed) == ("paused", True)
        assert isinstance(result, Ok)
        assert recorded.did == ["note 1", "note 3", "wipe /"]
        check_history(result.messages)

    def test_with_middleware(self, recorded, paused):
        _, model, pause = paused
        seen = []

        def middleware(steps):
            seen.append("on")
            return (yield from steps)

        result = recorded.loop().resume_sync(
            pause, on(pause, {"b": approve}), model, middleware=[middleware]
        )
        assert (type(result), seen) == (Ok, ["on"])


class TestHandle:
    """The handle of a resumed run."""

    def test_it_has_the_pause_and_then_the_result(self, recorded, way):
        first, second = RunHandle(), RunHandle()
        loop, model = recorded.loop(), ScriptedLLM(BATCH, "done")
        pause = way.run(loop, model, handle=first)
        assert first.result is pause
        assert first.messages == pause.messages
        assert first.in_flight == ()
        result = way.resume(loop, pause, {"b": approve}, model, handle=second)
        assert second.result is result
        assert (first.result, second.state) == (pause, result.run)

    def test_from_the_first_event_on_it_has_the_messages_from_before_the_pause(self, recorded, way):
        handle, seen = RunHandle(), []

        def observe(event):
            seen.append((handle.messages, handle.state.messages, handle.state.status))

        loop, model = recorded.loop(), ScriptedLLM(BATCH, "done")
        pause = way.run(loop, model)
        way.resume(loop, pause, {"b": approve}, model, handle=handle, on_event=observe)
        assert seen[0] == (USER, USER, "running")

    def test_it_belongs_to_one_of_the_two_runs(self, recorded):
        handle = RunHandle()
        loop, model = recorded.loop(handle=handle), ScriptedLLM(BATCH, "done")
        pause = SYNC.run(loop, model)
        with pytest.raises(OptionError, match="belongs to one run"):
            loop.resume_sync(pause, on(pause, {"b": approve}), model)
        assert SYNC.resume(loop, pause, {"b": approve}, model, handle=RunHandle()).unwrap()

    def test_a_paused_run_refuses_messages(self, recorded):
        handle = RunHandle()
        SYNC.run(recorded.loop(), ScriptedLLM(BATCH), handle=handle)
        assert handle.steer("hello?") is False

    def test_a_message_from_before_the_pause_is_added_after_it(self, recorded, way):
        """An accepted message is not lost, even in another process."""
        handle = RunHandle()

        @tool
        def talk():
            assert handle.steer("hurry up")

        recorded.tools.append(talk)
        loop, events = recorded.loop(), []
        model = ScriptedLLM(calls(call("talk", "t"), call("wipe", "b", path="/")), "done")
        pause = way.run(loop, model, handle=handle)
        assert pause.messages[-1]["role"] == "tool"
        result = way.resume(loop, stored(pause), {"b": approve}, model, on_event=events.append)
        assert result.messages[-2] == {"role": "user", "content": "hurry up"}
        assert model.sent[1].messages == result.messages[:-1]
        (steered,) = of(events, UserMessageAdded)
        assert steered.messages == ({"role": "user", "content": "hurry up"},)


# A resumed run that is cancelled or fails keeps the results from before and after the pause.


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
