"""Servers with faults: a bad response, line or tool ends neither the other ones nor the time of a run."""

import gc
import json
import sys
import time
from pathlib import Path

import pytest
from mcp import types
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from treadle.mcp import MCPConnectionError, MCPServer
from treadle.testing import call, calls

SERVER = Path(__file__).parent / "faulty_server.py"
SECONDS = 20
"""The time limit of a call; a fault that is noticed takes a fraction of it."""


@pytest.fixture
def faulty(tmp_path):
    """A function that makes a client for a server with a fault; and the notes of the server."""

    def make(fault, tools=None, **options):
        command = [sys.executable, str(SERVER), str(tmp_path / "notes"), fault]
        if tools is not None:
            command.append(json.dumps(tools))
        return MCPServer(command, name="faulty", **{"timeout": SECONDS, **options})

    make.notes = lambda: (tmp_path / "notes").read_text().splitlines()
    return make


def called(sync, server, **arguments):
    """The results of a call with a fault, and of one without; and the seconds that they took."""
    start = time.monotonic()
    results = sync.results(
        calls(call("act", "a", **arguments)),
        calls(call("act", "b", well=True)),
        tools=server.tools(),
    )
    return [one.content for one in results], time.monotonic() - start


class TestResponses:
    @pytest.mark.parametrize("code", [-32000, -32001, -32099, -32603, -32042 - 1])
    @pytest.mark.parametrize("text", ["Connection closed", "Session terminated", "quota exceeded"])
    def test_an_error_of_a_server_in_this_process_is_an_error_of_that_call_only(
        self, sync, code, text
    ):
        seen = []

        async def list_tools(_ctx, _params):
            return types.ListToolsResult(
                tools=[types.Tool(name="act", input_schema={"type": "object"})]
            )

        async def call_tool(_ctx, _params):
            seen.append(code)
            raise MCPError(code, text)

        made = Server("s", on_list_tools=list_tools, on_call_tool=call_tool)
        with MCPServer(made, trusted=True, idempotent=True) as server:
            (result,) = sync.results(calls(call("act", "a")), tools=server.tools())
        assert result.content == f"Error: MCP server 's': {text}"
        assert len(seen) == 1

    def test_the_first_code_of_server_errors_is_no_lost_server(self, faulty, sync):
        with faulty("server error", trusted=True) as server:
            (failed, done), _ = called(sync, server)
        assert failed == "Error: MCP server 'faulty': Connection closed"
        assert done == "done"
        assert faulty.notes() == ["started", "called act", "called act"]

    @pytest.mark.parametrize(
        ("fault", "text"),
        [
            ("result null", "malformed response: JSONRPCResponse.result"),
            ("result a list", "malformed response"),
            ("code a text", "malformed response"),
            ("no version", "malformed response"),
            ("nothing", "malformed response"),
            ("content null", "a result that cannot be read"),
            ("block unknown", "a result that cannot be read"),
            ("structured a text", "a result that cannot be read"),
        ],
    )
    def test_a_malformed_response_is_an_error_of_its_call_at_once(self, faulty, sync, fault, text):
        with faulty(fault, trusted=True) as server:
            (failed, done), seconds = called(sync, server)
        assert text in failed
        assert failed.startswith("Error: ")
        assert done == "done"
        assert faulty.notes() == ["started", "called act", "called act"]
        assert seconds < SECONDS / 2

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            ("byte in place of a response", " (it wrote bytes that are not UTF-8)"),
            ("byte before a response", " (it wrote bytes that are not UTF-8)"),
            ("half a response", " (it wrote a message that cannot be read)"),
            ("id unknown", " that was not sent)"),
            ("id null", " (it wrote a message that cannot be read)"),
            ("id a fraction", " (it wrote a message that cannot be read)"),
            ("closes stdout", ""),
        ],
    )
    def test_a_server_that_will_not_respond_is_lost_at_once_and_the_next_call_works(
        self, faulty, sync, fault, reason
    ):
        with faulty(fault) as server:
            (failed, done), seconds = called(sync, server)
        assert "was lost while 'act' ran" in failed
        assert f"{reason}; whether the call had an effect is not known" in failed
        assert done == "done"
        assert faulty.notes() == ["started", "called act", "started", "called act"]
        assert seconds < SECONDS / 2

    @pytest.mark.parametrize(
        "fault",
        [
            "byte order mark",
            "lines of a log",
            "twice",
            "id a text",
            "id a float",
            "batch",
            "long number",
            "deep",
            "in pieces",
            "malformed notifications",
        ],
    )
    def test_what_does_no_harm_is_skipped(self, faulty, sync, fault):
        with faulty(fault) as server:
            texts, seconds = called(sync, server)
        assert texts == ["done", "done"]
        assert faulty.notes() == ["started", "called act", "called act"]
        assert seconds < SECONDS / 2

    @pytest.mark.parametrize(
        ("fault", "text"), [("byte within a response", "d\ufffd"), ("surrogate", "d?ne")]
    )
    def test_a_character_that_is_none_is_replaced(self, faulty, sync, fault, text):
        with faulty(fault) as server:
            texts, _ = called(sync, server)
        assert texts == [text, "done"]
        assert faulty.notes() == ["started", "called act", "called act"]

    def test_a_long_line_is_read(self, faulty, sync):
        with faulty("long line") as server:
            texts, seconds = called(sync, server)
        assert texts[1] == "done"
        assert seconds < SECONDS / 2

    def test_arguments_that_cannot_be_encoded_do_not_end_the_connection(self, faulty, sync):
        with faulty("none") as server:
            texts, _ = called(sync, server, text="\ud800")
        assert texts == ["done", "done"]
        assert faulty.notes() == ["started", "called act", "called act"]


def described(name, schema=None, **more):
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **more}


def with_field(**field):
    return {"type": "object", "properties": {"a": field}}


class TestLists:
    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (described("bad", {"type": "string"}), "type: Input should be 'object'"),
            (described("bad", {}), "type: Field required"),
            (described("bad", with_field(type=5)), "input_schema"),
            (described("bad", {"type": "object", "$ref": "#/nowhere"}), "#/nowhere"),
            (described("bad", with_field(pattern="(")), "'(' is not a 'regex'"),
            (described("bad", with_field(pattern="(?<!b)(a|a|a)*!")), "exponential"),
            (described("bad", {"type": "object", "patternProperties": {"(?<!b)(a|ab)*!": {}}}), "exponential"),
            (described("bad", {"type": "object", "required": 5}), "5"),
            (described("bad", []), "dict"),
            ({"name": "bad"}, "inputSchema"),
            (described("bad", annotations={"readOnlyHint": [1]}), "annotations"),
            (described("bad", description=5), "description"),
            (described(""), "1 to 128 characters"),
            (described("bad" * 100), "1 to 128 characters"),
            (described(None), "name"),
            ("bad", "Tool"),
            (described("good", description="Another."), "another tool has this name"),
        ],
    )  # fmt: skip
    def test_a_tool_that_cannot_be_used_is_left_out_with_one_warning(
        self, faulty, sync, caplog, bad, reason
    ):
        with faulty("none", [described("good"), bad, described("fine")]) as server:
            tools = server.tools()
            again = server.tools()
            results = sync.results(calls(call("good", "a"), call("fine", "b")), tools=tools)
        assert [one.name for one in tools] == [one.name for one in again] == ["good", "fine"]
        assert [one.content for one in results] == ["done", "done"]
        (warning,) = [one.getMessage() for one in caplog.records if one.name == "treadle.mcp"]
        assert "faulty" in warning
        assert "is left out" in warning
        assert reason in warning
        name = bad["name"] if isinstance(bad, dict) else bad
        assert repr(name)[:20].rstrip("'") in warning

    @pytest.mark.parametrize("turn", [1, -1])
    def test_names_that_are_alike_once_they_are_valid_get_distinct_ones(self, faulty, sync, turn):
        names = ["a b", "a/b", "a_b", "c"][::turn]
        with faulty("none", [described(name) for name in names]) as server:
            tools = {one.fn.definition.name: one for one in server.tools()}
            sync.results(
                *(calls(call(tools[name].name, name)) for name in names), tools=tools.values()
            )
        made = {name: one.name for name, one in tools.items()}
        assert made == {"a b": "a_b_c8687a08", "a/b": "a_b_c14cddc0", "a_b": "a_b", "c": "c"}
        assert faulty.notes() == ["started", *(f"called {name}" for name in names)]

    def test_pages_without_an_end_are_read_once(self, faulty, caplog):
        start = time.monotonic()
        with faulty("endless pages") as server:
            assert [one.name for one in server.tools()] == ["act"]
        assert time.monotonic() - start < SECONDS

    def test_an_output_schema_of_a_server_is_not_searched_for_in_its_results(self, faulty, sync):
        output = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
        with faulty("none", [described("act", outputSchema=output)]) as server:
            texts, _ = called(sync, server)
        assert texts == ["done", "done"]

    def test_malformed_resources_are_an_error_of_this_package(self, faulty):
        with faulty("malformed resources") as server:
            with pytest.raises(MCPConnectionError, match=r"(?s)MCP server 'faulty': .*resources"):
                server.resources_sync()
            assert server.tools()

    def test_a_server_that_writes_no_utf8_cannot_be_connected_to(self):
        code = "import sys, time; sys.stdout.buffer.write(b'\\xff\\n'); sys.stdout.flush(); time.sleep(60)"
        start = time.monotonic()
        with pytest.raises(MCPConnectionError, match="it wrote bytes that are not UTF-8"):
            MCPServer([sys.executable, "-c", code]).__enter__()
        assert time.monotonic() - start < 15


class TestListening:
    """The task that listens for changes while a server is down."""

    def test_no_exception_of_it_is_left_unretrieved(self, over_http, sync, caplog):
        url, process = over_http()
        with MCPServer(url, connect_timeout=5) as server:
            tools = server.tools()
            process.kill()
            process.wait()
            for name in ("a", "b"):
                (failed,) = sync.results(calls(call("echo", name, text="x")), tools=tools)
                assert failed.is_error
            time.sleep(1.5)  # the delay after which it listens again
            over_http(port=int(url.split(":")[2].split("/")[0]))
            (echoed,) = sync.results(calls(call("echo", "c", text="x")), tools=tools)
        gc.collect()
        assert echoed.content == "x"
        assert "never retrieved" not in caplog.text

    def test_a_listener_that_fails_in_an_unknown_way_ends_quietly(self, caplog):
        async def list_tools(_ctx, _params):
            return types.ListToolsResult(tools=[])

        async def fail(_ctx, _params):
            raise RuntimeError("no listening")

        made = Server("s", on_list_tools=list_tools, on_subscriptions_listen=fail)
        with MCPServer(made) as server:
            time.sleep(0.3)
            assert server.tools() == []
        gc.collect()
        assert "never retrieved" not in caplog.text
