"""Effects are enough: from what became of them alone, a run happens again, to the last detail."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import logging
import pickle
import random
import socket
import threading
import time
import uuid
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from treadle import Loop, RunHandle, RunState, Tool, ToolResult, tool
from treadle.pipeline import Cancelled
from treadle.testing import ScriptedLLM, call, calls, check_history
from treadle.types import as_tool

from .conftest import ASYNCIO, SYNC, Told, Way
from .recorder import Recorder, replay
from .scripts import HELLO, SCRIPTS, Busy, Script, add, alone, doze, nap


def forbidden(*args: Any, **options: Any) -> Any:
    raise AssertionError("a replay touches nothing of the world")


def forbidden_here(real: Any) -> Any:
    """Something that raises in this thread; others, such as that of a background loop, may go on."""
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
    """The options with tools that cannot run and a resolver that cannot resolve."""
    made = dict(options)
    tools = [as_tool(given) for given in options.get("tools", ())]
    made["tools"] = [
        dataclasses.replace(one, fn=forbidden) if one.fn is not None else one for one in tools
    ]
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


def recorded(way: Way, script: Script, **options: Any) -> tuple[Told, list[Any]]:
    recorder = Recorder()
    llm, chosen = script.build()
    told = way.run(script.messages, llm, **chosen, **options, layers=[recorder])
    return told, recorder.log


def replayed(messages: Any, options: dict[str, Any], log: list[Any]) -> Told:
    told = Told()
    with no_world():
        steps = Loop.steps(
            messages,
            forbidden,
            **lifeless(options),
            state=told.state,
            on_event=told.events.append,
        )
        told.result = replay(steps, log, told.events.append)
    return told


def same(one: Told, other: Told) -> None:
    """Equal to the last detail: times, delays, durations and the record of the run too."""
    assert other.result == one.result
    assert list(map(repr, other.events)) == list(map(repr, one.events))
    assert other.events == one.events
    assert other.state.nodes == one.state.nodes
    assert other.state.messages == one.state.messages
    assert (other.state.status, other.state.error) == (one.state.status, one.state.error)


def is_data(value: Any) -> bool:
    """Whether it could be written down and read again anywhere."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, enum.Enum)):
        return True
    if isinstance(value, (list, tuple)):
        return all(map(is_data, value))
    if isinstance(value, dict):
        return all(map(is_data, value)) and all(map(is_data, value.values()))
    if type(value).__module__.startswith("treadle.types.") and dataclasses.is_dataclass(value):
        return all(is_data(getattr(value, each.name)) for each in dataclasses.fields(value))
    return False


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_recorded_run_happens_again_without_the_world(script: Script, driven: Way):
    told, log = recorded(driven, script)
    assert told.result.stop_reason == script.ends
    for path, outcome, _ in log:
        assert is_data(outcome), (path, outcome)

    kept = pickle.loads(pickle.dumps(log))  # noqa: S301 - what was written here

    again = replayed(script.messages, script.build()[1], kept)
    same(told, again)


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_recording_changes_nothing(script: Script):
    llm, options = script.build()
    plain = SYNC.run(script.messages, llm, **options)
    assert recorded(SYNC, script)[0].result == plain.result


def test_a_recording_that_was_tampered_with_does_not_pass():
    """The tests above would see it if a recording were not followed to the letter."""
    script = next(script for script in SCRIPTS if script.name == "one_sync_call")
    told, log = recorded(SYNC, script)
    for place, (path, outcome, error) in enumerate(log):
        changed: Any = None
        if isinstance(outcome, float):
            changed = outcome + 1
        elif isinstance(outcome, ToolResult):
            changed = dataclasses.replace(outcome, content="4")
        elif outcome is not None:
            changed = dataclasses.replace(outcome, id="x")
        if changed is not None:
            tampered = [*log[:place], (path, changed, error), *log[place + 1 :]]
            with pytest.raises(AssertionError):
                same(told, replayed(script.messages, script.build()[1], tampered))


def test_the_delays_of_retries_are_those_that_were_drawn(driven: Way):
    recorder = Recorder()
    options = {"retry_delay": 0.02, "max_retries": 2}
    llm = ScriptedLLM(Busy("busy"), Busy("still busy"), "Hi.")
    told = driven.run(HELLO, llm, **options, layers=[recorder])
    again = replayed(HELLO, options, recorder.log)
    same(told, again)
    delays = [event.delay for event in again.events if hasattr(event, "delay")]
    assert 0.015 <= delays[0] <= 0.02 < 0.03 <= delays[1] <= 0.04


MIXED = [add, nap, doze]


def mixed_batch() -> Any:
    return calls(
        call("add", "c1", a=1, b=1),
        call("nap", "c2", seconds=9),
        call("doze", "c3", seconds=0.3),
        call("nap", "c4", seconds=0.01),
    )


@pytest.mark.parametrize("act", ["cancel", "cancel_all"])
def test_a_run_that_was_stopped_through_its_handle(driven: Way, act: str):
    """Who stopped it is not there any more; what became of the effects is."""
    handle, recorder = RunHandle(), Recorder()

    @tool
    async def stopper() -> str:
        """Stop the run from within."""
        await anyio.sleep(0.06)
        getattr(handle, act)()
        await anyio.sleep(9)
        return "too late"

    tools = [*MIXED, stopper, alone]
    batch = mixed_batch()
    batch["tool_calls"] += [call("stopper", "c5"), call("alone", "c6", n=1)]
    llm = ScriptedLLM(batch, "Fine.")
    options = {"tools": tools, "sequential": "in_step"}
    told = driven.run(HELLO, llm, **options, handle=handle, layers=[recorder])
    assert told.result.stop_reason == ("cancelled" if act == "cancel" else "answered")
    check_history(told.result.messages)
    contents = [m["content"] for m in told.result.messages if m["role"] == "tool"]
    assert [text.startswith("Cancelled") for text in contents] == [
        name not in {"c1", "c4"} for name in ("c1", "c2", "c3", "c4", "c5", "c6")
    ]

    kept = pickle.loads(pickle.dumps(recorder.log))  # noqa: S301 - what was written here
    same(told, replayed(HELLO, {**options, "handle": RunHandle()}, kept))


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
    told = driven.run(HELLO, llm, tools=tools, handle=handle, layers=[recorder])
    [answer] = [m["content"] for m in told.result.messages if m["role"] == "tool"]
    assert answer.startswith("Cancelled")
    same(told, replayed(HELLO, {"tools": tools, "handle": RunHandle()}, recorder.log))


def test_a_run_whose_task_was_cancelled(awaited: Way):
    """The replay ends as the run did: everything in order, and then the cancellation."""
    told, recorder = Told(), Recorder()
    llm = ScriptedLLM(mixed_batch())

    async def main() -> None:
        with anyio.move_on_after(0.08):
            told.result = await Loop.run(
                HELLO,
                llm,
                tools=MIXED,
                state=told.state,
                on_event=told.events.append,
                layers=[recorder],
            )

    awaited.call(main)
    assert told.result is None

    again = Told()
    kept = pickle.loads(pickle.dumps(recorder.log))  # noqa: S301 - what was written here
    with no_world(), pytest.raises(Cancelled):
        steps = Loop.steps(
            HELLO,
            forbidden,
            **lifeless({"tools": MIXED}),
            state=again.state,
            on_event=again.events.append,
        )
        replay(steps, kept, again.events.append)
    same(told, again)
    assert again.events[-1].stop_reason == "cancelled"


def test_any_prefix_of_a_recording_leads_to_the_same_place():
    """Each entry advances the run by one step: what a durable run that was cut off goes on from."""
    script = next(s for s in SCRIPTS if s.name == "parallel_calls_sync_and_async")
    told, log = recorded(ASYNCIO, script)
    for length in range(len(log)):
        again = Told()
        with no_world():
            steps = Loop.steps(
                script.messages,
                forbidden,
                **lifeless(script.build()[1]),
                state=again.state,
                on_event=again.events.append,
            )
            with pytest.raises(KeyError):  # it has not returned yet
                replay(steps, log[:length], again.events.append)
        assert list(map(repr, told.events))[: len(again.events)] == list(map(repr, again.events))


def test_the_record_of_a_run_without_a_state_has_an_id_of_its_own():
    first, second = Told(), Told()
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
