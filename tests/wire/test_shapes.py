"""The shapes in which servers send responses: those of each API, and of servers that only resemble it.

Each file under ``shapes`` is one response, in a folder with the name of its API. Its head, in TOML, says what is
odd and what the response means; its body is what the server sends. To report a shape, add a file.
"""

import contextlib
import functools
import json
import tomllib
from pathlib import Path

import pytest
from openai import OpenAI
from tests.wire.speaking import COMPLETE, EVENTS, JSON, LINES, Said, Scripted, body

from treadle import Err, Loop, ModelResponded, tool
from treadle.testing import check_history

SHAPES = Path(__file__).parent / "shapes"
FILES = sorted(SHAPES.glob("*/*"))
KINDS = {".sse": EVENTS, ".json": JSON, ".ndjson": LINES}
KEYS = {
    "about", "content", "calls", "ending", "runs", "extra", "call_extra", "tokens", "error", "kind"
}  # fmt: skip


def name_of(path):
    return f"{path.parent.name}/{path.stem}"


def ways_of(path):
    """The adapter of the API reads each shape; the method of an SDK is one for chat completions."""
    yield "adapter"
    if path.parent.name == "openai":
        yield "method"


CASES = [
    pytest.param(path, way, id=f"{name_of(path)}-{way}") for path in FILES for way in ways_of(path)
]


@contextlib.contextmanager
def model_of(server, path, way):
    api, streamed = path.parent.name, path.suffix != ".json"
    if way == "adapter":
        yield server.model(api, streamed=streamed)
        return
    with OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as client:
        yield functools.partial(client.chat.completions.create, model="m", stream=streamed)


@pytest.mark.parametrize(("path", "way"), CASES)
def test_a_response_means_the_same_in_every_shape(path, way):
    head, _, sent = path.read_text(encoding="utf-8").partition("---\n")
    expected, sent = tomllib.loads(head), sent + "\n"  # the empty line that ends an event
    assert expected.keys() <= KEYS
    ran, responses = [], []

    @tool
    def get(city: str = "anywhere") -> str:
        """Get the weather."""
        ran.append(city)
        return "warm"

    @tool
    def now() -> str:
        """Get the time."""
        return "noon"

    def keep(event):
        if isinstance(event, ModelResponded):
            responses.append(event.response)

    api = path.parent.name
    done = body(api, Said("Done.", (), COMPLETE[api]), streamed=path.suffix != ".json")
    kind = expected.get("kind", KINDS[path.suffix])
    with (
        Scripted((kind, sent), *[done] * 3) as server,
        model_of(server, path, way) as model,
    ):
        result = Loop.run_sync("q", model, tools=[get, now], on_event=keep, max_retries=0)
    check_history(result.messages)
    if "error" in expected:
        assert isinstance(result, Err)
        assert expected["error"] in str(result.reason)
        assert not ran
        return
    assert responses, result
    response = responses[0]
    assert (response.text or "") == expected.get("content", "")
    calls = expected.get("calls", [])
    found = [[call.id, call.name, call.arguments] for call in response.tool_calls]
    assert found == calls
    assert response.ending == expected["ending"]
    if "runs" in expected:
        assert ran == expected["runs"]
    else:
        assert ran == [json.loads(call[2])["city"] for call in calls if call[1] == "get"]
    if "tokens" in expected:
        assert response.usage.total_tokens == expected["tokens"]
    for key, value in expected.get("extra", {}).items():
        assert response.extra[key] == value
    for key, value in expected.get("call_extra", {}).items():
        assert response.tool_calls[0].extra[key] == value


def test_an_error_that_arrives_in_two_pieces_keeps_its_text():
    pieces = ['data: {"error": {"code": "INVALID", "mess', 'age": "no such city"}}\n\n']
    with Scripted((EVENTS, pieces)) as server:
        result = Loop.run_sync("q", server.model("gemini"), max_retries=0)
    assert "no such city" in str(result.reason)
