"""A script gives the same result, history and events as a Temporal workflow as it gives without Temporal."""

import uuid

import pytest
from tests.deciding import on
from tests.ways import SYNC
from tests.whole.guard_scripts import SCRIPTS
from tests.whole.scripts import played
from tests.whole.test_same_everywhere import alike, recorded, seen, settled

from treadle import Loop, RunState
from treadle.durable.temporal import SQLiteBlobStore, make_replayer
from treadle.durable.temporal.host import HAND_OVER
from treadle.events import IterationFinished, RunFinished, SubagentEvent
from treadle.results import Paused, PendingCall

from . import running

OTHERWISE = {
    "calls_that_wait_for_each_other",  # by a table of locks that loops share: refused, see test_fitness
    "a_run_that_is_resumed_call_by_call",  # a workflow waits for all decisions, see test_approvals
    # A call learns with its next heartbeat that it is cancelled. What it has done by then counts.
    "too_slow_tools",
}
RUN = [
    script
    for script in SCRIPTS
    if script.name not in OTHERWISE
    and script.ends != "paused"  # a workflow that waits has no result
    and "handle_ref" not in script.build()[1]  # steered by signals, see test_signals
]


def loop_of(script, events):
    llm, options = script.build()
    options.setdefault("on_event", events.append)
    return Loop(llm_send_fn=llm, **{"name": "agent", **options})


async def performed(client, script, run_id, store, **worker):
    """Run a script as a workflow; return its result and its events. Its history can be replayed."""
    events = []
    loop = loop_of(script, events)
    async with running.serving(client, loop, store=store, **worker) as queue:
        run = await running.started(
            client, loop, queue, script.messages, run_id=run_id, store=store
        )
        for pauses, decisions in enumerate(script.decisions, 1):
            await running.until_so(lambda pauses=pauses: ends_of(events) == pauses)
            state = await run.state()
            pending = tuple(PendingCall(**one) for one in state["pending"])
            await run.decide(on(Paused(pending), decisions))
        result = await run.result()
    replayed = []
    history = await client.get_workflow_handle(run_id).fetch_history()
    await make_replayer(loop_of(script, replayed), store=store).replay_workflow(history)
    assert replayed == []
    return result, events


def ends_of(events):
    return sum(isinstance(event, RunFinished) for event in events)


def noticed(event):
    """What is equal of an event; without the stage that workflows add."""
    if isinstance(event, SubagentEvent):
        return event.call_id, noticed(event.event)
    if not isinstance(event, IterationFinished):
        return seen(event)
    iteration, trace, *others, _ = seen(event)  # its usage is that of the run so far
    return iteration, [one for one in trace if one != HAND_OVER], others


@pytest.mark.parametrize("script", RUN, ids=repr)
def test_a_script_runs_as_a_workflow_as_it_runs_without(script, temporal_server, tmp_path):
    run_id = f"{script.name}-{uuid.uuid4().hex[:8]}"
    expected = played(SYNC, script, state=RunState("agent", run_id))
    store = SQLiteBlobStore(tmp_path / "store.db")
    result, events = running.run(temporal_server, performed, script, run_id, store)
    assert alike(result) == alike(expected.result)
    assert result.messages == expected.result.messages
    assert list(map(noticed, settled(events))) == list(map(noticed, settled(expected.events)))
    assert recorded(result.run) == recorded(expected.state)


# Temporal warns that it was asked to cancel a local activity that has ended.
@pytest.mark.filterwarnings("ignore:Cannot find activity to cancel:UserWarning")
@pytest.mark.parametrize("script", RUN[::3], ids=repr)
def test_a_worker_that_remembers_no_workflow_runs_a_script_alike(script, temporal_server):
    """Each step of the run begins with a replay of everything before it, as after a crash."""
    run_id = f"{script.name}-{uuid.uuid4().hex[:8]}"
    expected = played(SYNC, script, state=RunState("agent", run_id))
    result, events = running.run(
        temporal_server,
        lambda client: performed(client, script, run_id, None, max_cached_workflows=0),
    )
    assert alike(result) == alike(expected.result)
    assert list(map(noticed, settled(events))) == list(map(noticed, settled(expected.events)))
    assert recorded(result.run) == recorded(expected.state)
