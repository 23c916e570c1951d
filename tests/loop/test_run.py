"""The iterations of a run, for any list of stages, and for stages that fail."""

import pytest

from treadle import (
    IterationFinished,
    LLMError,
    Loop,
    MaxIterationsReached,
    PendingCall,
    PipelineFailed,
    Response,
    RunState,
    ToolCall,
    Usage,
    approve,
    default_stages,
    edit,
    tool,
)
from treadle.effects import drive_sync
from treadle.loop.pause import WAITING
from treadle.stages import parse_tool_calls
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import SYNC, USER, after_model, answers, of, stored


@tool
def note(n: int):
    return f"noted {n}"


NOTE = calls(call("note", "a", n=1))


def without(*names):
    """The default stages without some of them."""
    return [one for one in default_stages() if one.name not in names]


@pytest.mark.parametrize("position", [None, 0, 1, 4, 8])
def test_an_iteration_in_which_the_model_failed_emits_iteration_finished(way, position):
    """Whether the model failed, or a stage stops with that reason."""

    def fail(ctx):
        return ctx.stop(LLMError("no model here"))

    events, stages = [], list(default_stages())
    if position is not None:
        stages.insert(position, fail)
    llm = ScriptedLLM(ValueError("no") if position is None else NOTE)
    result = way.run(Loop(tools=[note], stages=stages, on_event=events.append), llm)
    assert result.stop_reason == "llm_error"
    [finished] = of(events, IterationFinished)
    assert (finished.iteration, finished.context.error) == (1, result.reason)


class TestAnyStages:
    """Limits and the history do not depend on which stages there are."""

    def test_without_the_budget_guard_the_limits_hold(self, way):
        loop = Loop(tools=[note], stages=without("budget_guard"), max_iterations=2)
        result = way.run(loop, lambda m: calls(call("note", n=len(m))))
        assert (result.reason, result.tool_calls_count) == (MaxIterationsReached(2), 2)
        answer = Response(tool_calls=(ToolCall("a", "note", '{"n": 1}'),), usage=Usage(5, 5))
        loop = Loop(tools=[note], stages=without("budget_guard"), max_total_tokens=10)
        assert way.run(loop, ScriptedLLM(answer)).reason.kind == "max_total_tokens"

    def test_without_the_default_stages_a_text_is_the_answer(self, way):
        result = way.run(Loop(stages=[lambda ctx: ctx]), ScriptedLLM("Hello"))
        assert (result.unwrap().content, result.stop_reason) == ("Hello", "answered")

    @pytest.mark.parametrize("stages", [[lambda ctx: ctx], [parse_tool_calls]])
    def test_calls_that_did_not_run_are_answered(self, way, stages):
        loop = Loop(tools=[note], stages=stages, max_iterations=1)
        result = way.run(loop, ScriptedLLM(NOTE))
        assert answers(result.messages) == {"a": "Not run."}

    def test_a_stage_may_stop_with_any_reason(self, way):
        reason = MaxIterationsReached(77)
        result = way.run(Loop(stages=[lambda ctx: ctx.stop(reason)]), ScriptedLLM("Hello"))
        assert result.reason is reason
        assert result.messages[-1] == {"role": "assistant", "content": "Hello"}


class TestBroken:
    """A stage that fails ends the run; the results so far are in the history."""

    DISPATCH = 5
    """The place of ``dispatch_tools`` in the default list; the model is called at place 0."""

    def broken(self, ctx):
        raise ValueError("stage")

    @pytest.mark.parametrize("place", range(10))
    def test_at_every_position(self, way, place):
        stages = default_stages()
        stages.insert(place, self.broken)
        result = way.run(Loop(tools=[note], stages=stages), ScriptedLLM(NOTE))
        assert result.reason == PipelineFailed("broken", "stage", "ValueError")
        has_run = place > self.DISPATCH
        answer = "noted 1" if has_run else "Cancelled: the run failed before this call was done."
        assert answers(result.messages) == ({"a": answer} if place > 0 else {})
        assert result.tool_calls_count == has_run
        assert result.run.nodes[0].status == "failed"

    def test_its_iteration_emits_iteration_finished(self, way):
        events = []
        loop = Loop(stages=[self.broken], on_event=events.append)
        way.run(loop, ScriptedLLM("Hello"))
        assert len(of(events, IterationFinished)) == 1

    def test_an_error_whose_str_raises(self, way):
        class OddError(Exception):
            def __str__(self):
                raise TypeError

        def odd(ctx):
            raise OddError

        result = way.run(Loop(stages=[odd]), ScriptedLLM("Hello"))
        assert result.reason.message == "(OddError, which cannot be shown)"


def part_of(steps, most):
    """Perform at most ``most`` effects of some steps, and stop there.

    Returns:
        Whether there were more.
    """
    effect = next(steps)
    for _ in range(most):
        outcome = yield effect
        try:
            effect = steps.send(outcome)
        except StopIteration:
            return False
    return True


def test_a_run_that_is_closed_at_any_effect_ends_with_a_valid_history():
    """Closing the steps ends the run at once, without another effect."""

    def stream(messages):
        yield "Hel"
        yield "lo"

    at, has_more = 0, True
    while has_more:
        events, state, script = [], RunState(), [lambda messages: NOTE, stream]
        model = lambda messages, script=script: script.pop(0)(messages)  # noqa: E731
        steps = Loop(tools=[note], state=state, on_event=events.append).steps(USER, model)
        has_more = drive_sync(part_of(steps, at))
        steps.close()
        if state.messages:
            check_history(state.messages)
        at += 1
    assert at > 20
    assert state.messages[-1]["content"] == "Hello"


class TestUnknownCalls:
    """A custom stage may request approval of any call, whether there is a tool for it or not."""

    def test_a_call_without_a_tool_can_be_edited(self):
        seen = []

        def ask(ctx):
            if ctx.approvals or not ctx.tool_calls:
                return ctx
            made = ctx.tool_calls[0]
            return ctx.pause((PendingCall(made.id, made.name, {}, "?"),))

        stages = default_stages()
        stages.insert(3, ask)

        def resolve(made):
            seen.append(dict(made.input))
            return "ok"

        loop = Loop(stages=stages, resolve_tool=resolve)
        model = ScriptedLLM(calls(call("anything", "a", x=1)), "done")
        paused = SYNC.run(loop, model)
        result = SYNC.resume(loop, stored(paused), {"a": edit({"y": 2})}, model)
        assert seen == [{"y": 2}]
        assert answers(result.messages)["a"].startswith("ok\n\n[note: a person changed")

    def test_after_a_pause_before_the_plan_the_calls_run(self):
        """The stage itself handles a denial; after an approval the calls are planned and run."""
        asked = []

        def ask(ctx):
            asked.append(ctx.iteration)
            if ctx.approvals or ctx.iteration > 1:
                return ctx
            return ctx.pause((PendingCall("q", "ask", {}, "?"),))

        loop, model = Loop(stages=after_model(ask), tools=[note]), ScriptedLLM(NOTE, "done")
        paused = SYNC.run(loop, model)
        assert answers(paused.messages) == {"a": WAITING}
        result = SYNC.resume(loop, stored(paused), {"q": approve}, model)
        assert asked == [1, 1, 2]
        assert answers(result.messages) == {"a": "noted 1"}


def test_messages_that_are_all_empty_are_refused():
    result = Loop.run_sync([{"role": "assistant", "content": ""}], ScriptedLLM())
    assert str(result.reason) == "messages: expected at least one message that is not empty"
