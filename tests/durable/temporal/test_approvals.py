"""Calls of workflows that wait for a person: for days, and for several decisions, some of which do not fit."""

import asyncio
from datetime import timedelta

import pytest

from treadle import Loop, approve, deny, edit, tool
from treadle.durable.temporal import run_on_temporal, start_on_temporal
from treadle.errors import OptionError
from treadle.events import ModelResponded, ToolFinished
from treadle.testing import ScriptedLLM, call, calls, check_history

from . import running
from .servers import time_skipping


class Mail:
    """A tool that needs approval, and what it sent."""

    def __init__(self):
        self.sent = []

        @tool(requires_approval=True)
        def send(to: str) -> str:
            """Send a letter."""
            self.sent.append(to)
            return f"sent to {to}"

        self.send = send


@pytest.fixture
def mail():
    return Mail()


def loop_of(mail, *names, **options):
    batch = calls(*(call("send", f"c{place}", to=name) for place, name in enumerate(names)))
    return Loop(llm_send_fn=ScriptedLLM(batch, "Done."), tools=[mail.send], name="mail", **options)


def waiting(state):
    return len(state["pending"]) > 0


def test_a_call_waits_for_thirty_days(mail, tmp_path):
    """The wait does not count against the time limit of the run, and costs nothing but the time of the server."""

    durations = []

    def note(event):
        if isinstance(event, (ToolFinished, ModelResponded)):
            durations.append(event.duration)

    async def wait():
        async with time_skipping(tmp_path) as environment:
            client = environment.client
            loop = loop_of(mail, "Bob", max_seconds=600, on_event=note)
            async with running.serving(client, loop) as queue:
                run = await running.started(client, loop, queue)
                pending = (await running.until(run, waiting))["pending"]
                started = await environment.get_current_time()
                await environment.sleep(timedelta(days=30))
                assert mail.sent == []
                assert await run.decide({pending[0]["id"]: approve}) == []
                result = await run.result()
                return result, await environment.get_current_time() - started

    result, waited = asyncio.run(wait())
    assert waited >= timedelta(days=30)
    assert result.unwrap().content == "Done."
    assert mail.sent == ["Bob"]
    # The clocks of the worker and of the server differ by thirty days.
    assert len(durations) == 3
    assert all(0 <= duration < 600 for duration in durations)
    [first, _] = result.run.nodes
    assert first.ended_at - first.started_at >= timedelta(days=30).total_seconds()


def test_a_run_continues_when_it_has_a_decision_on_each_call(mail, temporal_server):
    async def decide(client):
        loop = loop_of(mail, "Ann", "Bob", "Cid")
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue)
            state = await running.until(run, waiting)
            ann, bob, cid = [one["id"] for one in state["pending"]]
            assert await run.decide({bob: deny("He moved.")}) == [ann, cid]
            assert [one["id"] for one in (await run.state())["pending"]] == [ann, cid]
            assert await run.decide({cid: edit({"to": "Cindy"})}) == [ann]
            assert mail.sent == []
            assert await run.decide({ann: approve}) == []
            return await run.result()

    result = running.run(temporal_server, decide)
    assert mail.sent == ["Ann", "Cindy"]
    texts = [message["content"] for message in result.messages if message["role"] == "tool"]
    assert texts[0] == "sent to Ann"
    assert "He moved." in texts[1]
    check_history(result.messages)


def test_a_decision_that_does_not_fit_is_refused_and_changes_nothing(mail, temporal_server):
    async def decide(client):
        loop = loop_of(mail, "Ann")
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue)
            [one] = (await running.until(run, waiting))["pending"]
            with pytest.raises(
                OptionError, match="no call 'other' waits in this pause; waiting calls: c0@"
            ):
                await run.decide({"other": approve})
            with pytest.raises(OptionError, match="edit: to: expected string, got integer 5"):
                await run.decide({one["id"]: edit({"to": 5})})
            assert await run.state() == await run.state()
            assert mail.sent == []
            await run.decide({one["id"]: approve})
            result = await run.result()
            with pytest.raises(OptionError, match="the run has ended"):
                await run.decide({one["id"]: approve})
            return result

    assert running.run(temporal_server, decide).stop_reason == "answered"
    assert mail.sent == ["Ann"]


def test_a_run_is_cancelled_while_a_call_waits(mail, temporal_server):
    async def cancel(client):
        loop = loop_of(mail, "Ann")
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue)
            await running.until(run, waiting)
            await run.cancel()
            return await run.result()

    result = running.run(temporal_server, cancel)
    assert result.stop_reason == "cancelled"
    assert result.run.is_terminal
    check_history(result.messages)
    assert mail.sent == []


def test_a_call_of_a_subagent_waits_as_one_of_the_run(mail, temporal_server):
    inner = loop_of(mail, "Bob").as_tool("post", "Sends letters.")
    model = ScriptedLLM(calls(call("post", "p", task="Write to Bob.")), "All done.")

    async def decide(client):
        loop = Loop(llm_send_fn=model, tools=[inner], name="office")
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue)
            [one] = (await running.until(run, waiting))["pending"]
            assert one["id"].startswith("p/c0@")
            await run.decide({one["id"]: approve})
            return await run.result()

    result = running.run(temporal_server, decide)
    assert result.unwrap().content == "All done."
    assert mail.sent == ["Bob"]


def test_a_run_of_an_id_that_was_started_is_that_run(mail, temporal_server):
    async def twice(client):
        loop = loop_of(mail, "Ann")
        async with running.serving(client, loop) as queue:
            run = await running.started(client, loop, queue, run_id="letters-to-ann")
            [one] = (await running.until(run, waiting))["pending"]
            again = await start_on_temporal(
                client, loop, "Other words.", run_id="letters-to-ann", task_queue=queue
            )
            await again.decide({one["id"]: approve})
            return [
                await run.result(),
                await run_on_temporal(
                    client, "mail", "x", run_id="letters-to-ann", task_queue=queue
                ),
            ]

    first, second = running.run(temporal_server, twice)
    assert first == second
    assert mail.sent == ["Ann"]
