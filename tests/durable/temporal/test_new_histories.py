"""A run with a long history goes on in a new one, from the state that a pause has, between two iterations."""

import datetime as dt
import enum
from decimal import Decimal

import pytest

from treadle import Loop, ToolContext, tool
from treadle.durable.temporal import SQLiteBlobStore
from treadle.events import RunFinished, RunStarted
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls, check_history

from . import running

ITERATIONS = 9


class Color(enum.Enum):
    RED = "red"


@tool
def read(page: int, ctx: ToolContext) -> str:
    """Read a page."""
    ctx.report("reading")  # an event that is not one of the workflow
    return f"page {page}: " + "word " * 200


def loop_of(events=None, **options):
    script = [calls(call("read", f"c{page}", page=page)) for page in range(ITERATIONS)]
    options |= {} if events is None else {"on_event": events.append}
    return Loop(
        llm_send_fn=ScriptedLLM(*script, "Read."),
        tools=[read],
        name="reader",
        max_iterations=20,
        **options,
    )


@pytest.mark.parametrize("has_store", [False, True])
def test_a_run_goes_on_in_a_new_history(has_store, temporal_server, tmp_path):
    store = SQLiteBlobStore(tmp_path / "store.db") if has_store else None
    events = []

    async def read_all(client):
        loop = loop_of(events)
        async with running.serving(client, loop, max_events=40, store=store) as queue:
            run = await running.started(client, loop, queue, store=store)
            result = await run.result()
            histories = [one async for one in client.list_workflows(f"WorkflowId = '{run.run_id}'")]
            return result, histories

    result, histories = running.run(temporal_server, read_all)
    expected = loop_of().run_sync("Hello.")
    assert result.messages == expected.messages
    assert (result.iterations, result.tool_calls_count) == (ITERATIONS + 1, ITERATIONS)
    assert len(result.run.nodes) == ITERATIONS + 1
    check_history(result.messages)
    assert len(histories) > 2
    assert {one.status.name for one in histories} == {"CONTINUED_AS_NEW", "COMPLETED"}
    # To listeners, the run is paused and resumed.
    starts = [event.resumed for event in events if isinstance(event, RunStarted)]
    ends = [event.stop_reason for event in events if isinstance(event, RunFinished)]
    assert starts == [False] + [True] * (len(histories) - 1)
    assert ends == ["paused"] * (len(histories) - 1) + ["answered"]
    numbers = [event.seq for event in events]
    assert numbers == list(range(1, len(events) + 1))


def keeping(value):
    """A stage that keeps a value, and the stages after it, which see that it is the same."""

    def keep(ctx):
        assert ctx.memo.get("mine", value) == value
        return ctx.remember("mine", value)

    return keep


async def with_histories(client, loop, suffix=""):
    """The result of a run in short histories, and the histories of its workflow or of that of a subagent."""
    async with running.serving(client, loop, max_events=40) as queue:
        run = await running.started(client, loop, queue)
        result = await run.result()
        query = f"WorkflowId = '{run.run_id}{suffix}'"
        return result, [one async for one in client.list_workflows(query)]


def test_what_stages_keep_goes_on_in_a_new_history(temporal_server):
    kept = [{1, 2}, (3, (4,)), Decimal("1.10"), dt.date(2026, 1, 2), Color.RED, {1: "one"}]

    async def read_all(client):
        return await with_histories(client, loop_of(stages=[keeping(kept), *default_stages()]))

    result, histories = running.run(temporal_server, read_all)
    assert result.unwrap().content == "Read."
    assert len(histories) > 2


@pytest.mark.parametrize("is_subagent", [False, True])
def test_what_cannot_go_on_in_a_new_history_is_an_error_at_once(is_subagent, temporal_server):
    """Also in a run of one iteration, which never goes on in a new history."""

    async def read_one(client):
        stages = [keeping(len), *default_stages()]
        loop = Loop(llm_send_fn=ScriptedLLM("Read."), stages=stages, name="keeper")
        if is_subagent:
            outer = ScriptedLLM(calls(call("keeper", "s", task="Read.")), "All read.")
            loop = Loop(llm_send_fn=outer, tools=[loop.as_tool("keeper", "Keeps.")], name="outer")
        return await running.result_of(client, loop)

    result = running.run(temporal_server, read_one)
    text = result.messages[2]["content"] if is_subagent else str(result.reason)
    assert "stage 'keep'" in text
    assert "memo['mine']" in text
    assert "got builtins:builtin_function_or_method" in text


def test_a_subagent_goes_on_in_a_new_history_within_its_call(temporal_server):
    inner = loop_of().as_tool("reader", "Reads.")

    async def read_all(client):
        model = ScriptedLLM(calls(call("reader", "s", task="Read.")), "All read.")
        loop = Loop(llm_send_fn=model, tools=[inner], name="outer", max_iterations=20)
        return await with_histories(client, loop, "/s")

    result, histories = running.run(temporal_server, read_all)
    assert result.unwrap().content == "All read."
    assert result.messages[2]["content"] == "Read."
    assert len(histories) > 2
    [node] = result.run.nodes[0].tool_calls
    assert node.run.iterations == ITERATIONS + 1
