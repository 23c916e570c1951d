"""Effects are enough: from what became of them alone, a run happens again, to the last detail."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import os
import random
import secrets
import socket
import threading
import time
import uuid
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from tests.deciding import on
from tests.ways import ASYNCIO, SYNC, HandleRef, ObservedRun, Way

from treadle import (
    CircuitBreaker,
    Locks,
    Loop,
    Pauses,
    RunHandle,
    RunState,
    Tool,
    ToolResult,
    tool,
)
from treadle.effects import Cancelled
from treadle.errors import ReplayError
from treadle.events import ToolStarted
from treadle.loop.start import start_run
from treadle.loop.subagent import Subagent
from treadle.testing import ScriptedLLM, call, calls, check_history
from treadle.tools import as_tool

from .guard_scripts import SCRIPTS
from .recorder import NotOverError, Recorder, as_written, replay
from .scripts import HELLO, Busy, Script, add, alone, doze, nap, played
from .test_same_everywhere import alike


def forbidden(*args: Any, **options: Any) -> Any:
    raise AssertionError("a replay touches nothing of the world")


def forbidden_here(real: Any) -> Any:
    """Something that raises in this thread; others, such as that of a background loop, may continue."""
    home = threading.get_ident()

    def touch(*args: Any, **options: Any) -> Any:
        return forbidden() if threading.get_ident() == home else real(*args, **options)

    return touch


WORLD = [
    (time, "time"),
    (time, "perf_counter"),
    (time, "monotonic"),
    (time, "sleep"),
    (random, "random"),
    (random, "uniform"),
    (os, "urandom"),
    (secrets, "token_hex"),
    (uuid, "uuid4"),
    (threading.Thread, "start"),
    (socket, "socket"),
]


@contextlib.contextmanager
def no_world():
    """No clock, no chance, no threads, no sockets."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in WORLD:
            patch.setattr(owner, name, forbidden_here(getattr(owner, name)))
        logging.disable(logging.CRITICAL)  # a log record reads the clock
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def lifeless(options: dict[str, Any]) -> dict[str, Any]:
    """The options with tools that cannot run, models of children that cannot be asked, and no resolver."""
    made = dict(options)
    made.pop("handle_ref", None)
    made["tools"] = [_lifeless(as_tool(given)) for given in options.get("tools", ())]
    resolver = options.get("resolve_tool")
    if hasattr(resolver, "resolve"):
        made["resolve_tool"] = SimpleNamespace(
            resolve=forbidden,
            available_tools=resolver.available_tools,
            dispatch_recipe=resolver.dispatch_recipe,
        )
    elif resolver is not None:
        made["resolve_tool"] = forbidden
    return made


def _lifeless(one: Tool) -> Tool:
    if isinstance(one.steps, Subagent):
        child: Any = copy.copy(one.steps)
        child.loop = child.loop.with_options(
            tools=[_lifeless(made) for made in child.loop.tools.values() if not made.terminal],
            llm_send_fn=forbidden,
        )
        return dataclasses.replace(one, steps=child)
    return dataclasses.replace(one, fn=forbidden) if one.fn is not None else one


def recorded(way: Way, script: Script, **options: Any) -> tuple[ObservedRun, list[list[Any]]]:
    """What was observed of a script, and a recording of each part of it between pauses."""
    recorders: list[Recorder] = []

    def record(steps: Any) -> Any:
        recorders.append(Recorder())
        return recorders[-1](steps)

    observed = played(way, script, **options, middleware=[record])
    return observed, [recorder.log for recorder in recorders]


def replayed(
    messages: Any,
    options: dict[str, Any],
    *logs: list[Any],
    decisions: Any = (),
    wanted: Any = None,
) -> ObservedRun:
    """Run again from recordings.

    Args:
        messages: what the run started from.
        options: its options; nothing in them is alive.
        *logs: a recording of each part of it between pauses.
        decisions: what was decided at each pause.
        wanted: whether a handle is given, as when it was recorded.
    """
    observed = ObservedRun()
    chosen = lifeless(options)
    chosen["on_event"] = observed.events.append
    loop = Loop(**{"name": "agent", **chosen})
    given, state = messages, {"state": observed.state}
    with no_world():
        for number, log in enumerate(logs):
            handle = {"handle": RunHandle()} if wanted else {}
            steps, _ = start_run(loop.with_options(**state, **handle), given, forbidden)
            observed.result = replay(steps, log, observed.events.append)
            if number < len(decisions):
                given, state = (
                    loop.resumption(observed.result, on(observed.result, decisions[number])),
                    {},
                )
    observed.state = observed.result.run
    return observed


def same(one: ObservedRun, other: ObservedRun) -> None:
    """Equal to the last detail: times, delays, durations and the record of the run too."""
    assert other.result == one.result
    assert list(map(repr, other.events)) == list(map(repr, one.events))
    assert other.events == one.events
    assert other.state.as_json() == one.state.as_json()
    assert said(other.state) == said(one.state)


def said(state: RunState) -> list[Any]:
    """What was said in a run, and in its children."""
    children = [call.run for node in state.nodes for call in node.tool_calls if call.run]
    return [state.messages, *map(said, children)]


def again(way: Way, script: Script, *logs: list[Any]) -> ObservedRun:
    """A script once more, from its recordings."""
    options = script.build()[1]
    wanted = way.is_streamed or "handle_ref" in options
    return replayed(script.messages, options, *logs, decisions=script.decisions, wanted=wanted)


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_recorded_run_happens_again_without_the_world(script: Script, driven: Way):
    observed, logs = recorded(driven, script)
    kept = list(map(as_written, logs))
    same(observed, again(driven, script, *kept))


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_recording_changes_nothing(script: Script):
    plain = played(SYNC, script)
    assert alike(recorded(SYNC, script)[0].result) == alike(plain.result)


def test_a_recording_that_was_tampered_with_does_not_pass():
    """The tests above would see it if a recording were not followed to the letter."""
    script = next(script for script in SCRIPTS if script.name == "one_sync_call")
    observed, [log] = recorded(SYNC, script)
    for place, entry in enumerate(log):
        changed, outcome = None, entry.outcome
        if isinstance(outcome, float):
            changed = outcome + 1
        elif isinstance(outcome, tuple):
            value, *times = outcome
            fact = {"content": "4"} if isinstance(value, ToolResult) else {"id": "x"}
            changed = (dataclasses.replace(value, **fact), *times)
        if changed is not None:
            entry = dataclasses.replace(entry, outcome=changed)  # noqa: PLW2901
            tampered = [*log[:place], entry, *log[place + 1 :]]
            with pytest.raises((AssertionError, ReplayError)):
                same(observed, replayed(script.messages, script.build()[1], tampered))


def test_the_delays_of_retries_are_those_that_were_drawn(driven: Way):
    recorder = Recorder()
    options = {"retry_delay": 0.02, "max_retries": 2}
    llm = ScriptedLLM(Busy("busy"), Busy("still busy"), "Hi.")
    observed = driven.run(HELLO, llm, **options, middleware=[recorder])
    second = replayed(HELLO, options, recorder.log)
    same(observed, second)
    delays = [event.delay for event in second.events if hasattr(event, "delay")]
    assert 0.015 <= delays[0] <= 0.02 < 0.03 <= delays[1] <= 0.04


MIXED = [add, nap, doze]


def mixed_batch() -> Any:
    return calls(
        call("add", "c1", a=1, b=1),
        call("nap", "c2", seconds=9),
        call("doze", "c3", seconds=1.5),
        call("nap", "c4", seconds=0.01),
    )


@pytest.mark.parametrize("act", ["cancel", "cancel_all"])
def test_a_run_that_was_stopped_through_its_handle(driven: Way, act: str):
    """Who stopped it is not there any more; what became of the effects is."""
    handle, recorder = RunHandle(), Recorder()

    @tool
    async def stopper() -> str:
        """Stop the run from within."""
        while {"c1", "c4"} & {asked.id for asked in handle.in_flight}:
            await anyio.sleep(0.002)
        getattr(handle, act)()
        await anyio.sleep(9)
        return "too late"

    tools = [*MIXED, stopper, alone]
    batch = mixed_batch()
    batch["tool_calls"] += [call("stopper", "c5"), call("alone", "c6", n=1)]
    llm = ScriptedLLM(batch, "Fine.")
    options = {"tools": tools, "sequential": "in_step"}
    observed = driven.run(HELLO, llm, **options, handle=handle, middleware=[recorder])
    assert observed.result.stop_reason == ("cancelled" if act == "cancel" else "answered")
    check_history(observed.result.messages)
    contents = [m["content"] for m in observed.result.messages if m["role"] == "tool"]
    assert [text.startswith("Cancelled") for text in contents] == [
        name not in {"c1", "c4"} for name in ("c1", "c2", "c3", "c4", "c5", "c6")
    ]

    kept = as_written(recorder.log)
    same(observed, replayed(HELLO, options, kept, wanted=True))


def test_a_late_result_is_dropped_in_the_replay_too(driven: Way):
    """A tool that does not heed its cancellation; its result is stale, then and now."""
    handle, recorder = RunHandle(), Recorder()

    @tool
    async def stubborn() -> str:
        """Finish whatever happens."""
        handle.cancel_all()
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.02)
        return "stale"

    tools = [stubborn]
    llm = ScriptedLLM(calls(call("stubborn", "c1")), "Fine.")
    observed = driven.run(HELLO, llm, tools=tools, handle=handle, middleware=[recorder])
    [answer] = [m["content"] for m in observed.result.messages if m["role"] == "tool"]
    assert answer.startswith("Cancelled")
    same(observed, replayed(HELLO, {"tools": tools}, recorder.log, wanted=True))


# What others did during the run is in the recording, and nowhere else.


def test_a_run_that_waited_for_a_key_which_another_held(driven: Way):
    """In the replay it is free; the run waits all the same."""
    locks, recorder = Locks(), Recorder()
    ticket = locks.enter("a")
    keyed = tool(name="add", lock="a")(add.fn)
    options = {"tools": [keyed], "locks": locks}
    llm = ScriptedLLM(calls(call("add", "c1", a=1, b=1)), "2.")
    left = []

    def leave():
        left.append(time.time())
        locks.leave("a", ticket)

    timer = threading.Timer(0.05, leave)

    def model(messages):
        if not timer.is_alive() and not left:
            timer.start()
        return llm(messages)

    observed = driven.run(HELLO, model, **options, middleware=[recorder])
    timer.join()
    [started] = [event.at for event in observed.events if isinstance(event, ToolStarted)]
    assert started > left[0] - 0.01  # two clocks
    same(observed, replayed(HELLO, {**options, "locks": Locks()}, recorder.log))


def test_a_run_that_met_a_breaker_which_another_had_opened(driven: Way):
    """In the replay it is closed; the tool is unavailable all the same."""
    opened, recorder = CircuitBreaker(threshold=1, cool_down=600), Recorder()
    opened.record("add", "another/c1", "down", time.time())
    llm = ScriptedLLM(calls(call("add", "c1", a=1, b=1)), "Sorry.")
    options = {"tools": [add], "breaker": opened}
    observed = driven.run(HELLO, llm, **options, middleware=[recorder])
    assert "is unavailable and was not tried" in observed.result.messages[3]["content"]
    closed = CircuitBreaker(threshold=1, cool_down=600)
    same(observed, replayed(HELLO, {**options, "breaker": closed}, recorder.log))
    assert closed.states == {}


def test_a_run_that_was_steered_from_another_thread(driven: Way):
    """In the replay no message is added; the recorded one is used."""
    handle_ref, recorder = HandleRef(is_wanted=True), Recorder()

    def think(messages: Any) -> Any:
        thread = threading.Thread(target=lambda: handle_ref.steer("Go on."))
        thread.start()
        thread.join()
        return calls(call("add", "c1", a=1, b=1))

    options = {"tools": [add]}
    llm = ScriptedLLM(think, "2.")
    observed = driven.run(HELLO, llm, **options, handle_ref=handle_ref, middleware=[recorder])
    assert observed.result.messages[4] == {"role": "user", "content": "Go on."}
    same(observed, replayed(HELLO, options, recorder.log, wanted=True))


def test_a_pause_that_is_claimed_once_is_replayed_as_often_as_one_likes(driven: Way):
    """The replay of a resumed run claims no pause."""
    script = next(s for s in SCRIPTS if s.name == "a_run_that_is_resumed")
    claims = CountedClaims()
    observed, logs = recorded(driven, script, pauses=Pauses(claims=claims))
    assert claims.asked == ["claim", "done"]
    options = {**script.build()[1], "pauses": Pauses(claims=claims)}
    for _ in range(2):
        same(observed, replayed(script.messages, options, *logs, decisions=script.decisions))
    assert claims.asked == ["claim", "done"]


class CountedClaims:
    """A store that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def claim(self, pause_id: str, claimant: str, *, take_over: bool) -> bool:
        """Note it, and accept it."""
        assert pause_id
        assert claimant
        assert not take_over
        self.asked.append("claim")
        return True

    def release(self, pause_id: str, claimant: str, outcome: str) -> None:
        """Note the outcome."""
        assert pause_id
        assert claimant
        self.asked.append(outcome)


def test_a_run_whose_task_was_cancelled(awaited: Way):
    """The replay ends as the run did: everything in order, and then the cancellation."""
    observed, recorder = ObservedRun(), Recorder()
    llm = ScriptedLLM(mixed_batch())

    async def main() -> None:
        with anyio.move_on_after(0.08):
            observed.result = await Loop.run(
                HELLO,
                llm,
                tools=MIXED,
                state=observed.state,
                on_event=observed.events.append,
                middleware=[recorder],
            )

    awaited.call(main)
    assert observed.result is None

    again = ObservedRun()
    kept = as_written(recorder.log)
    with no_world(), pytest.raises(Cancelled):
        steps = Loop.steps(
            HELLO,
            forbidden,
            **lifeless({"tools": MIXED}),
            state=again.state,
            on_event=again.events.append,
        )
        replay(steps, kept, again.events.append)
    same(observed, again)
    assert again.events[-1].stop_reason == "cancelled"


def test_any_prefix_of_a_recording_leads_to_the_same_place():
    """Each entry advances the run by one step: from here a durable run continues after a crash."""
    script = next(s for s in SCRIPTS if s.name == "parallel_calls_sync_and_async")
    observed, [log] = recorded(ASYNCIO, script)
    for length in range(len(log)):
        again = ObservedRun()
        with no_world():
            steps = Loop.steps(
                script.messages,
                forbidden,
                **lifeless(script.build()[1]),
                state=again.state,
                on_event=again.events.append,
            )
            with pytest.raises(NotOverError):  # it has not returned yet
                replay(steps, log[:length], again.events.append)
        assert list(map(repr, observed.events))[: len(again.events)] == list(
            map(repr, again.events)
        )


def test_the_record_of_a_run_without_a_state_has_an_id_of_its_own():
    first, second = ObservedRun(), ObservedRun()
    first.result = Loop.run_sync(HELLO, lambda messages: "Hi.")
    second.result = Loop.run_sync(HELLO, lambda messages: "Hi.")
    assert first.result.run.run_id != second.result.run.run_id
    assert isinstance(first.result.run, RunState)


def test_the_tools_of_a_replay_are_not_alive():
    """The net has no hole: a tool that ran would be seen."""
    [one] = lifeless({"tools": [add]})["tools"]
    assert isinstance(one, Tool)
    with pytest.raises(AssertionError):
        one(a=1, b=2)
