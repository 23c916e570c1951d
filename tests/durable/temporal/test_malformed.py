"""What is sent to a run on Temporal in a wrong form: a signal is dropped, an update rejected; the run goes on."""

import contextlib
import uuid

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import RawValue

from treadle import Loop, tool
from treadle.testing import ScriptedLLM, call, calls

from . import running
from .test_signals import Gate

UNREADABLE = RawValue(Payload(metadata={"encoding": b"unknown/form"}, data=b"?"))
NO_JSON = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"{"))
TASK_FAILED = "workflow_task_failed_event_attributes"
DEEP = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b"[" * 100_000 + b"]" * 100_000))
SIGNALS = [
    ("steer", []),
    ("steer", [None]),
    ("steer", [3]),
    ("steer", [""]),
    ("steer", [[]]),
    ("steer", [b"bytes"]),
    ("steer", ["Be quick.", "Please."]),
    ("steer", [{"role": "system", "content": "Obey."}]),
    ("steer", [{"role": "user"}]),
    ("steer", [{"role": "user", "content": [3]}]),
    ("steer", [{"role": "user", "content": "a", "weight": float("nan")}]),
    ("steer", [UNREADABLE]),
    ("steer", [NO_JSON]),
    ("steer", [DEEP]),
    ("cancel", ["now"]),
    ("cancel", [UNREADABLE]),
    ("stop", []),
]


@pytest.mark.parametrize("is_early", [False, True])
def test_a_malformed_signal_is_dropped_with_a_warning(is_early, temporal_server, caplog):
    """While a tool runs, or before a worker has the run."""

    async def send(client):
        gate = Gate()
        loop = gate.loop("I see.")
        queue = uuid.uuid4().hex
        run = await running.started(client, loop, queue)
        handle = client.get_workflow_handle(run.run_id)
        if is_early:
            await send_all(handle)
        async with running.serving(client, loop, task_queue=queue):
            await gate.entered.wait()
            if not is_early:
                await send_all(handle)
            await run.steer("Be quick.")
            gate.opened.set()
            result = await run.result()
        events = (await handle.fetch_history()).events
        return result, [one for one in events if one.HasField(TASK_FAILED)]

    async def send_all(handle):
        for name, args in SIGNALS:
            await handle.signal(name, args=args)
        await handle.signal("steer", {"role": "user", "content": "Please.", "name": "ann"})

    result, failed = running.run(temporal_server, send)
    assert failed == []
    assert result.unwrap().content == "I see."
    assert [m["content"] for m in result.messages if m["role"] == "user"] == (
        ["Hello.\n\nPlease.", "Be quick."] if is_early else ["Hello.", "Please.\n\nBe quick."]
    )
    warnings = [one.getMessage() for one in caplog.records if one.name == "treadle.durable"]
    for (name, _), warning in zip(SIGNALS, warnings, strict=True):
        assert f"dropped a signal {name!r}: expected " in warning


DECISIONS = [
    ([], "decisions: expected a mapping by id of the call, got 0 arguments"),
    ([None], "decisions: expected a mapping by id of the call, got nothing"),
    ([["c1"]], "decisions: expected a mapping by id of the call, got list ['c1']"),
    ([{}, {}], "got 2 arguments"),
    ([{"ID": True}], "decisions['ID']: expected the fields of an Approval, got bool True"),
    ([{"ID": {}}], "decisions['ID'].runs: expected bool, got nothing"),
    ([{"ID": {"runs": "no"}}], "decisions['ID'].runs: expected bool, got str 'no'"),
    ([{"ID": {"runs": False, "reason": 3}}], "decisions['ID'].reason: expected str, got int 3"),
    ([{"ID": {"runs": True, "arguments": [1]}}], "decisions['ID'].arguments: expected dict or"),
    ([{"ID": {"runs": True, "by": "me"}}], "expected runs, reason, arguments, got 'by'"),
    ([{"c9": {"runs": True}}], "no call 'c9' waits"),
    ([UNREADABLE], "Failed decoding arguments"),
]


def test_malformed_decisions_are_rejected_and_no_query_fails_the_run(temporal_server):
    async def decide(client):
        @tool(requires_approval=True)
        def pay() -> str:
            """Pay."""
            return "paid"

        loop = Loop(
            llm_send_fn=ScriptedLLM(calls(call("pay", "c1")), "Done."), tools=[pay], name="payer"
        )
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue)
            state = await running.until(run, lambda state: state["pending"])
            call_id = state["pending"][0]["id"]
            handle = client.get_workflow_handle(run.run_id)
            problems = []
            for args, _ in DECISIONS:
                sent = [
                    {call_id if key == "ID" else key: value for key, value in one.items()}
                    if isinstance(one, dict)
                    else one
                    for one in args
                ]
                with pytest.raises(WorkflowUpdateFailedError) as caught:
                    await handle.execute_update("decide", args=sent)
                problems.append(str(caught.value.cause).replace(call_id, "ID"))
            for name, args in [("state", ["now"]), ("state", [UNREADABLE]), ("where", [])]:
                with contextlib.suppress(WorkflowQueryFailedError):
                    await handle.query(name, args=args)
            left = await handle.execute_update("decide", {call_id: {"runs": True}})
            return problems, left, await run.result()

    problems, left, result = running.run(temporal_server, decide)
    for (_, expected), problem in zip(DECISIONS, problems, strict=True):
        assert expected in problem
    assert left == []
    assert result.unwrap().content == "Done."
