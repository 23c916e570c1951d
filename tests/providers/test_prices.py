"""The cost of responses: by listed prices, by given ones, or unknown."""

import logging
import subprocess
import sys
import textwrap
from unittest.mock import MagicMock

import anyio
import pytest
from genai_prices import Usage as ListedUsage
from genai_prices import calc_price

from treadle import Err, Limits, Loop, Ok, OptionError, Response, Usage
from treadle.model import ModelClient, ModelRequest
from treadle.providers import JSONToolModel, Prices, backend
from treadle.providers.openai import OpenAIModel
from treadle.providers.prices import listed_cost
from treadle.testing import ScriptedLLM, call, calls

USAGE = Usage(10_000, 500, cached_tokens=2_000, cache_write_tokens=3_000)
MODELS = {
    "anthropic": ("anthropic", "claude-sonnet-4-5"),
    "gcp.gemini": ("google", "gemini-2.5-flash"),
    "openai": ("openai", "gpt-5-mini-2025-08-07"),
    "x_ai": ("x-ai", "grok-4"),
}
"""A model of each provider, with what genai-prices calls the provider."""


def per_million(prices, name):
    """A listed price; that of a model with tiers is the first."""
    price = getattr(prices, name)
    return float(getattr(price, "base", price))


class TestListedPrices:
    @pytest.mark.parametrize("provider", MODELS)
    def test_the_tokens_of_each_kind_have_their_price(self, provider):
        listed, model = MODELS[provider]
        prices = calc_price(ListedUsage(input_tokens=1), model, provider_id=listed).model_price
        input_price = per_million(prices, "input_mtok")
        read = per_million(prices, "cache_read_mtok")
        written = input_price
        if prices.cache_write_mtok is not None:
            written = per_million(prices, "cache_write_mtok")
        expected = (
            5_000 * input_price
            + 2_000 * read
            + 3_000 * written
            + 500 * per_million(prices, "output_mtok")
        ) / 1e6
        assert listed_cost(provider, model, USAGE) == pytest.approx(expected)

    def test_what_is_written_to_anthropics_cache_costs_more_than_a_plain_prompt(self):
        plain = listed_cost("anthropic", "claude-sonnet-4-5", Usage(10_000, 0))
        written = listed_cost(
            "anthropic", "claude-sonnet-4-5", Usage(10_000, 0, cache_write_tokens=10_000)
        )
        assert (plain, written) == (pytest.approx(0.03), pytest.approx(0.0375))

    def test_reasoning_is_part_of_the_output(self):
        of = [listed_cost("openai", "gpt-5", Usage(1, 50, reasoning_tokens=n)) for n in (0, 40)]
        assert of[0] == of[1] > 0

    @pytest.mark.parametrize("usage", [None, Usage(5, is_lower_bound=True)])
    def test_tokens_that_are_not_all_known_have_no_cost(self, usage):
        assert listed_cost("openai", "gpt-5", usage) is None

    @pytest.mark.parametrize(
        ("provider", "model"),
        [
            ("openai", "my-model"),
            ("openai", "text-embedding-3-small"),
            ("ollama", "gpt-5"),
            ("llama.cpp", "gpt-5"),
        ],
    )
    def test_the_cost_of_a_model_that_is_not_listed_is_unknown(self, provider, model):
        assert listed_cost(provider, model, USAGE) is None

    def test_impossible_counts_have_no_cost(self):
        impossible = Usage(10, 10, cached_tokens=50)
        assert listed_cost("openai", "gpt-5", impossible) is None

    def test_an_unknown_model_is_logged_once_and_quietly(self, caplog):
        with caplog.at_level(logging.DEBUG, "treadle.providers"):
            for _ in range(3):
                listed_cost("openai", "a-model-of-this-test", USAGE)
        assert [(one.levelno, "a-model-of-this-test" in one.message) for one in caplog.records] == [
            (logging.DEBUG, True)
        ]

    def test_without_the_package_the_cost_is_unknown(self):
        program = """
            import sys
            sys.modules["genai_prices"] = None
            from treadle import Usage
            from treadle.providers.prices import listed_cost
            assert listed_cost("openai", "gpt-5", Usage(1, 1)) is None
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)

    def test_the_package_is_imported_when_a_cost_is_computed(self):
        program = """
            import sys, treadle.providers
            from treadle.providers import backend
            backend("openai:gpt-5", api_key="x")
            assert "genai_prices" not in sys.modules
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


class TestGivenPrices:
    def test_each_kind_of_token_has_its_price(self):
        prices = Prices(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75)
        expected = (5_000 * 3 + 2_000 * 0.3 + 3_000 * 3.75 + 500 * 15) / 1e6
        assert prices.cost(USAGE) == pytest.approx(expected)

    def test_cached_tokens_cost_as_others_by_default(self):
        assert Prices(input=3.0, output=0).cost(USAGE) == pytest.approx(0.03)

    def test_tokens_that_are_not_all_known_have_no_cost(self):
        assert Prices(1, 1).cost(None) is None
        assert Prices(1, 1).cost(Usage(5, is_lower_bound=True)) is None

    @pytest.mark.parametrize("price", [-1, "3", True, float("nan"), float("inf"), None])
    def test_a_price_has_to_be_a_number_of_dollars(self, price):
        with pytest.raises(OptionError, match=r"^Prices: output: expected US dollars"):
            Prices(input=1, output=price)
        if price is not None:
            with pytest.raises(OptionError, match=r"^Prices: cache_write: expected"):
                Prices(input=1, output=1, cache_write=price)


class TestTheModel:
    def test_the_model_that_answered_decides_and_else_the_one_that_was_asked(self):
        model = OpenAIModel("gpt-5", api_key="x")
        own = model.cost_of(Response("x", usage=USAGE))
        mini = model.cost_of(Response("x", usage=USAGE, model="gpt-5-mini-2025-08-07"))
        assert own == listed_cost("openai", "gpt-5", USAGE)
        assert mini == listed_cost("openai", "gpt-5-mini", USAGE) < own
        assert model.cost_of(Response("x", usage=USAGE, model="made-up")) == own

    @pytest.mark.parametrize(
        ("name", "provider"),
        [
            ("anthropic:claude-sonnet-4-5", "anthropic"),
            ("gemini:gemini-2.5-flash", "gcp.gemini"),
            ("grok:grok-4", "x_ai"),
            ("openai:gpt-5", "openai"),
            ("openai-responses:gpt-5", "openai"),
        ],
    )
    def test_each_provider_has_its_own_prices(self, name, provider):
        model = backend(name, api_key="x")
        expected = listed_cost(provider, name.partition(":")[2], USAGE)
        assert model.cost_of(Response("x", usage=USAGE)) == expected > 0

    def test_a_local_server_has_no_price(self):
        assert backend("ollama:gpt-5").cost_of(Response("x", usage=USAGE)) is None

    def test_a_model_without_native_tools_has_the_price_of_the_model_that_it_calls(self):
        prices, response = Prices(input=1.0, output=2.0), Response("x", usage=USAGE)
        priced = JSONToolModel(backend("openai:m", api_key="x", prices=prices))
        assert priced.cost_of(response) == prices.cost(USAGE)
        assert JSONToolModel(lambda messages: "x").cost_of(response) is None

    def test_another_server_has_no_price_of_the_provider(self, monkeypatch):
        response = Response("x", usage=USAGE)
        local = backend("openai:gpt-5", base_url="http://127.0.0.1:8000/v1")
        assert local.cost_of(response) is None
        monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.example/v1")
        assert backend("openai:gpt-5", api_key="x").cost_of(response) is None

    def test_given_prices_take_precedence_and_hold_for_any_server(self):
        prices, response = Prices(input=1.0, output=2.0), Response("x", usage=USAGE)
        for url in (None, "http://127.0.0.1:8000/v1"):
            model = backend("openai:gpt-5", api_key="x", base_url=url, prices=prices)
            assert model.cost_of(response) == pytest.approx(0.011)

    def test_prices_of_another_kind_are_an_error(self):
        with pytest.raises(OptionError, match=r"^prices: expected Prices, got dict"):
            backend("openai:gpt-5", api_key="x", prices={"input": 1})


@pytest.fixture(params=["sync", "asyncio", "trio"])
def priced(request):
    """A model that knows the cost of its responses, run by each of the drivers."""

    class Priced:
        def __init__(self, *script, price=0.25):
            self.model, self.price, self.seen = ScriptedLLM(*script), price, []

        def __call__(self, messages, **opts):
            return self.model(messages, **opts)

        def cost_of(self, response):
            self.seen.append(response)
            return self.price

        def run(self, **options):
            if request.param == "sync":
                return Loop.run_sync("Hi", self, **options)
            return anyio.run(lambda: Loop.run("Hi", self, **options), backend=request.param)

    return Priced


def noted(n):
    return calls(call("note", n=n))


def note(n: int):
    """Note."""
    return n


class TestTheLoop:
    def test_a_model_may_know_the_cost_of_its_responses(self, priced):
        result = priced(Response("x", usage=Usage(1, 2))).run()
        assert result.usage == Usage(1, 2, cost=0.25)
        assert result.run.nodes[0].model_calls[0].cost == 0.25

    @pytest.mark.parametrize(
        ("usage", "price", "options", "cost"),
        [
            (None, 0.25, {"limits": Limits(cost_of=lambda response: 2.0)}, 2.0),
            (Usage(1, 2, cost=0.5), 0.25, {}, 0.5),
            (None, 0.25, {"limits": Limits(unmeasured="estimate")}, 0.25),
            (Usage(1, 2), None, {}, None),
        ],
        ids=["of the loop", "reported", "of an estimate", "unknown"],
    )
    def test_the_cost_of_the_loop_and_a_reported_one_take_precedence(
        self, priced, usage, price, options, cost
    ):
        result = priced(Response("x", usage=usage), price=price).run(**options)
        assert result.usage.cost == cost
        assert result.usage.is_estimate is (
            getattr(options.get("limits"), "unmeasured", "") == "estimate"
        )

    def test_max_cost_works_without_cost_of(self, priced):
        result = priced(*(noted(n) for n in range(9))).run(
            tools=[note], max_cost=0.6, limits=Limits(unmeasured="ignore")
        )
        assert isinstance(result, Err)
        assert str(result.reason) == "the budget is spent: max_cost=0.6, used 0.75"

    def test_the_model_that_answered_decides(self, priced):
        """Middleware may send the request to another model."""
        other = priced("other", price=7.0)

        def rerouting(request, send):
            client = ModelClient(other, {})
            return (yield from send(ModelRequest(client, request.messages, {})))

        model = priced("x")
        result = model.run(model_middleware=[rerouting])
        assert isinstance(result, Ok)
        assert (result.response.text, result.usage.cost, model.seen) == ("other", 7.0, [])

    def test_a_response_that_no_model_gave_has_no_price(self, priced):
        def answering(request, send):
            return Response("from elsewhere", usage=Usage(1, 1)), 0.0, 0.0
            yield

        assert priced("x").run(model_middleware=[answering]).usage.cost is None

    def test_nor_if_a_model_answered_before(self, priced):
        def answering(request, send):
            if request.iteration == 1:
                return (yield from send(request))
            return Response("from elsewhere", usage=Usage(1, 1)), 0.0, 0.0

        result = priced(noted(1)).run(tools=[note], model_middleware=[answering])
        costs = [node.model_calls[0].cost for node in result.run.nodes]
        assert costs == [0.25, None]

    def test_an_object_that_has_any_attribute_has_no_price(self):
        model = MagicMock(return_value="x")
        assert Loop.run_sync("Hi", model).usage.cost is None
