"""Calls of stages that must not be made twice, whose worker is lost."""

import asyncio
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from treadle import Loop
from treadle.durable.temporal import start_on_temporal
from treadle.effects import Call
from treadle.testing import ScriptedLLM

from . import mailing, running


def test_a_call_of_a_stage_whose_worker_was_lost_is_not_made_again(temporal_server, tmp_path):
    command = [sys.executable, mailing.__file__, temporal_server.address, "mails", str(tmp_path)]

    async def start(client):
        run = await start_on_temporal(
            client,
            mailing.loop_in(tmp_path),
            "Hello.",
            task_queue="mails",
            task_timeout=timedelta(seconds=2),
        )
        first = subprocess.Popen(command)
        assert await asyncio.to_thread(first.wait) == 1
        second = subprocess.Popen(command)
        try:
            return await run.result()
        finally:
            second.kill()
            second.wait()

    result = running.run(temporal_server, start)
    assert result.output == "unknown, sent"
    assert Path(tmp_path / "mails").read_text(encoding="utf-8").split() == ["first", "second"]


def test_a_call_of_a_stage_is_made_once_if_its_workflow_is_never_in_memory(temporal_server):
    made = []

    def count():
        made.append(1)
        return len(made)

    def twice(ctx):
        one = yield Call(count, once=True)
        other = yield Call(count, once=True)
        return ctx.remember("counts", [one, other])

    loop = Loop(llm_send_fn=ScriptedLLM("Done."), name="once", stages=[twice, ...])

    async def start(client):
        async with running.serving(client, loop, max_cached_workflows=0) as queue:
            return await (await running.started(client, loop, queue)).result()

    assert running.run(temporal_server, start).output == "Done."
    assert made == [1, 1]
