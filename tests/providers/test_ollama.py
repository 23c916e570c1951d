"""`OllamaModel` and `OllamaEmbedder`: the translation, and a server of Ollama's wire format on this machine."""

import asyncio
import contextlib
import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.http_server import ScriptedServer

from treadle import Err, Loop, Ok, OptionError, Output, tool
from treadle.events import ModelRetried, ReasoningDelta, TextDelta
from treadle.messages.parts import placeholder, text_of_parts
from treadle.model import is_retryable
from treadle.providers import JSONToolModel, backend
from treadle.providers.ollama import PROVIDER, OllamaEmbedder, OllamaModel
from treadle.providers.ollama.connection import OLLAMA, full_url
from treadle.providers.ollama.request import body_of, options_of
from treadle.testing import check_history

from . import back_ollama
from .histories import PIXEL, histories, texts

QUESTION = [{"role": "user", "content": "1 + 2?"}]


@tool
def add(a: int, b: int | None = None) -> int:
    """Add two numbers."""
    return a + (b or 0)


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch):
    for name in (
        "OLLAMA_HOST",
        "OLLAMA_API_KEY",
        "http_proxy",
        "HTTP_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


# ---------------------------------------------------------------- messages


def reasoning_items(kind):
    return st.lists(
        texts.map(
            lambda text: {"type": "reasoning.text", "text": text, "format": kind, "index": 0}
        ),
        min_size=1,
        max_size=2,
    )


reasoning = st.one_of(
    st.just({}),
    st.tuples(reasoning_items("ollama-chat"), reasoning_items("anthropic-claude-v1")).map(
        lambda both: {"reasoning_details": [*both[0], *both[1]]}
    ),
)


def projected(history):
    """What of a history reaches Ollama."""
    names = {
        call["id"]: call["function"]["name"]
        for message in history
        for call in message.get("tool_calls", ())
    }
    return [projected_message(message, names) for message in history]


def is_image(part):
    return part["type"] == "image_url" and part["image_url"]["url"].startswith("data:")


def projected_message(message, names):
    content = message["content"] or ""
    made = {"role": message["role"], "content": content}
    if isinstance(content, list):
        made["content"] = text_of_parts(part for part in content if not is_image(part))
        images = [PIXEL for part in content if is_image(part)]
        made |= {"images": images} if images else {}
    own = [
        one["text"]
        for one in message.get("reasoning_details", ())
        if one["format"] == "ollama-chat"
    ]
    made |= {"thinking": "".join(own)} if own else {}
    if message.get("tool_calls"):
        made["tool_calls"] = message["tool_calls"]
    if message["role"] == "tool":
        made |= {
            "tool_call_id": message["tool_call_id"],
            "tool_name": names[message["tool_call_id"]],
        }
    return made


@given(histories(reasoning=reasoning))
def test_a_history_survives_the_translation_up_to_what_ollama_has_no_form_for(history):
    before = json.dumps(history)
    body = body_of("m", history, {})
    back_ollama.check_body(body)
    assert back_ollama.messages_of(body) == projected(history)
    assert json.dumps(history) == before


def test_what_ollama_cannot_take_becomes_a_text_and_is_logged(caplog):
    sound = {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}
    body = body_of("m", [{"role": "user", "content": [sound]}], {})
    assert body["messages"][0]["content"] == placeholder(sound)
    assert "treadle.providers" in [record.name for record in caplog.records]


def test_developer_messages_refusals_and_malformed_arguments_are_sent():
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": '}}
    history = [
        {"role": "developer", "content": "Be brief."},
        *QUESTION,
        {"role": "assistant", "content": None, "refusal": "No."},
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Error: malformed"},
    ]
    body = body_of("m", history, {})
    back_ollama.check_body(body)
    system, _, refused, _, said, _ = body["messages"]
    assert (system["role"], refused["content"]) == ("system", "No.")
    assert said["tool_calls"][0]["function"]["arguments"] == {"invalid_arguments": '{"a": '}


# ---------------------------------------------------------------- options

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("opts", "expected"),
    [
        ({"max_tokens": 5}, {"options": {"num_predict": 5}}),
        ({"max_completion_tokens": 5, "seed": 1}, {"options": {"num_predict": 5, "seed": 1}}),
        ({"stop": "."}, {"options": {"stop": ["."]}}),
        ({"stop": [".", "!"]}, {"options": {"stop": [".", "!"]}}),
        ({"num_ctx": 8192, "options": {"draft": 1}}, {"options": {"num_ctx": 8192, "draft": 1}}),
        ({"keep_alive": "5m", "think": True}, {"keep_alive": "5m", "think": True}),
        ({"reasoning_effort": "high"}, {"think": "high"}),
        ({"reasoning_effort": "none"}, {"think": False}),
        ({"response_format": {"type": "json_object"}}, {"format": "json"}),
        ({"response_format": {"type": "text"}}, {}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            {"format": SCHEMA},
        ),
        ({"tools": [add.as_openai()], "tool_choice": "none"}, {}),
        ({"tools": [add.as_openai()], "tool_choice": "auto"}, {"tools": [add.as_openai()]}),
        ({"temperature": None, "n": 1, "parallel_tool_calls": True}, {}),
    ],
)
def test_options_are_translated(opts, expected):
    assert options_of(opts) == expected


@pytest.mark.parametrize(
    ("opts", "words"),
    [
        ({"num_ctxt": 1}, "no option 'num_ctxt'; did you mean 'num_ctx'"),
        ({"logit_bias": {}}, "no option 'logit_bias'"),
        ({"n": 2}, "n: Ollama only supports 1"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls: Ollama only supports True"),
        ({"response_format": {"type": "xml"}}, "response_format: expected json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format: expected json_schema"),
    ],
)
def test_options_that_ollama_does_not_have_are_errors(opts, words):
    with pytest.raises(OptionError, match=words):
        options_of(opts)


def test_an_unknown_option_of_the_model_is_an_error_at_once():
    with pytest.raises(OptionError, match="no option 'num_ctxt'"):
        backend("ollama:qwen3:8b", num_ctxt=1)


# ---------------------------------------------------------------- addresses and keys


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("localhost", "http://localhost:11434"),
        ("localhost:1234", "http://localhost:1234"),
        (":1234", "http://127.0.0.1:1234"),
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104 - not bound
        ("0.0.0.0:1234", "http://127.0.0.1:1234"),
        ("[::1]", "http://[::1]:11434"),
        ("[::]:1234", "http://[::1]:1234"),
        ("https://ollama.example.com", "https://ollama.example.com"),
        ("http://example.com:80/path/", "http://example.com:80/path"),
        ("example.com/path", "http://example.com:11434/path"),
    ],
)
def test_addresses_need_no_scheme_and_no_port(host, url):
    assert full_url(host) == url


def test_the_address_and_the_key_of_the_environment_belong_together(monkeypatch):
    assert OLLAMA.url_of(None) == "http://127.0.0.1:11434"
    monkeypatch.setenv("OLLAMA_HOST", "localhost:1234")
    monkeypatch.setenv("OLLAMA_API_KEY", "a key")
    assert OLLAMA.url_of(None) == "http://localhost:1234"
    assert OLLAMA.key_for("http://localhost:1234", None) == "a key"
    assert OLLAMA.key_for("https://ollama.com", None) == "a key"
    assert OLLAMA.key_for("https://ollama.com:443/api", None) == "a key"
    assert OLLAMA.key_for("https://other.example.com\\@ollama.com", None) == "no-key"
    assert OLLAMA.key_for("https://other.example.com", None) == "no-key"


def test_a_name_opens_the_model_without_a_key():
    model = backend("ollama:qwen3:8b")
    assert isinstance(model, OllamaModel)
    assert (model.model, model.provider, PROVIDER.needs_key) == ("qwen3:8b", "ollama", False)


# ---------------------------------------------------------------- a server


@pytest.fixture
def server():
    with ScriptedServer() as server:
        yield server


def add_to(server, *pieces, status=200, **headers):
    """Let a server respond with JSON objects, one a line."""
    server.answers.append((status, headers, "\n".join(map(json.dumps, pieces))))


def piece(content="", done=False, **message):
    facts = {"done_reason": "stop", "prompt_eval_count": 10, "eval_count": 3} if done else {}
    message = {"role": "assistant", "content": content, **message}
    return {"model": "m", "message": message, "done": done, **facts}


def call(name, call_id=None, **arguments):
    made = {"function": {"name": name, "arguments": arguments}}
    return {**made, "id": call_id} if call_id else made


def ask(server, driver="asyncio", *, stream=True, opts=None, messages=QUESTION, **options):
    model = backend("ollama:m", base_url=server.url, stream=stream, **(opts or {}))
    options = {"tools": [add], "retry_delay": 0.01, **options}
    if driver == "run_sync":
        with contextlib.closing(model):
            return Loop.run_sync(messages, model, **options)

    async def go():
        async with contextlib.aclosing(model):
            return await Loop.run(messages, model, **options)

    return asyncio.run(go()) if driver == "asyncio" else trio.run(go)


# the SDK and httpx do not close the generators within their streams, about which trio warns
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
@pytest.mark.parametrize("driver", ["run_sync", "asyncio", "trio"])
@pytest.mark.parametrize("stream", [False, True])
def test_parallel_calls_run_and_their_results_are_sent(server, driver, stream):
    calls = [call("add", "call_a", a=1, b=2), call("add", a=3)]
    if stream:
        add_to(server, piece(tool_calls=calls[:1]), piece(tool_calls=calls[1:]), piece(done=True))
        add_to(server, piece("It "), piece("is 3."), piece(done=True))
    else:
        add_to(server, piece(tool_calls=calls, done=True))
        add_to(server, piece("It is 3.", done=True))

    result = ask(server, driver, stream=stream, on_event=(events := []).append)

    assert isinstance(result, Ok), result
    assert (result.output, result.tool_calls_count, result.usage.total_tokens) == (
        "It is 3.",
        2,
        26,
    )
    check_history(result.messages)
    first, second = server.bodies
    assert first["tools"] == [add.as_openai()]  # with anyOf, which the SDK's types leave out
    assert "anyOf" in json.dumps(first["tools"])
    back_ollama.check_body({**second, "tools": []})
    said, *results = second["messages"][1:]
    ids = [one["id"] for one in said["tool_calls"]]
    assert ids[0] == "call_a"
    assert [(one["tool_name"], one["content"], one["tool_call_id"]) for one in results] == [
        ("add", "3", ids[0]),
        ("add", "3", ids[1]),
    ]
    if stream:
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["It ", "is 3."]
    assert server.headers[0]["authorization"] == "Bearer no-key"


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_is_reported_kept_and_sent_back(server, stream):
    steps = [piece(thinking="Hm"), piece(thinking="m."), piece(tool_calls=[call("add", a=3)])]
    whole = piece(thinking="Hmm.", tool_calls=[call("add", a=3)], done=True)
    add_to(server, *([*steps, piece(done=True)] if stream else [whole]))
    add_to(server, piece("3", done=True))

    result = ask(server, stream=stream, on_event=(events := []).append)

    (item,) = result.messages[1]["reasoning_details"]
    assert (item["text"], item["format"]) == ("Hmm.", "ollama-chat")
    assert server.bodies[1]["messages"][1]["thinking"] == "Hmm."
    if stream:
        assert [event.text for event in events if isinstance(event, ReasoningDelta)] == ["Hm", "m."]


@pytest.mark.parametrize("stream", [False, True])
def test_a_cut_off_answer_has_its_finish_reason(server, stream):
    add_to(server, {**piece("It i", done=True), "done_reason": "length"})
    assert ask(server, stream=stream).reason.finish_reason == "length"


def test_a_stream_without_an_end_is_incomplete(server):
    add_to(server, piece(tool_calls=[call("add", a=3)]))
    add_to(server, piece("3", done=True))
    result = ask(server, on_event=(events := []).append)
    assert (result.output, result.tool_calls_count) == ("3", 0)
    assert len([event for event in events if isinstance(event, ModelRetried)]) == 1


def test_an_error_within_a_stream_ends_the_run(server):
    add_to(server, piece("It"), {"error": "the model runner has stopped"})
    result = ask(server)
    assert "the model runner has stopped" in result.reason.message


@pytest.mark.parametrize("stream", [False, True])
def test_overload_is_retried_as_the_server_asks_and_a_bad_request_is_not(server, stream):
    add_to(server, {"error": "busy"}, status=503, **{"Retry-After": "0.02"})
    add_to(server, {"error": "no such thing"}, status=400)
    result = ask(server, stream=stream, retry_delay=60, on_event=(events := []).append)
    (retried,) = [event for event in events if isinstance(event, ModelRetried)]
    assert (retried.delay, "busy" in retried.error) == (0.02, True)
    assert isinstance(result, Err)
    assert "no such thing" in result.reason.message


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "text", "headers", "words"),
    [
        (401, "{}", {}, "requires an API key"),
        (307, "", {"Location": "http://127.0.0.1:9/x"}, "redirects to http://127.0.0.1:9/x"),
        (200, "<html>", {"Content-Type": "text/html"}, "a web page"),
        (400, '{"error": "m does not support tools"}', {}, "JSONToolModel"),
        (404, '{"error": {"message": "model not found"}}', {}, "model not found"),
        (500, "[]", {}, "status code: 500"),
        (200, "{}", {}, "no message"),
        (200, '{"message": {"tool_calls": [{"function": {}}]}}', {}, "a call without a name"),
        (200, '{"message": {"tool_calls": "add"}}', {}, "a call without a name"),
    ],
)
def test_errors_say_what_to_do(server, stream, status, text, headers, words):
    server.answers.append((status, headers, text))
    result = ask(server, stream=stream, max_retries=0)
    assert isinstance(result, Err)
    assert words in result.reason.message
    assert len(server.bodies) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_does_not_run_is_named(stream, unused_port):
    server = SimpleNamespace(url=f"http://127.0.0.1:{unused_port}")
    result = ask(server, stream=stream, max_retries=0)
    assert (
        f"no Ollama server at {server.url}; start it with `ollama serve`" in result.reason.message
    )
    assert is_retryable(result.reason.cause)


@pytest.fixture
def unused_port():
    with ScriptedServer() as server:
        return server.url.rpartition(":")[2]


def test_options_of_the_model_and_of_a_request_are_sent(server):
    add_to(server, piece("3", done=True))
    ask(server, opts={"num_ctx": 8192, "timeout": 5}, llm_opts={"temperature": 0})
    (body,) = server.bodies
    assert body["options"] == {"num_ctx": 8192, "temperature": 0}
    assert (body["stream"], "timeout" in body) == (True, False)


def test_a_request_that_takes_too_long_is_ended(server):
    add_to(server, piece("3", done=True))
    server.pause = 0.3
    with contextlib.closing(backend("ollama:m", base_url=server.url, timeout=0.05)) as model:
        result = Loop.run_sync(QUESTION, model, max_retries=0)
    assert "Timeout" in result.reason.error_type


# ---------------------------------------------------------------- what Ollama has no native form for


@dataclass
class Sum:
    value: int


def typed(text):
    return piece(text, done=True)


@pytest.mark.parametrize("stream", [False, True])
def test_the_last_attempt_at_a_typed_output_is_constrained_to_it(server, stream):
    add_to(server, typed("Three."))
    add_to(server, typed("Three!"))
    add_to(server, typed('{"tool": "Sum", "arguments": {"value": 3}}'))

    result = ask(server, stream=stream, output=Sum)

    assert result.output == Sum(3)
    first, _, last = server.bodies
    assert "tools" in first
    assert "format" not in first
    assert "tools" not in last
    assert last["format"]["properties"]["tool"] == {"const": "Sum"}
    check_history(result.messages)


@pytest.mark.parametrize("stream", [False, True])
def test_tools_can_be_called_before_an_answer_in_a_format(server, stream):
    add_to(server, typed('{"calls": [{"tool": "add", "arguments": {"a": 3, "b": null}}]}'))
    add_to(server, typed('{"answer": {"value": 3}}'))

    result = ask(server, stream=stream, output=Output(Sum, mode="json"))

    assert (result.output, result.tool_calls_count) == (Sum(3), 1)
    assert all("tools" not in body and "anyOf" in body["format"] for body in server.bodies)


def test_a_format_without_tools_is_native(server):
    add_to(server, typed('{"value": 3}'))
    result = ask(server, tools=[], output=Output(Sum, mode="json"))
    assert result.output == Sum(3)
    assert server.bodies[0]["format"]["properties"].keys() == {"value"}


def test_ollamas_own_format_is_the_same_as_openais(server):
    add_to(server, typed('{"answer": {"x": 3}}'))
    result = ask(server, opts={"format": SCHEMA})
    assert result.output == '{"x": 3}'
    assert "anyOf" in server.bodies[0]["format"]


def test_a_model_without_tool_use_works_within_a_json_tool_model(server):
    add_to(server, typed('{"tool": "add", "arguments": {"a": 1, "b": 2}}'))
    add_to(server, typed('{"answer": "Three."}'))
    with contextlib.closing(JSONToolModel(backend("ollama:m", base_url=server.url))) as model:
        result = Loop.run_sync(QUESTION, model, tools=[add])
    assert (result.output, result.tool_calls_count) == ("Three.", 1)


# ---------------------------------------------------------------- embeddings


def test_texts_are_embedded(server):
    add_to(server, {"model": "m", "embeddings": [[1.0, 0.0], [0.0, 1.0]]})
    embedder = PROVIDER.open_embedder("m", base_url=server.url, dimensions=2, timeout=5)
    assert isinstance(embedder, OllamaEmbedder)

    async def go():
        async with contextlib.aclosing(embedder):
            return await embedder(["a", "b"])

    assert asyncio.run(go()) == [[1.0, 0.0], [0.0, 1.0]]
    assert server.paths == ["/api/embed"]
    expected = {"model": "m", "input": ["a", "b"], "truncate": False, "dimensions": 2}
    assert server.bodies == [expected]


def test_an_embedder_names_a_server_that_does_not_run(unused_port):
    embedder = OllamaEmbedder("m", base_url=f"127.0.0.1:{unused_port}")

    async def go():
        async with contextlib.aclosing(embedder):
            await embedder(["a"])

    with pytest.raises(ConnectionError, match="no Ollama server at"):
        asyncio.run(go())
