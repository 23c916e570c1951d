"""What blocks a worker: an async tool that blocks its event loop, and a slow store."""

import time

import pytest
from temporalio.api.enums.v1 import EventType

from treadle import Loop, tool
from treadle.durable.temporal import SQLiteBlobStore, StoreError, activities, policies
from treadle.testing import ScriptedLLM, call, calls

from . import running


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_tool_that_blocks_the_event_loop_is_not_lost(temporal_server, monkeypatch, idempotent):
    monkeypatch.setattr(policies, "LOST_SECONDS", 2.0)
    monkeypatch.setattr(activities, "HEARTBEAT_SECONDS", 0.3)
    ran = []

    @tool(idempotent=idempotent)
    async def block() -> str:
        """Block the event loop."""
        ran.append(1)
        time.sleep(5)
        return "Blocked."

    loop = Loop(
        llm_send_fn=ScriptedLLM(calls(call("block", "c1")), "Done."), tools=[block], name="blocked"
    )
    result = running.run(temporal_server, lambda client: running.result_of(client, loop))
    assert result.output == "Done."
    assert result.messages[-2]["content"] == "Blocked."
    assert len(ran) == 1


class SlowStore(SQLiteBlobStore):
    """A store that takes its time to read."""

    seconds = 0.0
    fails = 0

    def get(self, key):
        """Read slowly, or fail."""
        time.sleep(self.seconds)
        if self.fails > 0:
            self.fails -= 1
            raise StoreError("the store is being moved")
        return super().get(key)


def test_a_store_that_reads_for_longer_than_a_workflow_may_block(temporal_server, tmp_path):
    store = SlowStore(tmp_path / "store.db")
    store.seconds = 3.0

    @tool
    def read() -> str:
        """Read a long text."""
        return "x" * 40_000

    loop = Loop(
        llm_send_fn=ScriptedLLM(calls(call("read", "c1")), "Done."), tools=[read], name="slow"
    )
    result, failures = running.run(temporal_server, lambda client: failures_of(client, loop, store))
    assert result.output == "Done."
    assert failures == []


def test_a_store_that_cannot_be_read_for_a_time_holds_the_run_up(temporal_server, tmp_path):
    store = SlowStore(tmp_path / "store.db")

    @tool
    def read() -> str:
        """Read a long text."""
        store.fails = 2
        return "x" * 40_000

    loop = Loop(
        llm_send_fn=ScriptedLLM(calls(call("read", "c1")), "Done."), tools=[read], name="away"
    )
    result, failures = running.run(temporal_server, lambda client: failures_of(client, loop, store))
    assert result.output == "Done."
    assert failures
    assert all("the store is being moved" in one for one in failures)


async def failures_of(client, loop, store):
    """The result of a run, and why tasks of its workflow failed."""
    async with running.serving(client, loop, store=store) as queue:
        run = await running.started(client, loop, queue, store=store)
        result = await run.result()
    history = await client.get_workflow_handle(run.run_id).fetch_history()
    failed = [
        one for one in history.events if one.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]
    return result, [one.workflow_task_failed_event_attributes.failure.message for one in failed]
