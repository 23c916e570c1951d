"""Budgets of a run, and its cost. Calls are counted before they run; the rest is checked between iterations."""

import logging
from decimal import Decimal

import anyio
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
    Response,
    RunHandle,
    ToolContext,
    Usage,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, USER, answers, of, stored
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

    def test_time(self, way, clock):
        @tool(volatile=True)
        async def work(n: int):
            if n == 2:
                clock.limit.strike()
                await anyio.sleep(30)
            return f"worked {n}"

        loop = Loop(tools=[work], max_seconds=9, middleware=[clock.middleware])
        result = way.run(loop, ScriptedLLM(*(calls(call("work", f"w{n}", n=n)) for n in (1, 2))))
        assert clock.bounds == [9]
        assert (result.reason, result.iterations) == (DeadlineExceeded(9), 2)
        assert answers(result.messages) == {
            "w1": "worked 1",
            "w2": "Cancelled: the run's time was up before this call was done.",
        }

    def test_time_that_is_up_before_the_first_response(self, way, clock):
        async def hang(messages):
            clock.limit.strike()
            await anyio.sleep(30)

        result = way.run(Loop(max_seconds=9, middleware=[clock.middleware]), hang)
        assert (result.reason, result.messages) == (DeadlineExceeded(9), USER)

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


class TestCost:
    """The cost of a run is the sum of the known costs."""

    def usage(self, *script, **options):
        return SYNC.run(Loop(tools=[note], **options), ScriptedLLM(*script)).usage

    def test_a_reported_cost_is_added_up(self):
        assert self.usage(completion(notes(1), 0.5), completion("x", 0.25)).cost == 0.75

    @pytest.mark.parametrize(
        "cost", [True, "0.5", -0.5, float("nan"), float("inf"), [0.5], {"total": 1}]
    )
    def test_an_invalid_cost_is_unknown(self, cost):
        usage = self.usage(completion("x", cost))
        assert (usage.cost, usage.total_tokens) == (None, 5)

    def test_an_unreported_cost_is_unknown_and_not_zero(self):
        assert self.usage(completion("x")).cost is None
        assert self.usage("x").cost is None

    def test_an_unknown_cost_is_left_out_of_the_sum(self):
        usage = self.usage(completion(notes(1), 0.5), completion(notes(2)), completion("x", 0.25))
        assert usage.cost == 0.75

    def test_cost_of_computes_the_cost_of_each_response(self):
        seen = []

        def price(response):
            seen.append(response)
            return response.usage.total_tokens * 0.1

        usage = self.usage(completion(notes(1)), completion("x"), limits=Limits(cost_of=price))
        assert usage.cost == pytest.approx(1.0)
        assert [one.content for one in seen] == [None, "x"]

    def test_a_reported_cost_takes_precedence_over_cost_of(self):
        assert (
            self.usage(completion("x", 0.5), limits=Limits(cost_of=lambda response: 9)).cost == 0.5
        )
        own = Response("x", usage=Usage(1, 1, cost=0.25))
        assert self.usage(own, limits=Limits(cost_of=lambda response: 9)).cost == 0.25
        free = Response("x", usage=Usage(1, 1, cost=0.0))
        assert self.usage(free, limits=Limits(cost_of=lambda response: 9)).cost == 0.0

    def test_cost_of_is_asked_about_a_response_without_usage(self):
        """It may know the cost of a request; the tokens stay unknown."""
        usage = self.usage(
            "x", limits=Limits(cost_of=lambda response: 9 if response.usage is None else 1)
        )
        assert usage == Usage(is_lower_bound=True, cost=9)

    def test_cost_of_that_needs_usage_raises_no_warning_without_it(self, caplog):
        with caplog.at_level(logging.DEBUG, "treadle.model"):
            usage = self.usage(
                "x", limits=Limits(cost_of=lambda response: response.usage.input_tokens)
            )
        assert usage.cost is None
        (record,) = [one for one in caplog.records if "cost_of= failed" in one.message]
        assert record.levelno == logging.DEBUG

    @pytest.mark.parametrize("made", [0, 0.0, 0.5, 2, Decimal("0.25"), None])
    def test_valid_return_values_of_cost_of(self, made):
        usage = self.usage(completion("x"), limits=Limits(cost_of=lambda response: made))
        assert usage.cost == (None if made is None else float(made))
        assert type(usage.cost) in {float, type(None)}

    @pytest.mark.parametrize(
        "made", [-1, float("nan"), float("inf"), "free", [], 1j, Decimal("NaN"), Decimal(-1)]
    )
    def test_an_invalid_return_value_of_cost_of_is_unknown_and_logged(self, made, caplog):
        with caplog.at_level(logging.WARNING, "treadle.loop"):
            usage = self.usage(completion("x"), limits=Limits(cost_of=lambda response: made))
        assert (usage.cost, usage.total_tokens) == (None, 5)
        assert "cost_of=" in caplog.text

    def test_an_exception_of_cost_of_is_logged_and_the_cost_is_unknown(self, caplog, way):
        def price(response):
            raise KeyError("model")

        with caplog.at_level(logging.WARNING, "treadle.loop"):
            result = way.run(
                Loop(limits=Limits(cost_of=price), max_cost=1), ScriptedLLM(completion("x"))
            )
        assert (type(result), result.usage.cost) == (Ok, None)
        assert "cost_of= failed" in caplog.text
        assert "KeyError: 'model'" in caplog.text

    def test_a_computed_cost_is_in_the_paused_state(self, recorded):
        batch = completion(calls(call("wipe", path="/")))
        loop = recorded.loop(limits=Limits(cost_of=lambda response: Decimal("0.25")))
        paused = SYNC.run(loop, ScriptedLLM(batch))
        assert paused.usage.cost == 0.25
        assert stored(paused)["budget"]["usage"]["cost"] == 0.25

    def test_it_is_in_the_nodes_and_in_the_run_state(self):
        loop = Loop(tools=[note], limits=Limits(cost_of=lambda response: 0.5))
        run = SYNC.run(loop, ScriptedLLM(completion(notes(1)), completion("x"))).run
        assert [node.usage.cost for node in run.nodes] == [0.5, 0.5]
        assert run.total_usage.cost == 1.0


def test_cost_of_keeps_the_other_fields_of_a_custom_response():
    """Only its cost is added."""
    made = Response("x", (), "stop", Usage(1, 2, cached_tokens=1), "m", "id", {"k": 1})
    result = SYNC.run(Loop(limits=Limits(cost_of=lambda response: 0.5)), ScriptedLLM(made))
    priced = result.unwrap()
    assert priced.usage == Usage(1, 2, cached_tokens=1, cost=0.5)
    assert (priced.model, priced.id, priced.extra, priced.finish_reason) == (
        "m",
        "id",
        {"k": 1},
        "stop",
    )
