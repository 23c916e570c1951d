"""Typed output with the official client of OpenAI, against a server that speaks the wire format."""

import functools
import json

import openai
import pytest
from pydantic import BaseModel

from treadle import Loop, Ok, Output, PartialOutput
from treadle.testing import check_history

pytestmark = pytest.mark.wire


class Invoice(BaseModel):
    """What is to be paid."""

    customer: str
    total: float


QUESTION = "Invoice ACME 9 euros."
RIGHT = {"customer": "ACME", "total": 9}


def given(mode, data):
    """A response with the output: a call of the tool, or JSON text."""
    text = json.dumps(data)
    if mode == "json":
        return text
    return {"toolCalls": [{"name": "Invoice", "arguments": text}]}


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request):
    return request.param


@pytest.fixture
def ask(wire, stream):
    """Runs a loop on the one-line backend of the README."""

    def ask(**options):
        with openai.OpenAI(base_url=wire.base_url, api_key="a key", max_retries=0) as client:
            model = functools.partial(
                client.chat.completions.create, model="gpt-4.1", stream=stream
            )
            return Loop.run_sync(QUESTION, model, **options)

    return ask


@pytest.mark.parametrize("mode", ["tool", "json"])
def test_after_a_plain_text_and_an_invalid_object(wire, ask, stream, mode):
    """Each is answered with the reason; the third answer is the output."""
    wrong = given(mode, {"customer": "ACME", "total": "nine"})
    wire.script("That is 9 euros for ACME.", wrong, given(mode, RIGHT))
    seen = []

    result = ask(output=Output(Invoice, mode=mode), on_event=seen.append)

    assert isinstance(result, Ok)
    assert result.output == Invoice(**RIGHT)
    assert (result.iterations, result.stop_reason) == (3, "output")
    check_history(result.messages)
    _, second, third = wire.requests
    reason = "it was plain text" if mode == "tool" else "the reply is not JSON"
    assert reason in second["messages"][-1]["content"]
    assert "total: " in third["messages"][-1]["content"]
    partial = [event.output for event in seen if isinstance(event, PartialOutput)]
    if stream:
        assert partial[-1] == RIGHT
        assert {"customer": "ACME"} in partial
    else:
        assert partial == []


@pytest.mark.parametrize("mode", ["tool", "json"])
def test_the_form_is_sent(wire, ask, mode):
    wire.script(given(mode, RIGHT))
    ask(output=Output(Invoice, mode=mode))
    [sent] = wire.requests
    if mode == "tool":
        [offered] = sent["tools"]
        assert offered["function"]["name"] == "Invoice"
        assert "tool_choice" not in sent
    else:
        assert sent["response_format"]["json_schema"]["name"] == "Invoice"
        assert "tools" not in sent


def test_the_last_request_forces_the_call(wire, ask):
    wire.script("9", "9 euros", given("tool", RIGHT))
    assert ask(output=Invoice).output == Invoice(**RIGHT)
    assert wire.requests[-1]["tool_choice"] == {
        "type": "function",
        "function": {"name": "Invoice"},
    }
