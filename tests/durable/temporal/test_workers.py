"""Workers have the loops: the model, the tools and `deps`. Callers have a name, or the loop as well."""

import asyncio

from pydantic import BaseModel

from treadle import Loop, ToolContext, tool
from treadle.durable.temporal import SQLiteBlobStore, run_on_temporal
from treadle.events import TextDelta, ToolProgress
from treadle.testing import ScriptedLLM, call, calls

from . import running


class Sum(BaseModel):
    """A sum."""

    number: int


def test_tools_have_the_deps_of_the_worker_and_the_facts_of_the_run(temporal_server):
    seen = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look around."""
        seen.append(ctx)
        return ctx.deps["name"]

    model = ScriptedLLM(calls(call("look", "c1")), "Done.")
    loop = Loop(llm_send_fn=model, tools=[look], deps={"name": "worker"}, max_total_tokens=None)

    async def start(client):
        async with running.serving(client, {"mine": loop}) as queue:
            return await run_on_temporal(client, "mine", "Hello.", task_queue=queue, run_id="look")

    result = running.run(temporal_server, start)
    assert result.messages[2]["content"] == "worker"
    [ctx] = seen
    assert (ctx.call_id, ctx.run_id, ctx.iteration, ctx.attempt) == ("c1", "look", 1, 1)
    assert ctx.remaining.iterations == 9
    assert ctx.idempotency_key == "look/c1"


def test_a_typed_output_is_an_object_for_a_caller_with_the_loop_and_data_for_others(
    temporal_server,
):
    def loop_of():
        return Loop(
            llm_send_fn=ScriptedLLM(calls(call("Sum", number=4))), output=Sum, name="summer"
        )

    async def start(client):
        loop = loop_of()
        async with running.serving(client, loop) as queue:
            return [
                (await run_on_temporal(client, given, "2 + 2?", task_queue=queue, run_id="sum"))
                for given in (loop, "summer")
            ]

    typed, plain = running.run(temporal_server, start)
    assert typed.output == Sum(number=4)
    assert plain.output == {"number": 4}


def test_the_pieces_of_a_stream_and_the_progress_of_a_tool_reach_the_listeners(temporal_server):
    """If the activity runs in the process of the workflow, in the order in which they happen."""
    events = []

    @tool
    def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.report("half", 0.5)
        return "worked"

    async def model(messages):
        if messages[-1]["role"] == "user":
            yield {
                "choices": [
                    {
                        "delta": {
                            "tool_calls": [{"index": 0, "id": "c1", "function": {"name": "work"}}]
                        },
                        "finish_reason": "tool_calls",
                    }
                ]
            }
        else:
            yield "It "
            yield "works."

    async def listen(event):
        await asyncio.sleep(0)
        events.append(event)

    loop = Loop(llm_send_fn=model, tools=[work], name="stream", on_event=listen)
    assert running.run(temporal_server, running.result_of, loop).output == "It works."
    assert [one.text for one in events if isinstance(one, TextDelta)] == ["It ", "works."]
    assert [one.message for one in events if isinstance(one, ToolProgress)] == ["half"]
    assert [one.seq for one in events] == list(range(1, len(events) + 1))


def test_large_results_and_messages_are_in_the_store(temporal_server, tmp_path):
    """Which the history only refers to; the server would refuse them."""
    large = "word " * 600_000

    @tool
    def read() -> str:
        """Read much."""
        return "."

    store = SQLiteBlobStore(tmp_path / "store.db")
    model = ScriptedLLM(calls(call("read", "c1")), large)
    loop = Loop(llm_send_fn=model, tools=[read], name="large")

    async def start(client):
        async with running.serving(client, loop, store=store) as queue:
            run = await running.started(client, loop, queue, large, store=store)
            result = await run.result()
            return result, await client.get_workflow_handle(run.run_id).fetch_history()

    result, history = running.run(temporal_server, start)
    assert result.output == large
    assert result.messages[0]["content"] == large
    assert len(history.to_json()) < 100_000
