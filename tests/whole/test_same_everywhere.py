"""One script gives one result, one history and one sequence of events, however it is run."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from typing import Any

import pytest
from tests.deciding import on, unbound
from tests.ways import SYNC, WAYS

from treadle import Loop, RunState
from treadle.events import IterationFinished, RunFinished, SubagentEvent, ToolFinished, ToolStarted
from treadle.results import Paused
from treadle.testing import check_history

from .guard_scripts import SCRIPTS
from .scripts import Script, played


def call_of(event: Any) -> str | None:
    """The id of the call that an event is of, where calls may run at the same time."""
    if isinstance(event, (ToolStarted, ToolFinished)):
        return event.call.id
    return event.call_id if isinstance(event, SubagentEvent) else None


def settled(events: list[Any]) -> list[Any]:
    """The events, those of calls that run at the same time in the order of their ids; of children too."""
    out: list[Any] = []
    for are_of_batch, group in itertools.groupby(events, lambda event: call_of(event) is not None):
        batch = list(group)
        if not are_of_batch:
            out += batch
            continue
        for call_id in sorted({call_of(event) for event in batch}):
            own = [event for event in batch if call_of(event) == call_id]
            inner = [event.event for event in own if isinstance(event, SubagentEvent)]
            out += [event for event in own if isinstance(event, ToolStarted)]
            out += [SubagentEvent(call_id=call_id, event=event) for event in settled(inner)]
            out += [event for event in own if isinstance(event, ToolFinished)]
    return out


def seen(event: Any) -> Any:
    """What is equal of an event; of a finished iteration, what its context says."""
    if isinstance(event, SubagentEvent):
        return event.call_id, seen(event.event)
    if isinstance(event, RunFinished):
        return dataclasses.replace(event, result=alike(event.result))
    if not isinstance(event, IterationFinished):
        return event
    ctx = event.context
    return (
        ctx.iteration,
        ctx.trace,
        ctx.tool_calls,
        ctx.plan,
        dict(ctx.tool_results),
        ctx.decision,
        ctx.usage,
    )


def alike(result: Any) -> Any:
    """A result without what is another in each run: of a paused one, its times and the id of the pause."""
    if not isinstance(result, Paused):
        return result
    state = timeless(json.loads(NONCES.sub("@", json.dumps(result.state))))
    return dataclasses.replace(result, pending=unbound(result), state=state)


NONCES = re.compile("@[0-9a-f]{16}")
"""The random texts of pauses, in the ids of the pending calls."""
TIMES = re.compile("paused_at|elapsed|.*_at|pause_id|digest|timing|times")


def timeless(value: Any) -> Any:
    """A JSON value without times."""
    if isinstance(value, dict):
        return {k: timeless(part) for k, part in value.items() if not TIMES.fullmatch(k)}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def recorded(state: RunState) -> Any:
    """The record of a run and of its children, with what was said, without times."""
    return (
        timeless(state.as_json()),
        state.messages,
        [recorded(call.run) for node in state.nodes for call in node.tool_calls if call.run],
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_script_runs_alike_in_every_way(script: Script):
    runs = {way: played(way, script) for way in WAYS}
    expected = runs[SYNC]
    if script.ends != "invalid_input":
        check_history(expected.result.messages)
    for way, one in runs.items():
        assert alike(one.result) == alike(expected.result), way
        assert one.result.messages == expected.result.messages, way
        assert list(map(seen, settled(one.events))) == list(map(seen, settled(expected.events))), (
            way
        )
        assert recorded(one.state) == recorded(expected.state), way
        assert one.state.is_terminal == (script.ends != "paused")
        assert one.state.total_usage == expected.state.total_usage, way
        ends = [event for event in one.events if isinstance(event, RunFinished)]
        assert len(ends) == 1 + len(script.decisions)
        assert ends[-1] == one.events[-1]
        assert (ends[-1].result, ends[-1].stop_reason) == (one.result, script.ends)


def test_the_record_has_all_calls_in_the_order_of_the_request(way):
    """Whichever of those that run together a driver starts first; sub-calls of recipes too."""
    script = next(script for script in SCRIPTS if script.name == "a_resolver_with_recipes")
    [first, _] = played(way, script).state.nodes
    assert [node.group_id for node in first.tool_calls] == ["c1", "c2", "c3"]
    names = ["contents", "page", "page 2", "page 3", "page 4", "pge"]
    assert [node.group_id for node in first.tool_calls[0].tool_calls] == [f"c1/{n}" for n in names]


class Discarding:
    """An observer that declares that it takes back what it showed."""

    discards_on_retry = True

    def __call__(self, event: Any) -> None:
        """Ignore the event."""


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_watching_changes_nothing(script: Script):
    """Without an observer no event is made, and none is counted; the result is the same.

    An observer that would show the text of a broken stream twice does change it; see test_broken_streams.
    """
    has_listeners = played(SYNC, script, on_event=Discarding())
    llm, options = script.build()
    if "handle_ref" in options:
        return  # the test has to hold the handle
    options = {"name": "agent", **options}
    result = Loop.run_sync(script.messages, llm, **options, state=RunState("agent", "run"))
    for decisions in script.decisions:
        result = Loop.resume_sync(result, on(result, decisions), llm, **options)
    watched = alike(has_listeners.result)
    if isinstance(watched, Paused):
        assert watched.state.pop("last_seq") > result.state["last_seq"] == 0
        result = dataclasses.replace(result, state={**result.state})
        del result.state["last_seq"]
    assert alike(result) == watched
