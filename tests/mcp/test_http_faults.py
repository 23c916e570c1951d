"""Servers with faults over HTTP: which responses mean that the server, or its session, was lost."""

import json
import logging
from types import MappingProxyType

import pytest
from tests.http_server import Handler, served_by

from treadle.mcp import MCPServer
from treadle.testing import call, calls

FACTS = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "web", "version": "1"},
}
LISTED = [
    {"name": "act", "inputSchema": {"type": "object"}},
    {"name": "bad", "inputSchema": {"type": "object", "required": 5}},
]


class Faulty(Handler):
    """A server of the older protocol, with a session; the first call is responded to with a fault."""

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, number = message["method"], message.get("id")
        self.server.methods.append(method)
        if method == "initialize":
            self.respond(200, {"id": number, "result": FACTS}, {"mcp-session-id": "s1"})
        elif method == "tools/list":
            self.respond(200, {"id": number, "result": {"tools": LISTED}})
        elif method == "tools/call" and self.server.methods.count(method) == 1:
            self.fault(number)
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": "done"}]}
            self.respond(200, {"id": number, "result": result})
        elif number is not None:
            self.respond(200, {"id": number, "error": {"code": -32601, "message": "unknown"}})
        else:
            self.respond(202, None)

    def fault(self, number):
        status, body = self.server.fault
        if isinstance(body, dict):
            self.respond(status, {"id": number, **body})
        elif body == "cut":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", "1000")
            self.end_headers()
            self.wfile.write(b": ping\n\n")
        elif body == "ended":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b": ping\n\n")
        else:
            self.respond(status, body)

    def respond(self, status, body, headers=MappingProxyType({})):
        is_json = isinstance(body, dict)
        data = json.dumps({"jsonrpc": "2.0", **body}).encode() if is_json else body or b""
        kind = "application/json" if is_json else "text/plain"
        super().respond(status, data, {"content-type": kind, **headers})

    def do_GET(self):
        self.respond(405, None)

    do_DELETE = do_GET


@pytest.fixture
def web():
    with served_by(Faulty, methods=[]) as made:
        made.url += "/mcp"
        yield made


def error(code, message="no luck"):
    return {"error": {"code": code, "message": message}}


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ((200, error(-32000)), "MCP server 'web': no luck"),
        (
            (200, error(-32000, "SSE stream ended without a response")),
            "MCP server 'web': SSE stream",
        ),
        ((200, error(-32600, "Session terminated")), "MCP server 'web': Session terminated"),
        ((500, error(-32000)), "MCP server 'web': no luck"),
        ((500, b"oops"), "MCP server 'web': Server returned an error response"),
        ((429, b""), "MCP server 'web': Server returned an error response"),
        ((200, b"text"), "MCP server 'web': Unexpected content type"),
        ((200, {"result": None}), "MCP server 'web': Failed to parse JSON response"),
        ((200, "ended"), "MCP server 'web': SSE stream ended without a response"),
        ((202, None), "MCP server 'web': server answered a request with 202"),
    ],
)
def test_an_error_of_a_call_is_no_lost_server(web, sync, fault, text):
    web.fault = fault
    with MCPServer(web.url, idempotent=True, timeout=20) as server:
        failed, done = sync.results(
            calls(call("act", "a")), calls(call("act", "b")), tools=server.tools()
        )
    assert failed.content.startswith(f"Error: {text}")
    assert done.content == "done"
    assert web.methods.count("tools/call") == 2
    assert web.methods.count("initialize") == 1


@pytest.mark.parametrize(
    "fault",
    [
        (404, error(-32001, "Session not found")),
        (404, b"gone"),
        (400, error(-32000, "Bad Request: No valid session ID provided")),
        (200, "cut"),
    ],
)
def test_a_forgotten_session_and_a_cut_response_are_a_lost_server(web, sync, fault):
    web.fault = fault
    with MCPServer(web.url, timeout=20) as server:
        failed, done = sync.results(
            calls(call("act", "a")), calls(call("act", "b")), tools=server.tools()
        )
    assert "was lost while 'act' ran" in failed.content
    assert done.content == "done"
    assert web.methods.count("tools/call") == 2
    assert web.methods.count("initialize") == 2


def test_one_bad_tool_is_left_out_over_http_too(web, caplog):
    with caplog.at_level(logging.WARNING, "treadle.mcp"), MCPServer(web.url) as server:
        assert [one.name for one in server.tools()] == ["act"]
    assert "the tool 'bad' is left out: " in caplog.text
