"""The cost of a run: reported, computed by `cost_of`, or unknown."""

import logging
from decimal import Decimal

import pytest

from treadle import (
    Limits,
    Loop,
    Ok,
    Response,
    Usage,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, stored
from .notes import completion, note, notes


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
