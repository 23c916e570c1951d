"""Bodies of responses, of each SDK and of MCP: not decompressed, and of a bounded length."""

import functools
import gzip
import tracemalloc

import anyio
import pytest
from tests.http_server import Handler, served_by

from treadle import Loop
from treadle.http_bodies import MAX_BODY
from treadle.mcp import MCPConnectionError, MCPServer
from treadle.providers import backend, embedder

BOMB = gzip.compress(b" " * 50_000_000)
PIECE = b" " * 1_000_000


class Bomber(Handler):
    """Responds with a compressed body, or with one that does not end."""

    protocol_version = "HTTP/1.0"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append(self.headers["accept-encoding"])
        self.send_response(self.server.status)
        self.send_header("content-type", self.server.kind)
        if self.server.encoding:
            self.send_header("content-encoding", self.server.encoding)
            self.end_headers()
            self.wfile.write(BOMB)
            return
        self.end_headers()
        try:
            for _ in range(2 * MAX_BODY // len(PIECE)):
                self.wfile.write(PIECE)
                self.server.sent += len(PIECE)
        except OSError:  # the client has closed the connection
            return


@pytest.fixture
def server():
    facts = {"encoding": "gzip", "status": 200, "kind": "application/json"}
    with served_by(Bomber, asked=[], sent=0, **facts) as made:
        yield made


BACKENDS = {
    "openai:x": "/v1",
    "openai-responses:x": "/v1",
    "anthropic:x": "",
    "gemini:x": "",
    "ollama:x": "",
}


async def streamed(model):
    async with Loop.stream("Hi", model) as stream:
        async for _ in stream:
            pass
    return stream.result


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate, br", "x"])
def test_a_compressed_response_is_refused_at_once_and_not_decompressed(
    server, name, is_streamed, encoding
):
    server.encoding = encoding
    model = backend(name, base_url=server.url + BACKENDS[name], api_key="k")
    tracemalloc.start()
    run = functools.partial(anyio.run, streamed, model)
    result = run() if is_streamed else Loop.run_sync("Hi", model)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "127.0.0.1 compressed its response (content-encoding: " in str(result.reason)
    assert server.asked == ["identity"]  # and no second time
    assert peak < 40_000_000


@pytest.mark.parametrize("name", ["openai:x", "gemini:x", "ollama:x"])
def test_a_response_without_an_end_is_not_read_to_the_end(server, name):
    server.encoding = None
    model = backend(name, base_url=server.url + BACKENDS[name], api_key="k")
    result = Loop.run_sync("Hi", model)
    assert f"has more than {MAX_BODY:,} bytes" in str(result.reason)
    assert server.sent < 2 * MAX_BODY


def test_an_error_that_is_compressed_is_refused_too(server):
    server.status = 500
    model = backend("openai:x", base_url=f"{server.url}/v1", api_key="k")
    result = Loop.run_sync("Hi", model)
    assert "compressed its response" in str(result.reason)
    assert server.asked == ["identity"]


def test_the_response_of_an_embedder_is_bounded_as_well(server):
    made = embedder("openai:x", base_url=f"{server.url}/v1", api_key="k")
    with pytest.raises(Exception, match="compressed its response"):
        anyio.run(made, ["a"])


@pytest.mark.parametrize("encoding", ["gzip", None])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_the_response_of_an_mcp_server_is_bounded_as_well(server, encoding, kind):
    server.encoding, server.kind = encoding, kind
    with pytest.raises(MCPConnectionError) as raised:
        MCPServer(f"{server.url}/mcp").__enter__()
    assert set(server.asked) == {"identity"}
    if encoding is not None:
        assert "compressed its response" in str(raised.value)
