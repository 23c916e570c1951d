"""Limits of tokens and cost on the one-line backends of the official client: they hold, streamed or not."""

import asyncio
import functools

import openai
import pytest
from tests.samples import add

from treadle import BudgetExhausted, LimitNotMeasurable, Limits, Loop, Ok

pytestmark = pytest.mark.wire

QUESTION = "What is 1 + 2?"
CALL = {
    "toolCalls": [{"name": "add", "arguments": '{"a": 1, "b": 2}'}],
    "usage": {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50},
}
BACKENDS = {
    "whole": {},
    "stream with usage": {"stream": True, "stream_options": {"include_usage": True}},
    "stream": {"stream": True},
}
COUNTED = ("whole", "stream with usage")


def cost_of(response):
    return response.usage.total_tokens * 0.001


@pytest.fixture(params=["sync", "async"])
def ask(request, wire):
    """Runs a loop on `partial(client.chat.completions.create, ...)`, as the README does."""

    def ask(backend, llm_opts=None, **limits):
        options = {"tools": [add], "llm_opts": llm_opts or {}, "limits": Limits(**limits)}
        settings = {"base_url": wire.base_url, "api_key": "a key", "max_retries": 0}

        def model_of(client):
            create = client.chat.completions.create
            return functools.partial(create, model="gpt-4.1", **BACKENDS[backend])

        if request.param == "sync":
            with openai.OpenAI(**settings) as client:
                return Loop.run_sync(QUESTION, model_of(client), **options)

        async def go():
            async with openai.AsyncOpenAI(**settings) as client:
                return await Loop.run(QUESTION, model_of(client), **options)

        return asyncio.run(go())

    return ask


@pytest.mark.parametrize("backend", COUNTED)
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_total_tokens": 1}, BudgetExhausted("max_total_tokens", 1, 50)),
        ({"max_input_tokens": 40}, BudgetExhausted("max_input_tokens", 40, 40)),
        ({"max_output_tokens": 10}, BudgetExhausted("max_output_tokens", 10, 10)),
        ({"max_cost": 1e-9, "cost_of": cost_of}, BudgetExhausted("max_cost", 1e-9, 0.05)),
    ],
    ids=["total", "input", "output", "cost"],
)
def test_a_limit_holds_where_the_usage_is_reported(wire, ask, backend, limits, reason):
    wire.script(CALL, "Three.")
    result = ask(backend, **limits)
    assert result.reason == reason
    assert len(wire.requests) == 1


@pytest.mark.parametrize("backend", COUNTED)
def test_within_its_limits_a_run_answers(wire, ask, backend):
    wire.script(CALL, "Three.")
    result = ask(backend, max_total_tokens=10_000, max_cost=1, cost_of=cost_of)
    assert isinstance(result, Ok)
    assert result.usage.is_measured
    assert result.usage.cost == pytest.approx(result.usage.total_tokens * 0.001)


@pytest.mark.parametrize(
    ("limits", "missing"),
    [
        ({"max_total_tokens": 1_000_000}, "usage"),
        ({"max_cost": 100}, "cost"),
        ({"max_cost": 100, "cost_of": cost_of}, "cost"),
    ],
    ids=["tokens", "cost", "cost_of"],
)
@pytest.mark.parametrize("on_limit", ["stop", "finish"])
def test_a_stream_without_usage_ends_the_run_before_another_request(
    wire, ask, limits, missing, on_limit
):
    wire.script(CALL, "Three.")
    result = ask("stream", on_limit=on_limit, **limits)
    assert isinstance(result.reason, LimitNotMeasurable)
    assert result.reason.missing == missing
    assert 'stream_options={"include_usage": True}' in str(result.reason)
    assert result.messages[-1]["content"] == "3"
    assert len(wire.requests) == 1


def test_the_advice_works(wire, ask):
    """With the option that the reason names, the same run answers."""
    wire.script(CALL, "Three.")
    advice = {"stream_options": {"include_usage": True}}
    result = ask("stream", max_total_tokens=10_000, llm_opts=advice)
    assert isinstance(result, Ok)
    assert result.usage.is_measured


@pytest.mark.parametrize(
    "limit", [{"max_total_tokens": 10}, {"max_cost": 0.01, "cost_of": cost_of}]
)
def test_a_stream_without_usage_is_limited_by_estimates(wire, ask, limit):
    wire.script(CALL, "Three.")
    result = ask("stream", unmeasured="estimate", **limit)
    assert isinstance(result.reason, BudgetExhausted)
    assert result.usage.is_estimate
    assert len(wire.requests) == 1


def test_a_cost_limit_without_a_price_ends_the_run(wire, ask):
    wire.script(CALL, "Three.")
    result = ask("whole", max_cost=100)
    assert (result.reason.kind, result.reason.missing) == ("max_cost", "cost")
    assert len(wire.requests) == 1
