"""Steering, cancelling and watching a run on Temporal while it runs."""

import asyncio

import pytest

from treadle import Loop, tool
from treadle.testing import ScriptedLLM, call, calls, check_history

from . import running


class Gate:
    """A tool that waits until a test lets it go on."""

    def __init__(self):
        self.entered, self.opened = asyncio.Event(), asyncio.Event()
        self.ends = []

        @tool
        async def wait(name: str) -> str:
            """Wait."""
            self.entered.set()
            try:
                await self.opened.wait()
            except asyncio.CancelledError:
                self.ends.append("cancelled")
                raise
            self.ends.append("done")
            return name

        self.tool = wait

    def loop(self, *answers):
        model = ScriptedLLM(calls(call("wait", "c1", name="a")), *answers)
        return Loop(llm_send_fn=model, tools=[self.tool], name="gate")


def test_a_message_that_is_sent_while_a_tool_runs_reaches_the_model(temporal_server):
    async def steer(client):
        gate = Gate()
        loop = gate.loop("I see.")
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue)
            await gate.entered.wait()
            state = await run.state()
            assert state["in_flight"] == ["c1"]
            assert state["run"]["status"] == "running"
            await run.steer("Be quick.")
            await run.steer({"role": "user", "content": "Please."})
            gate.opened.set()
            return await run.result()

    result = running.run(temporal_server, steer)
    assert result.unwrap().content == "I see."
    assert [m["content"] for m in result.messages if m["role"] == "user"] == [
        "Hello.",
        "Be quick.\n\nPlease.",
    ]


def test_a_message_that_is_sent_before_a_worker_has_the_run_reaches_the_model(temporal_server):
    async def steer(client):
        loop = Loop(llm_send_fn=ScriptedLLM("I see."), name="quick")
        run = await running.started(client, loop, "later")
        await run.steer("Be quick.")
        async with running.serving(client, loop, task_queue="later"):
            return await run.result()

    result = running.run(temporal_server, steer)
    assert result.messages[0]["content"] == "Hello.\n\nBe quick."


@pytest.mark.parametrize("way", ["signal", "request"])
def test_a_cancelled_run_ends_its_tools_and_has_a_result(way, temporal_server):
    """By the signal, or by Temporal's own request to cancel a workflow."""

    async def cancel(client):
        gate = Gate()
        loop = gate.loop()
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue)
            await gate.entered.wait()
            if way == "signal":
                await run.cancel()
            else:
                await client.get_workflow_handle(run.run_id).cancel()
            return await run.result(), gate.ends

    result, ends = running.run(temporal_server, cancel)
    assert result.stop_reason == "cancelled"
    assert ends == ["cancelled"]
    assert "cancelled" in result.messages[-1]["content"]
    check_history(result.messages)


def test_what_a_tool_returned_when_it_was_cancelled_is_not_lost(temporal_server):
    async def cancel(client):
        entered = asyncio.Event()

        @tool
        async def stubborn() -> str:
            """Go on to the end."""
            entered.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "done all the same"

        model = ScriptedLLM(calls(call("stubborn", "c1")))
        loop = Loop(llm_send_fn=model, tools=[stubborn], name="stubborn")
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue)
            await entered.wait()
            await run.cancel()
            return await run.result()

    result = running.run(temporal_server, cancel)
    assert result.stop_reason == "cancelled"
    assert result.messages[-1]["content"] == "done all the same"


def test_the_text_so_far_of_a_cancelled_stream_is_kept(temporal_server):
    async def cancel(client):
        entered = asyncio.Event()

        async def model(messages):
            yield "Once upon "
            yield "a time"
            entered.set()
            await asyncio.sleep(60)
            yield " there was"

        loop = Loop(llm_send_fn=model, name="stream")
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue)
            await entered.wait()
            await run.cancel()
            return await run.result()

    result = running.run(temporal_server, cancel)
    assert result.messages[-1] == {"role": "assistant", "content": "Once upon a time"}
    assert result.run.nodes[0].model_calls[0].timing is not None


def test_a_cancelled_run_cancels_its_subagents(temporal_server):
    async def cancel(client):
        gate = Gate()
        inner = gate.loop().as_tool("inner", "Waits.")
        model = ScriptedLLM(calls(call("inner", "s", task="Wait.")))
        loop = Loop(llm_send_fn=model, tools=[inner], name="outer")
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue)
            await gate.entered.wait()
            await run.cancel()
            result = await run.result()
            child = await client.get_workflow_handle(f"{run.run_id}/s").describe()
            return result, gate.ends, child.status.name

    result, ends, status = running.run(temporal_server, cancel)
    assert result.stop_reason == "cancelled"
    assert ends == ["cancelled"]
    assert status == "COMPLETED"
    [node] = result.run.nodes[0].tool_calls
    assert node.run.status == "failed"
    check_history(node.run.messages)
