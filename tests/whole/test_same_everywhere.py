"""One script gives one result, one history and one sequence of events, however it is run."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from treadle import RunNode
from treadle.testing import check_history
from treadle.types import IterationFinished, RunFinished, ToolFinished, ToolStarted

from .conftest import SYNC, WAYS
from .scripts import SCRIPTS, Script


def in_a_batch(event: Any) -> bool:
    return isinstance(event, (ToolStarted, ToolFinished))


def settled(events: list[Any]) -> list[Any]:
    """The events, those of calls that run at the same time in the order of their ids."""
    out: list[Any] = []
    for are_of_batch, group in itertools.groupby(events, in_a_batch):
        batch = list(group)
        out += sorted(batch, key=lambda event: event.call.id) if are_of_batch else batch
    return out


def seen(event: Any) -> Any:
    """What is equal of an event; of a finished iteration, what its context says."""
    if not isinstance(event, IterationFinished):
        return event
    ctx = event.context
    return (
        ctx.iteration,
        ctx.trace,
        ctx.tool_calls,
        dict(ctx.tool_results),
        ctx.decision,
        ctx.usage,
    )


def timeless(nodes: list[RunNode]) -> list[Any]:
    """The nodes without their times."""
    return [
        dataclasses.replace(
            node,
            created_at=0.0,
            started_at=node.started_at and 1.0,
            ended_at=node.ended_at and 1.0,
            tool_calls=timeless(node.tool_calls),
        )
        for node in nodes
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_a_script_runs_alike_in_every_way(script: Script):
    told = {}
    for way in WAYS:
        llm, options = script.build()
        told[way] = way.run(script.messages, llm, **options)

    expected = told[SYNC]
    assert expected.result.stop_reason == script.ends
    if script.ends != "invalid_input":
        check_history(expected.result.messages)
    for way, one in told.items():
        assert one.result == expected.result, way
        assert one.result.messages == expected.result.messages, way
        assert list(map(seen, settled(one.events))) == list(map(seen, settled(expected.events))), (
            way
        )
        assert timeless(one.state.nodes) == timeless(expected.state.nodes), way
        assert one.state.status == expected.state.status, way
        assert one.state.error == expected.state.error, way
        assert one.state.is_terminal
        [end] = [event for event in one.events if isinstance(event, RunFinished)]
        assert end == one.events[-1]
        assert (end.result, end.stop_reason) == (one.result, script.ends)
        assert one.state.total_usage == expected.state.total_usage == one.result.usage, way


def test_the_record_has_all_calls_in_the_order_of_the_request(way):
    """Whichever of those that run together a driver starts first; sub-calls of recipes too."""
    script = next(script for script in SCRIPTS if script.name == "a_resolver_with_recipes")
    llm, options = script.build()
    [first, _] = way.run(script.messages, llm, **options).state.nodes
    assert [node.group_id for node in first.tool_calls] == ["c1", "c2", "c3"]
    names = ["contents", "page", "page 2", "page 3", "page 4", "pge"]
    assert [node.group_id for node in first.tool_calls[0].tool_calls] == [f"c1/{n}" for n in names]


@pytest.mark.parametrize("script", SCRIPTS, ids=repr)
def test_watching_changes_nothing(script: Script):
    """Without an observer no event is made; the result is the same."""
    from treadle import Loop

    llm, options = script.build()
    watched = SYNC.run(script.messages, llm, **options)
    llm, options = script.build()
    assert Loop.run_sync(script.messages, llm, **options) == watched.result
