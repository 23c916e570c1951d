"""A script gives the same result, history and events as a Temporal workflow as it gives without Temporal."""

import pytest
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from tests.whole.conftest import SYNC
from tests.whole.guard_scripts import SCRIPTS
from tests.whole.scripts import played
from tests.whole.test_same_everywhere import alike, recorded, seen, settled
from tests.deciding import on

from treadle import Loop, RunState
from treadle.results import Paused

from . import running


class _Held:
    def __init__(self, pending):
        self.pending = pending


async def on_temporal(client, script, run_id):
    """Run a script as a workflow; return its result, its events, and its history."""
    llm, options = script.build()
    events = []
    options.setdefault("on_event", events.append)
    loop = Loop(llm_send_fn=llm, **{"name": "agent", **options})
    async with running.serving(client, {"agent": loop}) as queue:
        run = await running.started(client, loop, queue, script.messages, run_id=run_id)
        for decisions in script.decisions:
            state = await running.until(run, lambda state: state["pending"])
            pending = Paused(tuple(map(_pending, state["pending"])))
            await run.decide(on(pending, decisions))
        result = await run.result()
    history = await client.get_workflow_handle(run_id).fetch_history()
    return result, events, history


def _pending(given):
    from treadle.results import PendingCall

    return PendingCall(**given)


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_script_runs_as_a_workflow_as_it_runs_without(script, temporal_server):
    if "handle_ref" in script.build()[1] or script.ends == "paused":
        pytest.skip("x")
    run_id = f"{script.name}"
    expected = played(SYNC, script, state=RunState("agent", run_id))
    result, events, history = running.run(temporal_server, on_temporal, script, run_id)
    assert alike(result) == alike(expected.result)
    assert result.messages == expected.result.messages
    assert list(map(seen, settled(events))) == list(map(seen, settled(expected.events)))
    assert recorded(result.run) == recorded(expected.state)
