"""The time limits, retries and heartbeats of activities follow the policies of the tools."""

import asyncio
import time

import pytest
from temporalio.api.enums.v1 import EventType

from treadle import Loop, tool
from treadle.durable.temporal.policies import (
    LONGEST_SECONDS,
    LOST_SECONDS,
    MARGIN_SECONDS,
    MAX_ATTEMPTS,
)
from treadle.providers.middleware import ConcurrencyLimit
from treadle.testing import ScriptedLLM, call, calls

from . import running


@tool(idempotent=True, timeout=5)
def read() -> str:
    """Read something."""
    return "read"


@tool
def write() -> str:
    """Write something."""
    return "written"


async def performed(client, loop, **options):
    """The result of a run, and the events of its history."""
    async with running.serving(client, loop) as queue:
        run = await running.started(client, loop, queue, **options)
        result = await run.result()
        history = await client.get_workflow_handle(run.run_id).fetch_history()
        return result, history.events


def of_kind(events, kind):
    return [one for one in events if one.event_type == EventType.Value(f"EVENT_TYPE_{kind}")]


def test_an_activity_has_the_policies_of_its_tool(temporal_server):
    model = ScriptedLLM(calls(call("read", "c1"), call("write", "c2")), "Done.")
    loop = Loop(llm_send_fn=model, tools=[read, write], name="both")
    _, events = running.run(temporal_server, performed, loop)
    scheduled = [
        one.activity_task_scheduled_event_attributes
        for one in of_kind(events, "ACTIVITY_TASK_SCHEDULED")
    ]
    found = {
        (
            one.activity_type.name,
            one.start_to_close_timeout.ToSeconds(),
            one.heartbeat_timeout.ToSeconds(),
            one.retry_policy.maximum_attempts,
        )
        for one in scheduled
    }
    assert found == {
        ("treadle.chat", LONGEST_SECONDS, LOST_SECONDS, MAX_ATTEMPTS),
        ("treadle.execute_tool", 5 + MARGIN_SECONDS, LOST_SECONDS, MAX_ATTEMPTS),
        ("treadle.execute_tool", LONGEST_SECONDS, LOST_SECONDS, 1),
    }


def test_the_activity_keeps_the_time_limit_of_its_tool(temporal_server):
    """Without a timer of the workflow, and not counting the time in which the activity waits for a worker."""

    @tool(timeout=0.2)
    def slow() -> str:
        """Take long."""
        time.sleep(3)
        return "late"

    loop = Loop(
        llm_send_fn=ScriptedLLM(calls(call("slow", "c1")), "Oh."), tools=[slow], name="slow"
    )
    result, events = running.run(temporal_server, performed, loop)
    assert result.messages[2]["content"] == "Error: 'slow' took longer than 0.2 s."
    assert of_kind(events, "TIMER_STARTED") == []
    assert of_kind(events, "ACTIVITY_TASK_TIMED_OUT") == []


def test_an_exception_of_a_tool_is_an_outcome_and_its_retries_are_those_of_the_run(temporal_server):
    tried = []

    @tool(retries=2)
    def flaky() -> str:
        """Work the third time."""
        tried.append(1)
        if len(tried) < 3:
            raise OSError("not yet")
        return "at last"

    loop = Loop(
        llm_send_fn=ScriptedLLM(calls(call("flaky", "c1")), "Oh."), tools=[flaky], name="flaky"
    )
    result, events = running.run(temporal_server, performed, loop)
    assert result.messages[2]["content"] == "at last"
    assert len(tried) == 3
    assert len(of_kind(events, "ACTIVITY_TASK_SCHEDULED")) == 2 + 3
    assert len(of_kind(events, "TIMER_STARTED")) == 2
    assert of_kind(events, "ACTIVITY_TASK_FAILED") == []


@pytest.mark.parametrize("count", [1, 6])
def test_the_calls_of_a_batch_run_at_the_same_time(count, temporal_server):
    """As many as `max_parallel_calls` allows; each is an activity of its own."""
    running_now, most = set(), []

    @tool
    def meet(name: int) -> str:
        """Meet the others."""
        running_now.add(name)
        end = time.monotonic() + 30
        while len(running_now) < count and time.monotonic() < end:
            time.sleep(0.01)
        most.append(len(running_now))
        return "met"

    batch = calls(*(call("meet", f"c{number}", name=number) for number in range(count)))
    loop = Loop(llm_send_fn=ScriptedLLM(batch, "Done."), tools=[meet], name="meet")
    running.run(temporal_server, performed, loop)
    assert most == [count] * count


def test_the_limits_of_model_calls_hold_for_the_runs_of_a_worker(temporal_server):
    under_way, most = [0], []

    async def model(messages):
        under_way[0] += 1
        most.append(under_way[0])
        await asyncio.sleep(0.3)  # so that they would overlap
        under_way[0] -= 1
        return "Done."

    loop = Loop(
        llm_send_fn=model,
        name="limited",
        model_middleware=[ConcurrencyLimit(1)],
        stages=[lambda ctx: ctx, ...],
    )

    async def run_several(client):
        async with running.serving(client, loop) as queue:
            runs = await asyncio.gather(*(running.started(client, loop, queue) for _ in range(5)))
            return [await run.result() for run in runs]

    assert [one.output for one in running.run(temporal_server, run_several)] == ["Done."] * 5
    assert most == [1] * 5
