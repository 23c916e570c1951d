"""Cancelled runs: every span ends, and every run has one completion event."""

from contextlib import suppress

import anyio
import pytest

from treadle import Loop, RunHandle, tool
from treadle.effects import drive
from treadle.events import ModelRequested, SubagentEvent, ToolStarted
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER, double, hang
from .watching import Watch, go


@pytest.fixture(params=["asyncio", "trio"])
def backend(request):
    return request.param


def asked(*ids):
    return calls(*(call("helper", call_id, task=call_id) for call_id in ids))


def helper(*script, tools=(double, hang), **options):
    loop = Loop(tools=tools, name="kid", **options)
    return loop.as_tool("helper", "Helps.", ScriptedLLM(*script))


def kinds_of_error(watch):
    return {span.name: span.attributes.get(names.ERROR_TYPE) for span in watch.spans}


class TestCancelled:
    """Calls that were running when the run was cancelled end with it."""

    def test_by_its_handle(self, driver, watch):
        handle = RunHandle()

        def at_the_call(event):
            inner = event.event if isinstance(event, SubagentEvent) else event
            if isinstance(inner, ToolStarted) and inner.call.name == "hang":
                handle.cancel()

        child = helper(calls(call("hang", "i")))
        go(
            driver, USER, ScriptedLLM(asked("k1")), tools=[child], handle=handle,
            on_event=at_the_call, **watch.options,
        )  # fmt: skip
        watch.check_whole(runs=1)
        assert kinds_of_error(watch) == {
            "chat": None,
            "execute_tool hang": "cancelled",
            "invoke_agent kid": "cancelled",
            "execute_tool helper": "cancelled",
            "invoke_agent": "cancelled",
        }

    def test_during_a_model_call(self, driver, watch):
        handle = RunHandle()

        async def model(messages):
            await anyio.sleep(60)

        def at_the_request(event):
            if isinstance(event, ModelRequested):
                handle.cancel()

        go(driver, USER, model, handle=handle, on_event=at_the_request, **watch.options)
        watch.check_whole(runs=1)
        assert kinds_of_error(watch) == {"chat": "cancelled", "invoke_agent": "cancelled"}

    def test_at_its_time_limit_with_a_tool_that_will_not_end(
        self, backend, watch, limit, monkeypatch
    ):
        """It is left behind and goes on; its span ends with the run all the same."""
        monkeypatch.setattr("treadle.effects.cleanup.GRACE_SECONDS", 0.01)
        ends, is_over = [], []

        @tool
        async def stubborn():
            limit.strike()
            with anyio.CancelScope(shield=True):
                while not is_over:
                    with suppress(anyio.get_cancelled_exc_class()):
                        await anyio.sleep(0.01)
            ends.append(len(watch.spans))

        async def main():
            options = {"tools": [stubborn], "max_seconds": 9, "middleware": [limit.middleware]}
            options.update(watch.options)
            steps = Loop.steps(USER, ScriptedLLM(calls(call("stubborn", "c1"))), **options)
            result = await drive(steps)
            assert result.stop_reason == "deadline_exceeded"
            watch.check_whole(runs=1)
            is_over.append(True)
            with anyio.fail_after(30):
                while not ends:
                    await anyio.sleep(0.01)

        anyio.run(main, backend=backend)
        assert ends == [3]  # it did go on, when all was over
        assert kinds_of_error(watch)["execute_tool stubborn"] == "deadline_exceeded"
        watch.check_whole(runs=1)

    def test_a_stream_that_is_closed_early(self, backend, watch):
        child = helper(calls(call("hang", "i")))

        async def main(leave_at):
            reading = Watch()
            model = ScriptedLLM(asked("k1"))
            async with Loop.stream(USER, model, tools=[child], **reading.options) as events:
                count = 0
                async for _ in events:
                    count += 1
                    if count == leave_at:
                        break
            reading.check_whole(runs=1)
            return reading.kind(names.INVOKE_AGENT)[-1].attributes[names.STOP_REASON]

        reasons = [anyio.run(main, leave_at, backend=backend) for leave_at in range(1, 9)]
        assert set(reasons) == {"cancelled"}

    @pytest.mark.parametrize("place", ["model", "stream", "tool", "child", "observer"])
    def test_by_an_interrupt(self, driver, watch, place):
        @tool
        def broken():
            raise KeyboardInterrupt

        def raising(messages):
            raise KeyboardInterrupt

        def streamed(messages):
            yield "a"
            raise KeyboardInterrupt

        def observe(event):
            if place == "observer" and isinstance(event, ToolStarted):
                raise KeyboardInterrupt

        kid = Loop(tools=[broken], name="kid").as_tool(
            "helper", "", ScriptedLLM(calls(call("broken")))
        )
        first = asked("k1") if place == "child" else calls(call("broken"))
        model = {"model": raising, "stream": streamed}.get(place) or ScriptedLLM(first)
        with pytest.raises(KeyboardInterrupt):
            go(driver, USER, model, tools=[broken, kid], on_event=observe, **watch.options)
        watch.check_whole(runs=1)
        agents = watch.kind(names.INVOKE_AGENT)
        assert {agent.attributes[names.STOP_REASON] for agent in agents} == {"cancelled"}
