"""`OpenAIModel` and the command against real servers: who receives which key, and what is no answer of a model."""

import asyncio
import contextlib
import functools
import json
import os
import socket
import sys
import warnings

import openai
import pytest
from tests.completion import COMPLETION
from tests.http_server import ScriptedServer
from tests.programs import run_program

from treadle import Err, Loop, Ok, OptionError
from treadle.providers import backend, embedder
from treadle.providers.endpoint import PLACEHOLDER
from treadle.providers.openai_client import OPENAI
from treadle.providers.sdk_connection import RedirectError

KEY = "sk-of-the-environment"
GOOGLES_REASON = {"reason": "API_KEY_INVALID"}
PAGE = "<!doctype html><title>Welcome</title><p>This is a web page."


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "XAI_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def serve():
    with contextlib.ExitStack() as stack:

        def start(status=200, kind="application/json", body="", **headers):
            """A server that answers every request in one way."""
            server = ScriptedServer((status, {"Content-Type": kind, **headers}, body))
            server.url += "/v1"
            return stack.enter_context(server)

        yield start


@pytest.fixture
def server(serve):
    return serve(body=json.dumps(COMPLETION))


def authorizations(server):
    return [headers.get("authorization") for headers in server.headers]


def ask(name="openai:m", **opts):
    with contextlib.closing(backend(name, **opts)) as model:
        return Loop.run_sync("hi", model, max_retries=0)


def test_a_server_that_is_named_in_the_program_does_not_receive_the_key_of_openai(server):
    assert isinstance(ask(base_url=server.url), Ok)
    assert authorizations(server) == [f"Bearer {PLACEHOLDER}"]


def test_the_server_in_the_environment_receives_the_key_in_the_environment(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    ask()
    ask(base_url=f"{server.url}/")
    assert authorizations(server) == [f"Bearer {KEY}"] * 2


def test_a_key_that_is_given_is_sent(server):
    ask(base_url=server.url, api_key="sk-given")
    assert authorizations(server) == ["Bearer sk-given"]


@pytest.mark.parametrize("name", ["openai:m", "openai-responses:m", "anthropic:m", "gemini:m"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_the_error_names_the_place(
    status, stream, name, serve, server
):
    """It would carry the conversation, and every header but ``Authorization``."""
    first = serve(status, Location=f"{server.url}/chat/completions?key=abc")
    result = ask(name, base_url=first.url, api_key="sk-given", stream=stream)
    assert result.reason.error_type == "RedirectError"
    place = f"redirects to {server.url}/chat/completions, and redirects are not followed"
    assert place in str(result.reason)
    assert (len(first.paths), server.paths) == (1, [])


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("http://u:p@192.0.2.1/x?key=a#access_token=b", "http://[redacted]@192.0.2.1/x"),
        ("/\x01", "/\x01"),
        ("http://[", "an invalid URL"),
    ],
)
def test_a_redirect_to_any_place_is_explained(location, place, serve):
    result = ask(base_url=serve(307, Location=location).url)
    assert result.reason.error_type == "RedirectError"
    assert f"{place}, and redirects are not followed" in result.reason.message


@pytest.mark.parametrize("key", ["secret\n", "secret\nsecret", " secret", "secr\xe9t"])
@pytest.mark.parametrize("name", ["openai:m", "anthropic:m"])
def test_a_key_that_a_header_cannot_have_is_an_error_that_does_not_show_it(name, key):
    with pytest.raises(OptionError, match="cannot be sent in a header") as caught:
        backend(name, api_key=key)
    assert "secr" not in str(caught.value)


@pytest.fixture
def headers_of_environment(monkeypatch):
    """What the SDK reads from the environment, by the names of headers in small letters."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-env")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-env")
    monkeypatch.setenv(
        "OPENAI_CUSTOM_HEADERS", "X-Gateway-Key: gateway-env\nauthorization: Bearer env"
    )
    return {
        "openai-organization": "org-env",
        "openai-project": "project-env",
        "x-gateway-key": "gateway-env",
        "authorization": "Bearer env",
    }


@pytest.mark.parametrize("key", [None, "sk-given"])
def test_headers_in_the_environment_are_not_sent_to_another_server(
    key, server, headers_of_environment
):
    assert isinstance(ask(base_url=server.url, api_key=key), Ok)
    (sent,) = server.headers
    assert sent["authorization"] == f"Bearer {key or PLACEHOLDER}"
    assert not sent.keys() & (headers_of_environment.keys() - {"authorization"})


def test_headers_in_the_environment_are_sent_to_the_server_in_the_environment(
    server, headers_of_environment, monkeypatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert isinstance(ask(), Ok)
    (sent,) = server.headers
    assert sent["x-gateway-key"] == "gateway-env"
    assert sent["openai-organization"] == "org-env"


@pytest.mark.parametrize("name", ["grok:m", "openai-responses:m"])
def test_headers_in_the_environment_are_not_sent_to_another_server_by_other_models(
    name, server, headers_of_environment, monkeypatch
):
    """Not to xAI's either, whose server the environment names: these settings are for OpenAI."""
    monkeypatch.setenv("XAI_BASE_URL", server.url)
    monkeypatch.setenv("XAI_API_KEY", "xai-key")
    url = None if name.startswith("grok") else server.url
    ask(name, base_url=url)
    (sent,) = server.headers
    key = PLACEHOLDER if url else "xai-key"
    assert sent["authorization"] == f"Bearer {key}"
    assert not sent.keys() & (headers_of_environment.keys() - {"authorization"})


def test_an_embedder_sends_the_key_as_a_model_does(server):
    with pytest.raises(Exception, match="expected 1 vectors"):
        asyncio.run(embedder("openai:m", base_url=server.url)(["a"]))
    assert authorizations(server) == [f"Bearer {PLACEHOLDER}"]


def test_a_redirect_of_an_embedder_is_not_followed(serve, server):
    first = serve(307, Location=f"{server.url}/embeddings")
    with pytest.raises(RedirectError, match="redirects are not followed"):
        asyncio.run(embedder("openai:m", base_url=first.url)(["a"]))
    assert server.paths == []


@pytest.mark.parametrize("body", ["[]", "5", "null"])
@pytest.mark.parametrize("stream", [True, False])
def test_json_that_is_no_chat_completion_is_an_error_that_says_so(stream, body, serve):
    result = ask(base_url=serve(body=body).url, stream=stream)
    assert result.reason.error_type == "NotAResponseError"


def test_json_that_is_no_response_is_an_error_that_says_so(server):
    result = ask("openai-responses:m", base_url=server.url, stream=False)
    assert "is no response of the Responses API; check the base URL" in str(result.reason)


def test_a_server_that_does_not_stream_is_understood(server):
    """It was asked for a stream, and sent the whole response."""
    result = ask(base_url=server.url, stream=True)
    assert result.unwrap().content == "Hi."


@pytest.mark.parametrize("name", ["openai:m", "openai-responses:m"])
def test_a_stream_without_anything_in_it_is_an_error_and_no_empty_response(name, serve):
    server = serve(kind="text/event-stream", body="\n")
    result = ask(name, base_url=server.url)
    assert "the stream ended before the answer did" in str(result.reason)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("https://api.openai.com/v1", KEY),
        ("https://API.openai.com:443/v1", KEY),
        ("http://api.openai.com/v1", PLACEHOLDER),
        ("https://api.openai.com:8443/v1", PLACEHOLDER),
        ("https://api.openai.com.example.org/v1", PLACEHOLDER),
        ("https://api.openai.com@example.org/v1", PLACEHOLDER),
        ("https://example.org\\@api.openai.com/v1", PLACEHOLDER),
        ("https://example.org/api.openai.com", PLACEHOLDER),
        ("https://[::1/v1", PLACEHOLDER),
        ("https://api.openai.com.evil.test/v1", PLACEHOLDER),
        ("https://api.openai.com./v1", PLACEHOLDER),
        ("https://api.openai.com:0/v1", PLACEHOLDER),
        ("https://api.openai.com\\.evil.test/v1", PLACEHOLDER),
        ("https://user@api.openai.com/v1", PLACEHOLDER),
        ("https:api.openai.com/v1", PLACEHOLDER),
        ("https://api.op\nenai.com/v1", PLACEHOLDER),
        (" https://api.openai.com/v1", PLACEHOLDER),
        ("https://api\u3002openai.com/v1", PLACEHOLDER),
        ("https://api.openai.com:\uff14\uff14\uff13/v1", PLACEHOLDER),
        ("https://\u0430pi.openai.com/v1", PLACEHOLDER),
        ("https://proxy.example.org/other", KEY),  # OPENAI_BASE_URL has this server
        ("http://proxy.example.org/v1", PLACEHOLDER),
        ("https://proxy.example.org:444/v1", PLACEHOLDER),
    ],
)
def test_the_key_of_the_environment_is_for_two_servers_only(endpoint, expected, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://proxy.example.org/v1")
    assert OPENAI.key_for(endpoint, None) == expected


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("https://[2001:DB8::1]:8443/other", KEY),
        ("https://[2001:db8::1]/v1", PLACEHOLDER),
        ("https://[2001:db8::2]:8443/v1", PLACEHOLDER),
    ],
)
def test_a_server_in_the_environment_may_be_an_address(endpoint, expected, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://[2001:db8::1]:8443/v1")
    assert OPENAI.key_for(endpoint, None) == expected


@pytest.mark.parametrize("host", ["192.168.1.5:8080", "models.example.org", "0.0.0.0:1"])
@pytest.mark.parametrize("name", ["openai:m", "ollama:m"])
def test_a_key_without_encryption_is_a_warning_that_names_the_server(name, host):
    with pytest.warns(UserWarning, match=f"sent to http://{host} without encryption") as caught:
        backend(name, base_url=f"http://user:pw@{host}/v1", api_key="sk-given")
    assert [one.filename for one in caught] == [__file__]  # where the model is opened


@pytest.mark.parametrize(
    ("endpoint", "key"),
    [
        ("http://127.0.0.1:8080/v1", "sk-given"),
        ("http://[::1]:8080/v1", "sk-given"),
        ("http://localhost/v1", "sk-given"),
        ("https://models.example.org/v1", "sk-given"),
        ("http://models.example.org/v1", None),  # the placeholder is no secret
    ],
)
@pytest.mark.parametrize("name", ["openai:m", "ollama:m"])
def test_what_nobody_can_read_is_no_warning(name, endpoint, key):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backend(name, base_url=endpoint, api_key=key)


@pytest.mark.parametrize(
    ("name", "variable", "status", "body"),
    [
        ("openai:m", "OPENAI_API_KEY", 401, {"message": "no key"}),
        ("anthropic:m", "ANTHROPIC_API_KEY", 401, {"type": "authentication_error"}),
        *(
            ("gemini:m", "GOOGLE_API_KEY", code, {"code": code, "details": [GOOGLES_REASON]})
            for code in (400, 401, 403)
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_wants_a_key_is_an_error_that_says_why_none_was_sent(
    stream, name, variable, status, body, serve, monkeypatch
):
    monkeypatch.setenv(variable, KEY)
    server = serve(status, body=json.dumps({"type": "error", "error": body}))
    result = ask(name, base_url=server.url, stream=stream)
    assert result.reason.error_type == "MissingKeyError"
    assert "requires an API key, and none was given for it: set api_key=" in str(result.reason)
    assert f"{variable} is only sent to" in str(result.reason)
    assert KEY not in str(result.reason) + str(server.headers)


def test_a_key_that_the_server_refuses_is_the_error_of_the_server(serve):
    server = serve(401, body='{"error": {"message": "wrong key"}}')
    assert "wrong key" in str(ask(base_url=server.url, api_key="sk-given").reason)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "TEXT/HTML"])
def test_a_web_page_is_not_taken_for_the_answer(kind, stream, serve):
    server = serve(kind=kind, body=PAGE)
    result = ask(base_url=server.url, stream=stream)

    assert isinstance(result, Err)
    assert "check the base URL, whose path is usually /v1" in str(result.reason)
    assert len(server.paths) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client_class", [openai.OpenAI, openai.AsyncOpenAI])
def test_a_web_page_is_not_taken_for_the_answer_of_a_client_method(client_class, stream, serve):
    server = serve(kind="text/html", body=PAGE)
    client = client_class(base_url=server.url, api_key="k", max_retries=0)
    model = functools.partial(client.chat.completions.create, model="m", stream=stream)
    result = Loop.run_sync("hi", model, max_retries=0)

    assert isinstance(result, Err)
    assert "check the base URL" in str(result.reason)


def test_a_function_of_the_user_may_answer_with_a_page():
    assert Loop.run_sync("hi", lambda messages: PAGE).unwrap().content == PAGE


class TestCommand:
    @pytest.fixture
    def treadle(self, tmp_path):
        def run(*args, **env):
            command = [
                sys.executable,
                "-m",
                "treadle",
                "run",
                "hi",
                "--model",
                "openai:m",
                "--quiet",
            ]
            return run_program([*command, *args], env={**os.environ, **env}, cwd=tmp_path)

        return run

    def test_base_url_does_not_receive_the_key_of_openai(self, treadle, server):
        done = treadle("--base-url", server.url)
        assert (done.returncode, done.stdout) == (0, "Hi.\n")
        assert authorizations(server) == [f"Bearer {PLACEHOLDER}"]

    def test_a_variable_that_is_named_has_the_key(self, treadle, server):
        treadle("--base-url", server.url, "--api-key-env", "MY_KEY", MY_KEY="sk-mine")
        treadle("--base-url", server.url, "--api-key-env", "OPENAI_API_KEY")
        assert authorizations(server) == ["Bearer sk-mine", f"Bearer {KEY}"]

    def test_a_variable_that_is_not_set_is_bad_usage(self, treadle, server):
        done = treadle("--base-url", server.url, "--api-key-env", "MY_KEY")
        assert done.returncode == 2
        assert "--api-key-env: the variable MY_KEY is not set" in done.stderr
        assert authorizations(server) == []

    def test_a_key_without_encryption_is_a_warning(self, treadle):
        with socket.socket() as unused:  # bound, and not listening: a connection is refused
            unused.bind(("127.0.0.1", 0))
            url = f"http://0.0.0.0:{unused.getsockname()[1]}/v1"
            done = treadle(
                "--base-url", url, "--api-key-env", "OPENAI_API_KEY", "--max-retries", "0"
            )
        first, *_ = done.stderr.splitlines()
        assert first.startswith("treadle: the API key and the messages are sent to http://0.0.0.0:")
        assert KEY not in done.stderr
