"""Budgets of a run: exact for calls, which are counted before they run; others are checked between iterations."""

import time

import pytest

from treadle import (
    BudgetExhausted,
    DeadlineExceeded,
    LimitReached,
    Limits,
    Loop,
    MaxIterationsReached,
    Ok,
    Remaining,
    RunHandle,
    ToolContext,
    Usage,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, USER, answers, of
from .notes import completion, endless, note, notes


class TestKinds:
    """Every limit ends the run with its own reason, the last calls answered."""

    @pytest.mark.parametrize("most", [1, 2, 5])
    def test_iterations(self, way, most):
        events = []
        result = way.run(Loop(tools=[note], max_iterations=most, on_event=events.append), endless)
        assert result.reason == MaxIterationsReached(most)
        assert (result.iterations, result.tool_calls_count) == (most, most)
        assert [one.reason for one in of(events, LimitReached)] == [result.reason]

    @pytest.mark.parametrize("most", [0, 1, 4, 5, 9])
    @pytest.mark.parametrize("sequential", ["defer", "in_step"])
    def test_tool_calls(self, way, most, sequential):
        """Calls run up to the budget; the rest is answered as over budget."""
        ran = []

        @tool
        def act(n: int):
            ran.append(n)

        batch = calls(*(call("act", f"a{n}", n=n) for n in range(4)))
        more = calls(*(call("act", f"b{n}", n=n + 9) for n in range(4)))
        loop = Loop(tools=[act], max_tool_calls=most, sequential=sequential)
        result = way.run(loop, ScriptedLLM(batch, more, "done"))
        assert len(ran) == result.tool_calls_count == min(most, 8)
        texts = answers(result.messages).values()
        over = [text for text in texts if f"the budget of {most} tool calls is spent" in text]
        assert len(over) == len(texts) - len(ran)
        if most > 8:
            assert isinstance(result, Ok)
        else:
            assert result.reason == BudgetExhausted("max_tool_calls", most, most)

    @pytest.mark.parametrize(
        ("limit", "reason", "iterations"),
        [
            ({"max_input_tokens": 4}, BudgetExhausted("max_input_tokens", 4, 4), 2),
            ({"max_input_tokens": 5}, BudgetExhausted("max_input_tokens", 5, 6), 3),
            ({"max_output_tokens": 6}, BudgetExhausted("max_output_tokens", 6, 6), 2),
            ({"max_total_tokens": 5}, BudgetExhausted("max_total_tokens", 5, 5), 1),
            ({"max_total_tokens": 14}, BudgetExhausted("max_total_tokens", 14, 15), 3),
            ({"max_cost": 0.5}, BudgetExhausted("max_cost", 0.5, 0.5), 2),
        ],
    )
    def test_tokens_and_cost_between_iterations(self, way, limit, reason, iterations):
        model = ScriptedLLM(*(completion(notes(n), 0.25) for n in range(9)))
        result = way.run(Loop(tools=[note], limits=Limits(**limit)), model)
        assert (result.reason, result.iterations) == (reason, iterations)
        assert result.tool_calls_count == iterations
        assert result.usage == Usage(2 * iterations, 3 * iterations, cost=0.25 * iterations)

    def test_an_answer_that_exhausts_the_budget_is_an_answer(self, way):
        loop = Loop(max_total_tokens=1, max_cost=0.1, max_iterations=1)
        assert isinstance(way.run(loop, ScriptedLLM(completion("done", 5.0))), Ok)

    def test_time(self, way):
        began = time.monotonic()

        @tool(volatile=True)
        def work():
            time.sleep(0.05)

        loop = Loop(tools=[work], max_seconds=1, max_iterations=100)
        result = way.run(loop, lambda m: calls(call("work")))
        assert time.monotonic() - began >= 1
        assert result.reason == DeadlineExceeded(1)
        assert result.messages[-1]["role"] == "tool"

    @pytest.mark.parametrize("handle", [None, RunHandle])
    def test_with_a_cost_limit_of_zero_the_model_is_not_called(self, way, handle):
        options = {} if handle is None else {"handle": handle()}
        with ScriptedLLM() as model:
            result = way.run(Loop(max_cost=0), model, **options)
        assert result.reason == BudgetExhausted("max_cost", 0, 0.0)
        assert result.messages == USER

    def test_uses_of_one_tool(self, way):
        once = tool(note, max_uses=2)
        other = tool(note, name="other")
        batch = calls(*(call("note", f"n{n}", n=n) for n in range(3)), call("other", "o", n=1))
        model = ScriptedLLM(batch, calls(call("note", "late", n=9)), "done")
        result = way.run(Loop(tools=[once, other]), model)
        texts = answers(result.messages)
        assert [texts[key][:5] for key in ("n0", "n1", "n2", "o", "late")] == [
            *["noted"] * 2,
            "Not r",
            "noted",
            "Not r",
        ]
        assert (type(result), result.tool_calls_count) == (Ok, 3)

    def test_a_second_run_with_the_same_state_has_new_budgets(self):
        first = SYNC.run(Loop(tools=[note], max_tool_calls=1), ScriptedLLM(notes(1), "done"))
        loop = Loop(tools=[note], max_tool_calls=1, max_iterations=2, state=first.run)
        assert isinstance(SYNC.run(loop, ScriptedLLM(notes(2), "done")), Ok)


class TestShowBudget:
    """The remaining budget, in the requests."""

    def test_it_is_in_each_request_and_not_in_the_history(self, way):
        loop = Loop(
            tools=[note], max_iterations=3, max_tool_calls=5, limits=Limits(show_budget=True)
        )
        with ScriptedLLM(notes(1, 2), notes(3), "done") as model:
            result = way.run(loop, model)
        texts = [sent.messages[-1]["content"].rpartition("\n\n")[2] for sent in model.sent]
        assert texts == [
            "Left for this task: 2 model calls, 5 tool calls.",
            "Left for this task: 1 model calls, 3 tool calls.",
            "Left for this task: 0 model calls, 2 tool calls.",
        ]
        assert "Left for this task" not in str(result.messages)
        assert model.sent[0].messages == [{"role": "user", "content": f"Hi\n\n{texts[0]}"}]

    def test_it_follows_the_guidance_of_a_stage(self):
        with ScriptedLLM("", "x") as model:
            SYNC.run(Loop(limits=Limits(show_budget=True)), model)
        content = model.sent[1].messages[0]["content"]
        assert content.startswith("Hi\n\nYour last reply was empty. ")
        assert content.endswith("\n\nLeft for this task: 8 model calls.")


class TestRemaining:
    """The remaining budget, for tools."""

    def test_it_is_the_budget_at_the_start_of_the_call(self, way, clock):
        seen = []

        @tool(volatile=True)
        def look(context: ToolContext):
            clock.now += 4
            seen.append(context.remaining)

        loop = Loop(
            tools=[look],
            middleware=[clock.middleware],
            max_iterations=5,
            max_tool_calls=3,
            max_total_tokens=12,
            max_cost=1.0,
            max_seconds=60,
        )
        model = ScriptedLLM(*(completion(calls(call("look")), 0.25) for _ in range(2)), "x")
        way.run(loop, model)
        assert seen == [
            Remaining(4, 2, None, None, 7, 0.75, 60),
            Remaining(3, 1, None, None, 2, 0.5, 56),
        ]


def test_calls_that_never_ran_are_not_counted():
    """Suppressed, invalid and unknown calls."""
    first = calls(call("note", "a", n=1))
    second = calls(call("note", "b", n=1), call("nope", "c"), call("note", "d", n="x"))
    loop = Loop(tools=[note], max_tool_calls=2, dedupe="strict")
    result = SYNC.run(loop, ScriptedLLM(first, second, notes(2), "done"))
    assert (type(result), result.tool_calls_count) == (Ok, 2)
