"""What a server gave goes back to that server and to no other, through the official SDKs."""

import functools
import json

import pytest
from openai import OpenAI
from tests.wire.speaking import COMPLETE, Said, Scripted, body

from treadle import Loop, Ok, tool
from treadle.providers import JSONToolModel, backend
from treadle.providers.sdk_model import SDKModel

SIGNATURE = "c2lnbmVk"
FIRST = Said("", (("c1", "act", '{"x": 1}'),), "stop")
ASK = {"role": "user", "content": "Go on."}


@tool
def act(x: int) -> str:
    """Act."""
    return f"acted {x}"


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streamed(request):
    return request.param


def signed(streamed):
    """The body of a call with a thought signature, as the chat completions of Gemini and of Vertex have it."""
    kind, text = body("openai", FIRST, streamed=streamed)
    mark = f'"extra_content": {{"google": {{"thought_signature": "{SIGNATURE}"}}}}'
    changed = text.replace('"id": "c1"', f'"id": "c1", {mark}', 1)
    changed = changed.replace('"role": "assistant"', '"role": "assistant", "reasoning": "Hm."', 1)
    assert changed.count(SIGNATURE) == 1
    return kind, changed


def said(text, streamed, api="openai"):
    return body(api, Said(text, (), COMPLETE[api]), streamed=streamed)


def run(history, model):
    result = Loop.run_sync(history, model, tools=[act], retry_delay=0.001)
    assert isinstance(result, Ok), result
    if isinstance(model, SDKModel):
        model.close()
    return [*result.messages, ASK]


def test_signatures_of_any_host_return_there_and_nowhere_else(streamed):
    answers = [said(f"{number}.", streamed) for number in range(3)]
    with (
        Scripted(signed(streamed), *answers) as vertex,
        Scripted(*answers) as gateway,
    ):
        history = run("q", vertex.model("openai", streamed=streamed))
        history = run(history, gateway.model("openai", streamed=streamed))
        run(history, vertex.model("openai", streamed=streamed))
    call = {"google": {"thought_signature": SIGNATURE}}
    for request in vertex.requests[1:]:
        assert request["messages"][1]["tool_calls"][0]["extra_content"] == call
        assert request["messages"][1]["reasoning"] == "Hm."
    (request,) = gateway.requests
    assert SIGNATURE not in json.dumps(request)
    assert "Hm." not in json.dumps(request)
    assert "treadle" not in json.dumps([*vertex.requests, *gateway.requests])


@pytest.mark.parametrize("api", ["openai-responses", "anthropic", "gemini", "ollama"])
def test_other_apis_on_the_same_host_do_not_receive_them(api, streamed):
    with Scripted(signed(streamed), said("Done.", streamed), said("Yes.", streamed, api)) as server:
        history = run("q", server.model("openai", streamed=streamed))
        run(history, server.model(api, streamed=streamed))
    sent = json.dumps(server.requests[-1])
    assert "acted 1" in sent
    assert SIGNATURE not in sent
    assert "treadle" not in sent


def test_a_method_of_the_sdk_is_the_same_server_as_the_adapter(streamed):
    with Scripted(signed(False), said("Done.", False), said("Yes.", streamed)) as server:
        client = OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)
        history = run("q", functools.partial(client.chat.completions.create, model="m"))
        run(history, server.model("openai", streamed=streamed))
        client.close()
    for request in server.requests[1:]:
        assert SIGNATURE in json.dumps(request)
    assert "treadle" not in json.dumps(server.requests)


def test_an_adapter_that_is_called_directly_leaves_the_key_out():
    history = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "Hi.", "x": "of b", "treadle": {"origin": "openai@b"}},
        ASK,
    ]
    with Scripted(*[said("Yes.", False)] * 2) as server:
        for model in (
            server.model("openai", streamed=False),
            JSONToolModel(server.model("openai", streamed=False)),
        ):
            Loop.run_sync("q", lambda messages, model=model: model(history)).unwrap()
    for request in server.requests:
        assert request["messages"][1] == {"role": "assistant", "content": "Hi."}


def test_a_model_around_another_has_its_origin():
    inner = backend("ollama:m", base_url="http://127.0.0.1:9")
    assert JSONToolModel(inner).origin == inner.origin == "ollama@127.0.0.1:9"
