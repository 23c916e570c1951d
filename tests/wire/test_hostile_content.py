"""Whatever a model or a tool returned, the next request of every adapter is legal.

Hostile content goes through a run into a history, and the history through each SDK to a server. Its bodies are
checked by the types of the SDK, and by the rules of the API.
"""

import base64
import functools
import importlib
import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.providers.histories import PAGES, PIXEL, SOUND
from tests.wire.speaking import APIS, COMPLETE, WORDS, Said, Scripted, body

from treadle import Loop, Ok, Response, ToolCall, tool
from treadle.messages import for_sdk
from treadle.messages.sanitizing import sendable
from treadle.providers import JSONToolModel, backend
from treadle.testing import check_history

ASK = {"role": "user", "content": "Go on."}
FORMATS = ("anthropic-messages", "gemini-content", "ollama-chat", "openai-responses", "unknown")

texts = st.sampled_from(
    [
        "",
        " ",
        "x",
        "a\ud800b",
        "\udfff",
        "\ud83d\ude00",
        "a\0b",
        "\u00e9",
        "\u200b",
        "a b/c",
        "n" * 200,
        "None",
    ]
)
numbers = st.sampled_from([0, -1, 5, 0.5, 10**30, 10**400, float("nan"), float("inf")])
deep = st.sampled_from([5, 99, 101, 300]).map(
    lambda levels: functools.reduce(lambda inner, _: {"a": [inner]}, range(levels), "x")
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
values = values | deep

MEDIA = ("image/png", "image/jpg", "image/pjpeg", "image/x-png", "image/svg+xml", "IMAGE/PNG", "audio/mp3",
         "application/pdf", "text/plain", "x", "")  # fmt: skip
DATA = (PIXEL, PIXEL.rstrip("="), f" {PIXEL[:8]}\n{PIXEL[8:]}", PIXEL.replace("+", "-").replace("/", "_"),
        PIXEL.replace("=", "%3D"), "", "=", "%%%", "a", "\u00e9\ud800", SOUND, PAGES)  # fmt: skip
URLS = ("https://a.org/b.png", "http://a.org", "ftp://a.org/b.png", "javascript:0", "data:", "data", "", " ",
        "\ud800", "data:,hi", "data:image/png,hi", "data:text/html;charset=utf-8,<b>")  # fmt: skip
data_urls = st.builds(
    "{}:{}{}{},{}".format,
    st.sampled_from(["data", "DATA", " data"]),
    st.sampled_from(MEDIA),
    st.sampled_from(["", ";name=a.png", ";charset=utf-8"]),
    st.sampled_from(["", ";base64", ";BASE64", "; base64"]),
    st.sampled_from(DATA),
)
urls = st.sampled_from(URLS) | data_urls


def part(kind, value):
    return {"type": kind, kind: value}


sounds = st.fixed_dictionaries(
    {
        "data": st.sampled_from(DATA),
        "format": st.sampled_from(
            ["wav", "mp3", "x-wav", "audio/mp3", "MPEG", "ogg", "", "\ud800"]
        ),
    }
)
files = st.fixed_dictionaries(
    {}, optional={"file_data": urls | st.sampled_from(DATA), "file_id": texts, "filename": texts}
)
parts = st.one_of(
    texts.map(functools.partial(part, "text")),
    urls.map(lambda url: part("image_url", {"url": url})),
    sounds.map(functools.partial(part, "input_audio")),
    files.map(functools.partial(part, "file")),
)
odd_parts = (
    parts
    | st.builds(
        part,
        st.sampled_from(["text", "refusal", "image_url", "input_audio", "file", "thinking", "x"]),
        values,
    )
    | st.sampled_from(["text", "image_url", "file", "\ud800"]).map(lambda kind: {"type": kind})
    | st.sampled_from(["image_url", "input_audio", "file"]).map(
        lambda kind: {"type": kind, "fileData": {"fileUri": "gs://a/b"}}  # the form of another API
    )
)
results = values | st.lists(parts, min_size=1, max_size=3) | texts.map(ValueError)

arguments = texts | values.map(functools.partial(json.dumps, default=str)) | st.sampled_from(
    ['{"x": "\\ud800"}', '{"x": 1}', '{"\\udfff": [1e999]}', '{"x": ' + "9" * 400 + "}", "[1]", '{"x": NaN}',
     '{"x": "\ud800"}', '{"x": ' + '{"a":' * 150 + "1" + "}" * 151]
)  # fmt: skip
details = st.lists(
    st.none() | values | st.fixed_dictionaries(
        {"format": st.sampled_from(FORMATS)},
        optional={
            "type": st.sampled_from(["reasoning.text", "reasoning.encrypted", "reasoning.summary", "x"]),
            "text": values, "summary": values, "data": values, "signature": values, "id": values, "index": values,
        },
    ),
    max_size=3,
)  # fmt: skip
ODD_DETAILS = [
    None,
    *(
        {
            "format": form,
            "type": kind,
            "index": 0,
            "id": 5,
            **dict.fromkeys(("text", "summary", "data", "signature"), odd),
        }
        for form in FORMATS
        for kind in ("reasoning.text", "reasoning.encrypted", "reasoning.summary")
        for odd in (5, None, "", {"a": 1}, "\ud800")
    ),
]
extras = st.fixed_dictionaries(
    {},
    optional={
        "reasoning_details": details,
        "reasoning_content": values,
        "thinking_blocks": values,
        "content": st.lists(odd_parts, max_size=3),
        "treadle": values,
        "role": values,
        "\ud800": values,
    },
)
foreign = st.fixed_dictionaries(
    {},
    optional={"extra_content": values | st.fixed_dictionaries({
        "anthropic": st.fixed_dictionaries({"blocks": st.lists(values, max_size=2)}),
        "google": st.fixed_dictionaries({"thought_signature": values, "parts": st.lists(values, max_size=2)}),
        "openai": st.fixed_dictionaries({"items": st.lists(values, max_size=2)}),
    })},
)  # fmt: skip
calls = st.builds(
    ToolCall,
    texts,
    st.sampled_from(["act", "", "no such", "\ud800", "n" * 200]),
    arguments,
    extra=st.just({}),
)
responses = st.builds(
    lambda content, calls, extra, refusal: Response(
        content, tuple(calls), extra=extra, refusal=refusal
    ),
    st.none() | texts,
    st.lists(calls, max_size=3),
    extras,
    st.none() | texts,
)


def history_of(response, result):
    """The history of a run in which a model and a tool return hostile content."""

    @tool
    def act(x: object = None, **more: object) -> object:
        """Act."""
        if isinstance(result, Exception):
            raise result
        return result

    answers = iter([response])
    made = Loop.run_sync(
        "q", lambda messages: next(answers, "Done."), tools=[act], retry_delay=0.001
    )
    check_history(made.messages)
    return [*made.messages, ASK]


@pytest.fixture(scope="module")
def server():
    with Scripted() as server:
        yield server


def check(api, sent):
    importlib.import_module(f"tests.providers.back_{api.replace('-', '_')}").check_body(sent)
    json.dumps(sent, ensure_ascii=False, allow_nan=False).encode()
    check_media(api, sent)


def check_media(api, sent):
    """Every image is of a type that the API takes, and its data are base64."""
    if isinstance(sent, list):
        for one in sent:
            check_media(api, one)
    elif isinstance(sent, dict):
        if api == "anthropic" and sent.get("type") == "base64":
            assert base64.b64decode(sent["data"], validate=True)
        for image in sent.get("images", ()) if api == "ollama" else ():
            assert base64.b64decode(image, validate=True)
        url = sent.get("image_url") if api == "openai-responses" else sent.get("url")
        if isinstance(url, str) and api.startswith("openai"):
            assert url.startswith(("https://", "http://", "data:image/"))
            if url.startswith("data:"):
                head, _, data = url.partition(",")
                assert head in {
                    f"data:image/{one};base64" for one in ("png", "jpeg", "gif", "webp")
                }
                assert base64.b64decode(data, validate=True)
        for one in sent.values():
            check_media(api, one)


def check_next(server, api, history):
    """Send the next request through the SDK, and check its body."""
    server.script(body(api, Said("Done.", (), COMPLETE[api]), streamed=False))
    model = server.model(api, streamed=False)
    result = Loop.run_sync(history, model, max_retries=0)
    model.close()
    assert isinstance(result, Ok), result
    (sent,) = server.requests
    assert '"treadle"' not in json.dumps(sent)
    if api != "openai":  # a server that is not OpenAI receives all keys
        check(api, sent)


@settings(max_examples=50)
@given(responses, results)
@example(Response("a", extra={"reasoning_details": [None]}), "r")
@example(Response("a", extra={"reasoning_details": ODD_DETAILS}), "r")
@example(Response(None, (ToolCall("c", "act", '{"x": "\\ud800"}'),)), "\ud800")
@example(
    Response(None, (ToolCall("c", "act", "{}"),)),
    [part("image_url", {"url": "data:image/png;base64,%%%"})],
)
@example(Response("a", extra={"content": [{"type": "text"}, {"type": "image_url"}]}), None)
def test_the_next_request_of_every_adapter_is_legal(server, response, result):
    history = history_of(response, result)
    for api in APIS:
        check_next(server, api, history)  # another origin
    history = for_sdk(history)
    for api in APIS:
        check_next(server, api, history)
    for name in ("openai:gpt-5", "grok:grok-4"):  # the provider's own endpoint
        model = backend(name, api_key="k")
        check("openai", {"model": "m", "messages": model._body(history, {})["messages"]})
    sent = []
    JSONToolModel(lambda messages, **_: sent.append(messages) or "Hi.")(history)
    json.dumps(sent, ensure_ascii=False, allow_nan=False).encode()


@settings(max_examples=30)
@given(responses, foreign)
def test_what_another_server_kept_does_not_reach_an_adapter(server, response, extra):
    response = Response("said", response.tool_calls, extra={**response.extra, **extra})
    history = history_of(response, "r")
    for api in APIS:
        check_next(server, api, history)


@settings(max_examples=30)
@given(st.lists(odd_parts, min_size=1, max_size=3), texts)
def test_what_a_caller_passes_is_sent(server, given_parts, text):
    history = [{"role": "user", "content": [*given_parts, {"type": "text", "text": "Look."}]}]
    history += [{"role": "assistant", "content": "x" + text}, {**ASK, "content": text + "y"}]
    kept = [one for one in given_parts if one["type"] not in {"thinking", "x", "\ud800"}]
    history[0]["content"] = [*kept, history[0]["content"][-1]]
    for api in APIS:
        check_next(server, api, history)


# Responses of servers

FURTHER = {"openai": "tool_calls", "openai-responses": "incomplete", "anthropic": "tool_use"}
ENDED = {"stop", "tool_calls", "completed", "end_turn", "tool_use", "STOP"}
"""The words of complete responses; a body that is not streamed needs none."""
JSON_ARGUMENTS = (
    None,
    "{}",
    '{"folder": "/x"}',
    '{"folder": "\\ud800"}',
    '{"folder": 5}',
    '{"n": ' + "9" * 400 + "}",
)
BROKEN = ('{"folder": "/x"', '{"folder": "/', "{")


@settings(max_examples=80)
@given(st.data(), st.sampled_from(APIS), st.booleans())
def test_after_any_response_of_a_server_the_second_turn_is_legal(server, data, api, streamed):
    is_text = api.startswith("openai") or (api == "anthropic" and streamed)
    listed = data.draw(st.lists(st.tuples(
        st.sampled_from(["c1", "c2", "a b", "c" * 150]),
        st.sampled_from(["act", "no such", "n" * 200]),
        st.sampled_from(JSON_ARGUMENTS + (BROKEN if is_text else ())),
    ), max_size=2))  # fmt: skip
    text = data.draw(texts)
    said = Said(text, tuple(listed), data.draw(st.sampled_from((*WORDS[api], FURTHER.get(api)))))
    ran = []

    @tool
    def act(folder: str = "/") -> str:
        """Act."""
        ran.append(folder)
        return "acted"

    done = body(api, Said("Done.", (), COMPLETE[api]), streamed=streamed)
    server.script(body(api, said, streamed=streamed), *[done] * 6)
    model = server.model(api, streamed=streamed)
    first = Loop.run_sync("q", model, tools=[act], max_retries=1, retry_delay=0.001)
    second = Loop.run_sync([*first.messages, ASK], model, tools=[act], retry_delay=0.001)
    model.close()
    assert isinstance(second, Ok), second
    check_history(second.messages)
    for sent in server.requests:
        check(api, sent)
    is_complete = said.word in ENDED or (said.word is None and not streamed)
    written = [one[2] for one in listed if one[1] == "act" and one[2] and one[2] not in BROKEN]
    whole = [json.loads(arguments).get("folder", "/") for arguments in written]
    assert all(folder in whole or (folder == "/" and is_complete) for folder in ran)
    if not is_complete:
        return
    history = json.dumps(first.messages, ensure_ascii=False)
    assert sendable(text) in json.loads(json.dumps(history)) or not text.strip() or "\0" in text
    answers = [one for one in first.messages if one["role"] == "tool"]
    assert len(answers) >= len({one[0] for one in listed})
