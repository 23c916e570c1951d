"""Every provider through its official SDK, against a server of its wire format: the loop, faults and output.

After each test, every body that was sent is checked by the types of the provider's SDK, and has a valid history.
"""

import asyncio
import json

import pytest
from pydantic import BaseModel
from tests.wire.conftest import calls, control, weather
from tests.wire.providers import PROVIDERS
from tests.wire.relay import Relay

from treadle import (
    Err,
    Limits,
    Loop,
    ModelRetried,
    Ok,
    Output,
    PartialOutput,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolStarted,
    tool,
)
from treadle.stages import ask_model
from treadle.testing import check_history

pytestmark = [
    pytest.mark.wire,
    # The wire server has a finish reason that Gemini has not, and the SDK warns of it.
    pytest.mark.filterwarnings("ignore:FUNCTION_CALL is not a valid FinishReason:UserWarning"),
]

QUESTION = "What is the weather in Paris and in Rome?"
OVERLOADED = {
    "error": {"message": "overloaded", "type": "overloaded_error"},
    "status": 503,
}
LIMITED = {"error": {"message": "slow down", "type": "rate_limit_error"}, "status": 429}


@pytest.fixture(params=PROVIDERS)
def provider(request):
    return PROVIDERS[request.param]


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request):
    return request.param


@pytest.fixture
def sent(wire, relay, provider):
    """The histories of the requests so far, each checked."""
    relay.clear()

    def read():
        histories = [provider.check(body) for _, body in relay.requests]
        for history in histories:
            check_history(history)
        return histories

    yield read
    read()


@pytest.fixture
def ask(wire, relay, provider, stream, sent):
    """Runs a loop on the provider; returns the result and the events."""

    def ask(prompt=QUESTION, driver="run_sync", model_opts=None, **options):
        model = provider.open(relay.url, stream=stream, **(model_opts or {}))
        events = []
        options = {"retry_delay": 0.01, "tools": [weather], **options}
        if driver == "run":
            result = asyncio.run(Loop.run(prompt, model, on_event=events.append, **options))
        else:
            result = Loop.run_sync(prompt, model, on_event=events.append, **options)
            model.close()
        return result, events

    return ask


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


TWO = calls(("weather", {"city": "Paris"}), ("weather", {"city": "Rome"}))


@pytest.mark.parametrize("driver", ["run_sync", "run"])
def test_two_parallel_calls_and_the_answer(wire, ask, sent, stream, driver):
    wire.script(TWO, {"content": "Sunny in both."})

    result, events = ask(driver=driver)

    assert isinstance(result, Ok), result
    assert result.response.content == "Sunny in both."
    assert result.tool_calls_count == 2
    assert result.response.ending == "complete"
    assert result.response.is_streamed is stream
    first, second = sent()
    assert [message["content"] for message in first if message["role"] == "user"] == [QUESTION]
    results = [message["content"] for message in second if message["role"] == "tool"]
    assert results == ["sunny in Paris", "sunny in Rome"]
    said = next(message for message in second if message.get("tool_calls"))
    assert [json.loads(call["function"]["arguments"]) for call in said["tool_calls"]] == [
        {"city": "Paris"},
        {"city": "Rome"},
    ]
    if stream:
        assert "".join(event.text for event in of(events, TextDelta)) == "Sunny in both."
        assert of(events, ToolCallDelta)


def test_the_usage_is_counted(wire, ask, provider):
    wire.script(
        {
            "content": "Hello.",
            "usage": {"prompt_tokens": 70, "completion_tokens": 5, "total_tokens": 75},
        }
    )
    result, _ = ask()
    if not provider.has_usage:  # the server sends zeros, and zeros are no count
        assert result.response.usage is None
        return
    assert result.usage.is_measured
    assert result.usage.input_tokens > 0
    assert result.usage.output_tokens > 0


@pytest.fixture(scope="module")
def careless(serve):
    """The relay of a model that breaks its JSON at first. A script would be refused: only a file may have it."""
    with serve(
        {"match": {"hasToolResult": False}, "response": calls(("weather", '{"city": "Par'))},
        {
            "match": {"toolResultContains": "Error"},
            "response": calls(("weather", {"city": "Paris"})),
        },
        {"match": {"toolResultContains": "sunny"}, "response": {"content": "It is sunny."}},
    ) as url:
        relay = Relay(url)
        yield relay
        relay.close()


def test_arguments_that_are_no_json_are_answered_and_corrected(careless, provider, stream):
    careless.clear()
    events = []
    model = provider.open(careless.url, stream=stream)
    result = Loop.run_sync(QUESTION, model, tools=[weather], on_event=events.append)
    model.close()
    assert isinstance(result, Ok), result
    assert result.response.content == "It is sunny."
    assert [event.call.input for event in of(events, ToolStarted)] == [{"city": "Paris"}]
    for _, body in careless.requests:
        check_history(provider.check(body))


@pytest.mark.parametrize("fault", [LIMITED, OVERLOADED], ids=["rate limit", "overload"])
def test_a_temporary_error_is_retried(wire, ask, fault):
    wire.script(fault, "Hello.")
    result, events = ask()
    assert isinstance(result, Ok), result
    assert result.response.content == "Hello."
    assert len(of(events, ModelRetried)) == 1
    assert len(wire.journal) == 2  # the SDK has not retried on its own


class TestStreams:
    """What is specific to streams."""

    @pytest.fixture
    def stream(self):
        return True

    def script(self, wire, provider):
        how = {"truncateAfterChunks": provider.text_at, "latency": 20}
        wire.script({"content": "It is half an answer, no more.", "how": how}, "Whole.")

    def test_one_that_is_cut_after_text_was_shown_is_not_requested_again(self, wire, ask, provider):
        self.script(wire, provider)
        result, events = ask()
        assert isinstance(result, Err), result
        shown = "".join(event.text for event in of(events, TextDelta))
        assert shown
        assert "It is half an answer, no more.".startswith(shown)
        assert shown != "It is half an answer, no more."
        assert result.messages[-1] == {"role": "assistant", "content": shown}
        assert len(wire.journal) == 1

    def test_one_that_is_cut_is_requested_again_if_that_is_asked_for(self, wire, ask, provider):
        self.script(wire, provider)
        result, events = ask(stages=[ask_model(restart_streams=True), ...])
        assert isinstance(result, Ok), result
        assert result.response.content == "Whole."
        assert len(of(events, ModelRetried)) == 1

    def test_a_call_that_is_cut_is_not_dispatched(self, wire, ask, provider):
        long = {"city": "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch"}
        cut = 1 if provider.name in {"gemini", "ollama"} else 4  # these send a call in one piece
        wire.script({**calls(("weather", long)), "how": {"truncateAfterChunks": cut}}, "Whole.")
        result, events = ask()
        assert isinstance(result, Ok), result
        assert result.response.content == "Whole."
        assert not of(events, ToolStarted)
        assert len(of(events, ModelRetried)) == 1

    def test_a_reader_that_leaves_closes_the_connection(self, wire, relay, ask, provider):
        wire.script({"content": "word " * 200, "how": {"latency": 20}})

        async def main():
            async with Loop.stream(QUESTION, provider.open(relay.url, stream=True)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
            for _ in range(100):
                if not relay.open:
                    return True
                await asyncio.sleep(0.02)
            return False

        assert asyncio.run(main())


class Invoice(BaseModel):
    """What is to be paid."""

    model_config = {"extra": "forbid"}

    customer: str
    total: float


RIGHT = {"customer": "ACME", "total": 9}


@pytest.mark.parametrize("mode", ["tool", "json"])
def test_typed_output(wire, ask, relay, sent, provider, stream, mode):
    """A text and an invalid object are each answered with the reason; the third answer is the output."""

    def given(data):
        text = json.dumps(data)
        return text if mode == "json" else calls(("Invoice", text))

    wire.script("That is 9 euros.", given({"customer": "ACME", "total": "nine"}), given(RIGHT))
    result, events = ask("Invoice ACME 9 euros.", tools=[], output=Output(Invoice, mode=mode))
    assert isinstance(result, Ok), result
    assert result.output == Invoice(**RIGHT)
    assert (result.iterations, result.stop_reason) == (3, "output")
    check_history(result.messages)
    _, second, third = sent()
    reason = "it was plain text" if mode == "tool" else "the reply is not JSON"
    assert reason in str(second[-1]["content"])
    assert "total: " in str(third[-1]["content"])
    partial = [event.output for event in of(events, PartialOutput)]
    assert partial[-1:] == ([RIGHT] if stream else [])
    if stream and provider.name == "openai":
        assert {"customer": "ACME"} in partial
    if mode == "json":
        assert "customer" in json.dumps(relay.requests[0][1])  # the schema was sent


def test_a_last_answer_with_tools_in_the_history_and_none_to_call(wire, ask, sent):
    wire.script(TWO, "Sunny, as far as I know.")
    result, _ = ask(max_iterations=1, limits=Limits(on_limit="finish"))
    assert result.stop_reason == "finished", result
    assert result.response.content == "Sunny, as far as I know."


@pytest.mark.parametrize(
    "choice", ["required", "none", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_choice_of_tools_is_sent(wire, ask, relay, provider, choice):
    wire.script("Hello.")
    result, _ = ask(llm_opts={"tool_choice": choice})
    assert isinstance(result, Ok), result


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


@tool
def picture() -> list:
    """Take a picture."""
    return ["Taken.", IMAGE]


def test_images_in_the_prompt_and_in_a_result_are_sent(wire, ask, relay, sent):
    wire.script(calls(("picture", {})), "A pixel.")
    prompt = [{"role": "user", "content": [{"type": "text", "text": "Like this?"}, IMAGE]}]
    result, _ = ask(prompt, tools=[picture])
    assert isinstance(result, Ok), result
    _, second = (json.dumps(body) for _, body in relay.requests)
    second = second.replace("-", "+").replace("_", "/")  # some use the alphabet for URLs
    assert second.count(PIXEL) == 2
    assert "Taken." in second


def test_reasoning_is_streamed_kept_and_sent_back(wire, ask, relay, provider, stream):
    """The text reaches listeners; the next request has it in the form of its provider, with its signature."""
    thought = {"reasoning": "Which city? Paris.", "reasoningSignature": "c2lnbmVk"}
    wire.script({**calls(("weather", {"city": "Paris"})), **thought}, "Sunny.")

    result, events = ask(model_opts=provider.reasoning)

    assert isinstance(result, Ok), result
    said = result.messages[1]
    if provider.back == "openai":  # other servers than OpenAI's get their own key back
        assert said["reasoning_content"] == "Which city? Paris."
        return
    if not provider.shows_reasoning:
        return
    assert "Which city? Paris." in json.dumps(said["reasoning_details"])
    if stream:
        assert "".join(event.text for event in of(events, ReasoningDelta)) == "Which city? Paris."
    _, second = (json.dumps(body) for _, body in relay.requests)
    assert ("Which city? Paris." in second) is provider.takes_reasoning_back


def question(text):
    return {"role": "user", "content": [{"type": "text", "text": text}, IMAGE]}


@tool
def failing() -> str:
    """Fail."""
    raise ValueError("no luck")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("first", PROVIDERS)
def test_a_conversation_moves_from_provider_to_provider(wire, relay, first, stream):
    """From each to all others, and back: nothing is lost, each body is valid, no foreign signature is sent."""
    names = [*PROVIDERS]
    place = names.index(first)
    history = []
    for turn, name in enumerate([*names[place:], *names[:place], first]):
        provider = PROVIDERS[name]
        control(relay.url, "POST", "/reset")
        relay.clear()
        signed = {"reasoning": f"I think {name}.", "reasoningSignature": "c2lnbmVk"}
        made = calls(("weather", {"city": f"City {turn}"}), ("failing", {}), ("picture", {}))
        shown = (
            signed if provider.shows_reasoning else {}
        )  # else the server has a key that no one else has
        wire.script({**made, **shown}, f"Answer {turn} of {name}.")
        model = provider.open(relay.url, stream=stream, **provider.reasoning)
        history.append(question(f"Question {turn}?"))
        result = Loop.run_sync(history, model, tools=[weather, failing, picture], retry_delay=0.01)
        model.close()
        assert isinstance(result, Ok), (name, result)
        history = result.messages
        check_history(history)
        for _, body in relay.requests:
            check_history(provider.check(body))
        text = json.dumps(relay.requests[-1][1])
        for earlier in range(turn + 1):
            assert f"Question {earlier}?" in text
            assert f"sunny in City {earlier}" in text
        assert all(f"Answer {earlier} of " in text for earlier in range(turn))
        assert text.count("ValueError: no luck") == turn + 1
        foreign = [one for one in PROVIDERS.values() if one.back not in {provider.back, "openai"}]
        assert not any(f"I think {one.name}." in text for one in foreign)
