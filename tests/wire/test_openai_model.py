"""`OpenAIModel`, the adapter, against a server that speaks OpenAI's wire format."""

import asyncio
import json
from contextlib import aclosing

import pytest
from pydantic import BaseModel
from tests.samples import add

from treadle import LimitNotMeasurable, Limits, Loop, Output
from treadle.events import TextDelta
from treadle.providers import Prices, backend

pytestmark = pytest.mark.wire

QUESTION = [{"role": "user", "content": "1 + 2?"}]
CALL = {"toolCalls": [{"name": "add", "arguments": '{"a": 1, "b": 2}'}]}
USAGE = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}


def opened(wire, **opts):
    return backend("openai:gpt-4.1", base_url=wire.base_url, **opts)


async def run_once(model, **options):
    async with aclosing(model):
        return await Loop.run(QUESTION, model, retry_delay=0.01, **{"tools": [add], **options})


def test_a_streamed_answer_is_reported_as_it_comes_with_its_usage(wire):
    """`stream=True` asks for the usage too, which a stream does not tell of itself."""
    wire.script({"content": "It is three, no more, no less.", "usage": USAGE})
    events = []

    result = asyncio.run(run_once(opened(wire, stream=True), on_event=events.append))

    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(pieces) == "It is three, no more, no less."
    assert len(pieces) > 3
    assert result.usage.total_tokens == 13
    (sent,) = wire.requests
    assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})


def test_options_of_a_request_win_over_those_of_the_model(wire):
    """What the model was opened with holds for every request that says nothing else."""
    wire.script("Three.")

    asyncio.run(run_once(opened(wire, temperature=0, max_tokens=5), llm_opts={"temperature": 0.5}))

    (sent,) = wire.requests
    assert (sent["temperature"], sent["max_tokens"]) == (0.5, 5)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_measured_and_priced(wire, stream):
    wire.script({"content": "It is three, no more, no less.", "usage": USAGE})
    prices = Prices(input=100_000.0, output=1_000_000.0)

    result = asyncio.run(run_once(opened(wire, stream=stream, prices=prices), max_cost=100))

    [call] = result.run.nodes[0].model_calls
    assert (call.status, call.provider, call.cost) == ("success", "openai", pytest.approx(4.0))
    assert call.timing == result.response.timing
    assert result.response.tokens_per_second > 0
    first = result.response.time_to_first_token
    assert 0 < first <= result.response.duration if stream else first is None


def test_the_price_of_another_server_is_unknown(wire):
    wire.script(CALL, "Three.")
    result = asyncio.run(run_once(opened(wire), max_cost=100, limits=Limits(unmeasured="estimate")))
    assert isinstance(result.reason, LimitNotMeasurable)
    assert result.reason.missing == "cost"


class Invoice(BaseModel):
    """What is to be paid."""

    customer: str


RIGHT = {"toolCalls": [{"name": "Invoice", "arguments": '{"customer": "ACME"}'}]}


@pytest.mark.parametrize("stream", [False, True])
def test_the_form_of_an_output_is_sent(wire, stream):
    wire.script(RIGHT, json.dumps({"customer": "ACME"}))
    for mode in ("tool", "json"):
        options = {"output": Output(Invoice, mode=mode), "tools": []}
        result = asyncio.run(run_once(opened(wire, stream=stream), **options))
        assert result.output == Invoice(customer="ACME")
    by_tool, by_json = wire.requests
    [offered] = by_tool["tools"]
    assert offered["function"]["name"] == "Invoice"
    assert "tool_choice" not in by_tool
    assert by_json["response_format"]["json_schema"]["name"] == "Invoice"
    assert "tools" not in by_json


@pytest.mark.parametrize("stream", [False, True])
def test_the_last_request_for_an_output_forces_the_call(wire, stream):
    wire.script("9", "9 euros", RIGHT)
    result = asyncio.run(run_once(opened(wire, stream=stream), output=Invoice, tools=[]))
    assert result.output == Invoice(customer="ACME")
    forced = {"type": "function", "function": {"name": "Invoice"}}
    assert wire.requests[-1]["tool_choice"] == forced
