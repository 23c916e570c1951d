"""What a run costs: as it is reported, as a price works it out, or unknown."""

import logging
from decimal import Decimal

import pytest

from treadle import (
    Loop,
    Ok,
    Response,
    Usage,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, stored
from .notes import completion, endless, note, notes


class TestCost:
    """What a run costs, as far as it is reported."""

    def usage(self, *script, **options):
        return SYNC.run(Loop(tools=[note], **options), ScriptedLLM(*script)).usage

    def test_a_reported_cost_is_added_up(self):
        assert self.usage(completion(notes(1), 0.5), completion("x", 0.25)).cost == 0.75

    @pytest.mark.parametrize(
        "cost", [True, "0.5", -0.5, float("nan"), float("inf"), [0.5], {"total": 1}]
    )
    def test_what_is_no_cost_is_unknown(self, cost):
        usage = self.usage(completion("x", cost))
        assert (usage.cost, usage.total_tokens) == (None, 5)

    def test_unreported_it_is_unknown_and_not_zero(self):
        assert self.usage(completion("x")).cost is None
        assert self.usage("x").cost is None

    def test_unknown_costs_leave_a_limit_of_cost_open(self):
        """There is nothing to hold it against; other limits end the run."""
        result = SYNC.run(Loop(tools=[note], max_cost=0.1, max_iterations=3), endless)
        assert result.stop_reason == "max_iterations_reached"

    def test_where_one_is_unknown_the_sum_is_of_those_that_are_known(self):
        usage = self.usage(completion(notes(1), 0.5), completion(notes(2)), completion("x", 0.25))
        assert usage.cost == 0.75

    def test_a_price_works_it_out_from_the_response(self):
        seen = []

        def price(response):
            seen.append(response)
            return response.usage.total_tokens * 0.1

        usage = self.usage(completion(notes(1)), completion("x"), cost_of=price)
        assert usage.cost == pytest.approx(1.0)
        assert [one.content for one in seen] == [None, "x"]

    def test_a_reported_cost_wins_over_a_price(self):
        assert self.usage(completion("x", 0.5), cost_of=lambda response: 9).cost == 0.5
        own = Response("x", usage=Usage(1, 1, cost=0.25))
        assert self.usage(own, cost_of=lambda response: 9).cost == 0.25
        free = Response("x", usage=Usage(1, 1, cost=0.0))
        assert self.usage(free, cost_of=lambda response: 9).cost == 0.0

    def test_nothing_is_priced_of_which_nothing_is_known(self):
        assert self.usage("x", cost_of=lambda response: 9).cost is None

    @pytest.mark.parametrize("made", [0, 0.0, 0.5, 2, Decimal("0.25"), None])
    def test_what_a_price_may_be(self, made):
        usage = self.usage(completion("x"), cost_of=lambda response: made)
        assert usage.cost == (None if made is None else float(made))
        assert type(usage.cost) in {float, type(None)}

    @pytest.mark.parametrize(
        "made", [-1, float("nan"), float("inf"), "free", [], 1j, Decimal("NaN"), Decimal(-1)]
    )
    def test_what_is_no_price_is_unknown_and_logged(self, made, caplog):
        with caplog.at_level(logging.WARNING, "treadle.loop"):
            usage = self.usage(completion("x"), cost_of=lambda response: made)
        assert (usage.cost, usage.total_tokens) == (None, 5)
        assert "cost_of=" in caplog.text

    def test_a_price_that_raises_changes_nothing(self, caplog, way):
        def price(response):
            raise KeyError("model")

        with caplog.at_level(logging.WARNING, "treadle.loop"):
            result = way.run(Loop(cost_of=price, max_cost=1), ScriptedLLM(completion("x")))
        assert (type(result), result.usage.cost) == (Ok, None)
        assert "cost_of= failed" in caplog.text
        assert "KeyError: 'model'" in caplog.text

    def test_prices_and_reported_costs_are_added_up_together(self):
        usage = self.usage(
            completion(notes(1)), completion("x", 0.5), cost_of=lambda response: Decimal("0.25")
        )
        assert usage.cost == 0.75

    def test_a_priced_run_can_be_paused(self, recorded):
        batch = completion(calls(call("wipe", path="/")))
        loop = recorded.loop(cost_of=lambda response: Decimal("0.25"))
        paused = SYNC.run(loop, ScriptedLLM(batch))
        assert paused.usage.cost == 0.25
        assert stored(paused)["budget"]["usage"]["cost"] == 0.25

    def test_it_is_on_the_node_and_on_the_record(self):
        loop = Loop(tools=[note], cost_of=lambda response: 0.5)
        run = SYNC.run(loop, ScriptedLLM(completion(notes(1)), completion("x"))).run
        assert [node.usage.cost for node in run.nodes] == [0.5, 0.5]
        assert run.total_usage.cost == 1.0


def test_a_custom_response_is_priced_as_it_is():
    """Its other facts stay as they were."""
    made = Response("x", (), "stop", Usage(1, 2, cached_tokens=1), "m", "id", {"k": 1})
    result = SYNC.run(Loop(cost_of=lambda response: 0.5), ScriptedLLM(made))
    priced = result.unwrap()
    assert priced.usage == Usage(1, 2, cached_tokens=1, cost=0.5)
    assert (priced.model, priced.id, priced.extra, priced.finish_reason) == (
        "m",
        "id",
        {"k": 1},
        "stop",
    )
