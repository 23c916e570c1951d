"""The relays of a worker, which pass the events of its runs to listeners outside of the workflows."""

import asyncio
import logging

from treadle import Loop
from treadle.durable.temporal import host as hosts
from treadle.durable.temporal.host import Host
from treadle.testing import ScriptedLLM


def with_host(work):
    async def made():
        loop = Loop(llm_send_fn=ScriptedLLM("Hi."), name="mine")
        return await work(Host({"mine": loop}, None, None))

    return asyncio.run(made())


def test_runs_that_went_on_elsewhere_are_forgotten(monkeypatch):
    monkeypatch.setattr(hosts, "MAX_RELAYS", 2)

    async def open_three(host):
        for key in ("a", "b", "c"):
            host.open_relay(key, print, None)
        return [host.relay(key) is None for key in ("a", "b", "c")]

    assert with_host(open_three) == [True, False, False]


def test_a_part_that_is_taken_up_again_keeps_its_listeners():
    async def open_twice(host):
        return host.open_relay("a", print, None) is host.open_relay("a", repr, None)

    assert with_host(open_twice)


def test_events_arrive_in_order_and_a_listener_that_raises_affects_no_other(caplog):
    seen = []

    async def slow(event):
        await asyncio.sleep(0)
        seen.append(event)
        if event == 2:
            raise ValueError("no")

    async def put(host):
        relay = host.open_relay("a", slow, None)
        await asyncio.to_thread(lambda: [relay.put(number) for number in range(5)])
        while len(seen) < 5:
            await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR):
        with_host(put)
    assert seen == [0, 1, 2, 3, 4]
    assert [record.getMessage() for record in caplog.records] == ["a listener raised at int"]


def test_the_events_of_a_subagent_reach_the_listeners_of_its_run_as_theirs():
    seen = []

    async def put(host):
        host.open_relay("outer", seen.append, None)
        outer = {"has_listeners": True, "relay": "outer", "call_id": "c1"}
        inner = host.open_relay("inner", None, outer)
        inner.put("event")
        while not seen:
            await asyncio.sleep(0)

    with_host(put)
    assert [(one.call_id, one.event) for one in seen] == [("c1", "event")]
