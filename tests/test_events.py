"""Events are frozen, and equal if they differ only in times and ids."""

import copy
import dataclasses
import pickle
import typing

import pytest

from treadle.events import (
    Event,
    EventBase,
    IterationStarted,
    ModelRetried,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolFinished,
    number,
)
from treadle.messages import ToolCall, ToolResult


@pytest.mark.parametrize("kind", typing.get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_is_frozen_and_takes_only_keywords(kind):
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert all(spec.kw_only for spec in dataclasses.fields(kind))


def test_times_and_ids_do_not_count_for_equality():
    """Two runs of one script can be compared event by event."""
    call, result = ToolCall("a", "f"), ToolResult("a", "5")
    assert RunStarted(agent_name="x", run_id="1", at=1.0) == RunStarted(
        agent_name="x", run_id="2", at=2.0
    )
    assert IterationStarted(iteration=1, at=1.0) == IterationStarted(iteration=1, at=2.0)
    assert ToolFinished(iteration=1, call=call, result=result, at=1, duration=1) == ToolFinished(
        iteration=1, call=call, result=result, at=2, duration=2
    )
    retried = {"iteration": 1, "attempt": 1, "error": "x", "error_type": "E"}
    assert ModelRetried(**retried, delay=1, at=1) == ModelRetried(**retried, delay=2, at=2)


def test_other_fields_count_for_equality():
    assert TextDelta(iteration=1, text="a") != TextDelta(iteration=1, text="b")
    facts = {"total_iterations": 1, "tool_calls_count": 0, "result": None, "at": 0}
    assert RunFinished(stop_reason="a", **facts) != RunFinished(stop_reason="b", **facts)


@dataclasses.dataclass
class Plain(EventBase):
    n: int


@dataclasses.dataclass(frozen=True)
class Frozen(EventBase):
    n: int


@pytest.mark.parametrize("kind", [Plain, Frozen])
@pytest.mark.parametrize("seq", [0, 7])
def test_an_event_of_a_custom_class_can_be_copied_and_pickled(kind, seq):
    event = kind(3)
    if seq:
        number(event, seq)
    pickled = pickle.loads(pickle.dumps(event))  # noqa: S301 - our own
    for again in (copy.copy(event), copy.deepcopy(event), pickled):
        assert (again, again.seq) == (event, seq)
