"""Any stage may pause a run; a state that is no data cannot be stored."""

import collections
import dataclasses
import datetime as dt
import enum
import pathlib
import typing
from decimal import Decimal
from types import MappingProxyType

import anyio
import pytest

from treadle import (
    IterationFinished,
    IterationStarted,
    Loop,
    Ok,
    Paused,
    PausedStateError,
    PendingCall,
    StoppedByStage,
    approve,
    deny,
    stage,
)
from treadle.pipeline import Pipeline, embed
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import BATCH, SYNC, USER, RecordedTools, after_model, answers, asking, of, stored


class Color(enum.Enum):
    RED = "red"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Pair(typing.NamedTuple):
    one: int
    two: int


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    marks: frozenset[int]


class TestNoData:
    """A state that cannot be stored ends the run, with a reason and a valid history."""

    @pytest.mark.parametrize("value", [object(), [object()], {"a": {1: object()}}, len])
    def test_a_value_in_the_memo_that_is_no_data(self, recorded, way, value):
        def keep(ctx):
            return ctx.remember("mine", value)

        loop = recorded.loop(stages=[keep, *default_stages()])
        result = way.run(loop, ScriptedLLM(BATCH))
        assert result.stop_reason == "pipeline_failed"
        assert (result.reason.stage, result.reason.error_type) == (
            "dispatch_tools",
            "PausedStateError",
        )
        start = "the run cannot pause, or go on elsewhere: memo['mine']"
        assert result.reason.message.startswith(start)
        assert "got builtins:" in result.reason.message
        assert answers(result.messages)["a"] == "noted 1"
        assert recorded.done == ["note 1"]
        assert (result.run.status, result.run.nodes[0].status) == ("failed", "failed")

    @pytest.mark.parametrize(
        "kept",
        [
            collections.Counter("ab"),
            {"a": [collections.defaultdict(list)]},
            (Pair(1, 2),),
            bytearray(b"x"),
            pathlib.PureWindowsPath("c:/a"),
        ],
        ids=lambda kept: type(kept).__name__,
    )
    def test_what_would_be_restored_as_another_type(self, recorded, kept):
        loop = recorded.loop(stages=[lambda ctx: ctx.remember("mine", kept), *default_stages()])
        result = SYNC.run(loop, ScriptedLLM(BATCH))
        assert result.stop_reason == "pipeline_failed"
        assert "memo['mine']: expected data that can be restored as it is" in result.reason.message

    def test_no_call_is_marked_as_waiting_if_the_pause_failed(self, recorded):
        loop = recorded.loop(stages=[lambda ctx: ctx.remember("mine", len), *default_stages()])
        assert "waits" not in answers(SYNC.run(loop, ScriptedLLM(BATCH)).messages)["b"]

    def test_a_memo_that_contains_itself(self, recorded):
        knot = []
        knot.append(knot)
        loop = recorded.loop(stages=[lambda ctx: ctx.remember("mine", knot), *default_stages()])
        assert SYNC.run(loop, ScriptedLLM(BATCH)).stop_reason == "pipeline_failed"

    @pytest.mark.parametrize(
        ("waiting", "error_type"),
        [
            (("text",), "OptionError"),
            (
                (PendingCall("q", "asking", MappingProxyType({"x": object()}), "?"),),
                "PausedStateError",
            ),
        ],
    )
    def test_invalid_pending_calls_of_a_stage(self, recorded, waiting, error_type):
        loop = recorded.loop(stages=[lambda ctx: ctx.pause(waiting)])
        result = SYNC.run(loop, lambda m: "Hello")
        assert (result.stop_reason, result.reason.error_type) == ("pipeline_failed", error_type)

    def test_a_stage_that_is_not_an_entry_point(self, recorded):
        """It is nested in another component, so that no run can continue there."""
        inner = embed(Pipeline(asking), "inner")
        result = SYNC.run(recorded.loop(stages=[inner, *default_stages()]), lambda m: "Hello")
        assert (result.stop_reason, result.reason.error_type) == (
            "pipeline_failed",
            "PausedStateError",
        )
        assert "a run cannot be resumed at stage 'inner.asking'" in result.reason.message

    @pytest.mark.parametrize(
        "kept",
        [
            {"n": [1, 2.5, None, True, "ü"], "deep": {"a": {"b": []}}},
            [{1, 2}, frozenset("a"), (1, (2,)), float("inf"), b"x", {(1, 2): 3}, {"$": "set"}],
            [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.date(2026, 1, 2), Decimal("1.10")],
            {"color": Color.RED, "points": {Point(1, frozenset({2}))}},
            [Right.READ | Right.WRITE, Right(0), Level.LOW | Level.HIGH],
        ],
    )
    def test_data_in_the_memo_is_restored(self, recorded, kept):
        seen = []

        def keep(ctx):
            seen.append(ctx.memo.get("mine"))
            return ctx.remember("mine", kept)

        loop, model = recorded.loop(stages=[keep, *default_stages()]), ScriptedLLM(BATCH, "done")
        SYNC.resume(loop, stored(SYNC.run(loop, model)), {"b": approve}, model)
        assert seen == [None, kept]
        assert repr(seen[1]) == repr(kept)

    def test_a_class_that_is_not_there_is_an_error_of_the_resumption(self, recorded, tmp_path):
        kind = dataclasses.make_dataclass("Gone", ["n"])
        kind.__module__ = "gone"
        loop = recorded.loop(stages=[lambda ctx: ctx.remember("mine", kind(1)), *default_stages()])
        paused = SYNC.run(loop, ScriptedLLM(BATCH))
        with pytest.raises(PausedStateError, match="memo: gone:Gone is not imported"):
            SYNC.resume(loop, stored(paused), {"b": approve}, ScriptedLLM())
        paused.save(tmp_path / "p")
        assert Paused.load(tmp_path / "p").pending == paused.pending  # it is shown all the same


class TestCustomStages:
    """Any stage may pause a run; it is entered again with the decision."""

    @pytest.mark.parametrize("kind", ["plain", "steps", "async"])
    def test_it_is_entered_again_with_the_decision(self, way, kind):
        entered = []

        def plain(ctx):
            entered.append(dict(ctx.approvals))
            return asking(ctx)

        def steps(ctx):
            yield from ()
            return plain(ctx)

        async def later(ctx):
            await anyio.sleep(0)
            return plain(ctx)

        made = stage({"plain": plain, "steps": steps, "async": later}[kind], name="mine")
        loop = Loop(stages=[*default_stages()[:3], made, *default_stages()[3:]])
        paused = way.run(loop, ScriptedLLM("Hello"))
        assert paused.pending[0].arguments == {"text": "Hello"}
        assert paused.messages == [*USER, {"role": "assistant", "content": "Hello"}]
        result = way.resume(loop, stored(paused), {"q": approve}, ScriptedLLM())
        assert (result.unwrap().content, result.iterations) == ("Hello", 1)
        assert result.messages == paused.messages
        assert entered == [{}, {"q": approve}]

    def test_it_handles_a_denial_itself(self, way):
        @stage
        def gate(ctx):
            decision = ctx.approvals.get("q")
            if decision is None:
                return asking(ctx)
            return ctx if decision.runs else ctx.stop(decision.reason)

        loop = Loop(stages=after_model(gate))
        paused = way.run(loop, ScriptedLLM("Darn"))
        result = way.resume(loop, paused, {"q": deny("no swearing")}, ScriptedLLM())
        assert result.reason == StoppedByStage("gate", "no swearing")
        assert result.messages[-1] == {"role": "assistant", "content": "Darn"}
        assert (result.run.status, result.iterations) == ("failed", 1)

    def test_it_may_pause_in_each_iteration_and_with_nothing_to_decide(self, way):
        def rest(ctx):
            if ctx.memo.get("rested") == ctx.iteration:
                return ctx
            return ctx.remember("rested", ctx.iteration).pause(())

        loop = Loop(stages=[rest, *default_stages()], tools=RecordedTools().tools)
        model = ScriptedLLM(calls(call("note", n=1)), "done")
        first = way.run(loop, model)
        assert (first.stop_reason, first.pending) == ("paused", ())
        second = way.resume(loop, stored(first), {}, model)
        assert (second.stop_reason, second.iterations) == ("paused", 2)
        assert isinstance(way.resume(loop, stored(second), {}, model), Ok)

    def test_the_end_of_the_iteration_is_reported_after_the_pause(self, way):
        events = []
        loop = Loop(stages=after_model(asking), on_event=events.append)
        paused = way.run(loop, ScriptedLLM("Hello"))
        assert (len(of(events, IterationStarted)), of(events, IterationFinished)) == (1, [])
        way.resume(loop, paused, {"q": approve}, ScriptedLLM())
        assert (len(of(events, IterationStarted)), len(of(events, IterationFinished))) == (1, 1)


def test_the_history_is_valid_at_the_pause_of_a_streamed_answer(recorded):
    """The call was streamed, and needs approval like any other."""
    chunk = {"choices": [{"delta": {"tool_calls": [{"index": 0, **call("wipe", "b", path="/")}]}}]}
    loop = recorded.loop()
    paused = SYNC.run(loop, ScriptedLLM([chunk, {"choices": [{"finish_reason": "stop"}]}]))
    check_history(paused.messages)
    assert paused.pending[0].call_id == "b"
