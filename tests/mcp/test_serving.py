"""Tools and loops as a server, driven by the official client: in this process, on stdio, over HTTP."""

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest
import uvicorn
from mcp import Client, StdioServerParameters

from treadle import Loop, OptionError, Tool, ToolDefinitionError, tool
from treadle.mcp import MCPServer, as_mcp_server
from treadle.testing import ScriptedLLM, call, calls

from . import served_tools
from .conftest import wait_until
from .served_tools import make

FILE = Path(served_tools.__file__)


@contextlib.contextmanager
def over_http(server):
    """Serve with the SDK's application in a thread; the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning", lifespan="on")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        running.should_exit = True
        thread.join(30)
        listener.close()


@pytest.fixture(params=["in process", "legacy", "stdio", "http"])
def client(request, tmp_path):
    """A function that makes a client of the SDK, connected in one of the ways."""
    notes = str(tmp_path / "notes")
    with contextlib.ExitStack() as stack:
        if request.param == "stdio":
            path = {"PYTHONPATH": os.pathsep.join(sys.path)}  # the SDK passes on few variables
            made = StdioServerParameters(command=sys.executable, args=[str(FILE), notes], env=path)
        elif request.param == "http":
            made = stack.enter_context(over_http(make(notes)))
        else:
            made = make(notes)
        mode = "legacy" if request.param == "legacy" else "auto"
        yield functools.partial(Client, made, mode=mode)


@pytest.fixture
def asked(client):
    """A function that calls some tools, one after another, and returns the results."""

    def ask(*wanted, **options):
        async def main():
            async with client() as connected:
                return [await connected.call_tool(*one, **options) for one in wanted]

        return anyio.run(main)

    return ask


class TestTools:
    def test_they_are_listed_with_schema_and_annotations(self, client):
        async def main():
            async with client() as connected:
                return connected.server_info, (await connected.list_tools()).tools

        info, tools = anyio.run(main)
        assert info.name == "mine"
        by_name = {one.name: one for one in tools}
        assert by_name["add"].description == "Add two numbers."
        assert by_name["add"].input_schema["required"] == ["a", "b"]
        assert by_name["add"].annotations.read_only_hint is True
        assert by_name["adder"].input_schema["required"] == ["task"]

    def test_results_and_failures(self, asked):
        results = asked(
            ("add", {"a": 1, "b": 2}),
            ("add", {"a": "x"}),
            ("no_such", {}),
            ("fail", {}),
            ("refuse", {}),
            ("again", {}),
            ("slow", {}),
            ("wipe", {}),
        )
        texts = [one.content[0].text for one in results]
        assert [one.is_error for one in results] == [False, *(True for _ in texts[1:])]
        assert texts[0] == "3"
        assert "b" in texts[1]
        assert "no_such" in texts[2]
        assert texts[3] == "Error: ValueError: no luck"
        assert texts[4:6] == ["Error: not today", "use another word"]
        assert texts[6] == "Error: 'slow' took longer than 0.2 s."
        assert "needs approval by a person, which cannot be requested over MCP" in texts[7]

    def test_parts_are_content_blocks(self, asked):
        (result,) = asked(("picture", {}))
        text, image = result.content
        assert (text.text, image.data, image.mime_type) == ("Look:", "iVBORw0KGgo=", "image/png")

    def test_progress_reaches_the_client_and_deps_the_tool(self, asked):
        seen = []

        async def note(progress, total, message):
            seen.append((progress, total, message))

        (result,) = asked(("steps", {}), progress_callback=note)
        assert result.content[0].text == "deps steps"
        assert [(total, message) for _, total, message in seen] == [
            (1.0, "one"),
            (None, "two"),
            (1.0, "three"),
        ]
        numbers = [progress for progress, _, _ in seen]
        assert numbers == sorted(set(numbers))

    def test_a_client_that_cancels_cancels_the_tool(self, client, tmp_path):
        path = tmp_path / "notes"

        def wait_for(line):
            wait_until(lambda: path.exists() and line in path.read_text())

        async def main():
            async with client() as connected:
                async with anyio.create_task_group() as group:
                    group.start_soon(connected.call_tool, "hang", {})
                    await anyio.to_thread.run_sync(wait_for, "called hang")
                    group.cancel_scope.cancel()
                await anyio.to_thread.run_sync(wait_for, "cancelled hang")
                return await connected.call_tool("add", {"a": 1, "b": 1})

        assert anyio.run(main).content[0].text == "2"

    def test_locks_hold_between_requests(self, client, tmp_path):
        async def main():
            async with client() as connected, anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(connected.call_tool, "locked", {})

        anyio.run(main)
        assert (tmp_path / "notes").read_text() == "in\nout\n" * 3


class TestLoops:
    def test_a_loop_is_a_tool_whose_calls_are_runs(self, asked):
        seen = []

        async def note(progress, total, message):
            seen.append(message)

        (result,) = asked(("adder", {"task": "four"}), progress_callback=note)
        assert (result.content[0].text, result.is_error) == ("It is 5.", False)
        assert seen == ["add"]

    def test_a_run_that_fails_or_waits_for_approval_is_an_error(self):
        @tool(requires_approval=True)
        def wipe() -> None:
            """Wipe."""

        def failing():
            raise RuntimeError("down")

        waiting = Loop(tools=[wipe], llm_send_fn=lambda _: calls(call("wipe", "a")))
        broken = Loop(name="broken", llm_send_fn=lambda _: failing(), max_retries=0)
        texts = []
        for loop, name in ((waiting, "ask"), (broken, "broken")):

            async def main(loop=loop, name=name):
                async with Client(as_mcp_server(loop, description="Work.")) as connected:
                    (listed,) = (await connected.list_tools()).tools
                    assert (listed.name, listed.description) == (name, "Work.")
                    return await connected.call_tool(name, {"task": "x"})

            result = anyio.run(main)
            assert result.is_error
            texts.append(result.content[0].text)
        assert "needs approval for a call, which cannot be requested over MCP" in texts[0]
        assert "the agent gave no answer" in texts[1]

    def test_a_loop_as_a_tool_works_as_well_for_more_than_ten_requests_of_its_model(self):
        @tool(volatile=True)
        def poll() -> str:
            """Poll."""
            return "not yet"

        model = ScriptedLLM(*(calls(call("poll", f"c{n}")) for n in range(14)), "Ready.")
        loop = Loop(tools=[poll], llm_send_fn=model, max_iterations=20)

        async def main():
            served = as_mcp_server(loop.as_tool("wait", "Wait."))
            async with Client(served) as connected:
                return await connected.call_tool("wait", {"task": "x"})

        assert anyio.run(main).content[0].text == "Ready."

    def test_our_own_client_uses_it(self, sync, tmp_path):
        with MCPServer(make(tmp_path / "notes"), trusted=True) as server:
            assert server.name == "mine"
            results = sync.results(
                calls(call("add", "a", a=1, b=2), call("picture", "b")), tools=server.tools()
            )
        assert results[0].content == "3"
        assert results[1].parts[1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="


class TestOptions:
    def test_what_cannot_be_served_is_an_error(self):
        with pytest.raises(OptionError, match="there is no model"):
            as_mcp_server(Loop(name="x"))
        with pytest.raises(ToolDefinitionError, match="'x' has no function"):
            as_mcp_server(Tool("x"))
        with pytest.raises(OptionError, match="'x' ends a run"):
            as_mcp_server([Tool("x", terminal=True)])
        with pytest.raises(OptionError, match="description is that of a loop"):
            as_mcp_server([Tool("x", fn=lambda: 1)], description="y")

    def test_a_function_is_served_as_it_is(self):
        def double(n: int) -> int:
            """Double."""
            return 2 * n

        async def main():
            async with Client(as_mcp_server(double, name="one", version="5")) as connected:
                assert connected.server_info.version == "5"
                return await connected.call_tool("double", {"n": 4})

        assert anyio.run(main).content[0].text == "8"


class TestStdout:
    def test_it_has_only_messages_of_the_protocol_whatever_is_printed(self):
        """The buffer of Python is written when it is full, or at the exit."""
        facts = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        }
        call_ = {"name": "shout", "arguments": {"text": "x"}}
        sent = [
            {"id": 1, "method": "initialize", "params": facts},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": call_},
        ]
        lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in sent]
        command = [sys.executable, str(FILE.with_name("noisy_server.py"))]
        path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        path.pop("PYTHONUNBUFFERED", None)
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=path, text=True
        ) as running:
            running.stdin.write("\n".join(lines) + "\n")
            running.stdin.flush()
            received = [running.stdout.readline() for _ in range(2)]
            rest, errors = running.communicate(timeout=60)
        assert [json.loads(line)["id"] for line in received] == [1, 2]
        assert rest == ""
        for text in (
            "before",
            "by a tool x",
            "by a child",
            "by a thread",
            "at the exit",
            "afterwards",
        ):
            assert f"printed {text}" in errors
        assert running.returncode == 0

    def test_a_client_of_a_server_that_prints_is_not_disturbed(self, sync):
        command = [sys.executable, str(FILE.with_name("noisy_server.py"))]
        with MCPServer(command, env={"PYTHONPATH": os.pathsep.join(sys.path)}) as server:
            results = sync.results(
                *(calls(call("shout", str(n), text=str(n) * 9_000)) for n in range(3)),
                tools=server.tools(),
            )
        assert [one.content for one in results] == [str(n) * 9_000 for n in range(3)]
