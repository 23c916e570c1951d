"""Servers over streamable HTTP and in this process; several loops and threads; forks."""

import socket
import threading

import anyio
import pytest
from mcp.server import MCPServer as HighServer

from treadle import Loop
from treadle.mcp import MCPConnectionError, MCPServer
from treadle.testing import ScriptedLLM, call, calls

from .conftest import wait_until
from .new_server import make


class TestHTTP:
    def test_a_server_is_reached_by_its_url(self, over_http, way, tmp_path):
        url, _ = over_http()
        with MCPServer(url, timeout=0.5) as server:
            echoed, steps, hung = way.results(
                calls(call("echo", "a", text="x"), call("steps", "b"), call("hang", "c")),
                tools=server.tools(),
            )
            wait_until(lambda: "cancelled hang" in (tmp_path / "notes").read_text())
        assert (echoed.content, steps.content) == ("x", "done steps")
        assert hung.status == "timeout"

    def test_a_lost_server_is_connected_to_again(self, over_http, sync):
        url, process = over_http()
        with MCPServer(url) as server:
            tools = server.tools()
            (died,) = sync.results(calls(call("die", "a")), tools=tools)
            assert "was lost while 'die' ran" in died.content
            process.wait()
            (refused,) = sync.results(calls(call("echo", "a", text="x")), tools=tools)
            assert f"cannot connect to {url}" in refused.content
            over_http(port=int(url.split(":")[2].split("/")[0]))
            (echoed,) = sync.results(calls(call("echo", "a", text="x")), tools=tools)
        assert (echoed.content, echoed.is_error) == ("x", False)

    def test_headers_are_sent(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            seen = []

            def note():
                with listener.accept()[0] as accepted:
                    seen.append(accepted.recv(10_000))

            thread = threading.Thread(target=note)
            thread.start()
            with pytest.raises(MCPConnectionError, match=f"cannot connect to {url}"):
                MCPServer(url, headers={"X-Key": "hush"}).__enter__()
            thread.join()
        assert b"x-key: hush" in seen[0].lower()


class TestInProcess:
    def test_a_low_level_server_of_the_sdk(self, way, tmp_path):
        with MCPServer(make(tmp_path / "notes"), timeout=0.3) as server:
            assert server.name == "new"
            echoed, steps, hung = way.results(
                calls(call("echo", "a", text="x"), call("steps", "b"), call("hang", "c")),
                tools=server.tools(),
            )
            wait_until(lambda: "cancelled hang" in (tmp_path / "notes").read_text())
        assert (echoed.content, steps.content) == ("x", "done steps")
        assert hung.status == "timeout"

    def test_a_high_level_server_of_the_sdk(self, sync):
        made = HighServer("sums")

        @made.tool()
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        with MCPServer(made) as server:
            (result,) = sync.results(calls(call("add", "a", a=1, b=2)), tools=server.tools())
        assert result.content == "3"


class TestSharing:
    def test_one_server_serves_runs_in_several_threads_and_event_loops(self, served):
        answers = {}

        def in_thread(n, backend, tools):
            model = ScriptedLLM(
                *(calls(call("echo", f"c{n}{i}", text=f"{n} {i}")) for i in range(5)), "Done."
            )
            if backend is None:
                result = Loop.run_sync("Hi", model, tools=tools)
            else:

                async def main():
                    return await Loop.run("Hi", model, tools=tools)

                result = anyio.run(main, backend=backend)
            answers[n] = [one["content"] for one in result.messages if one["role"] == "tool"]

        with served.connect() as server:
            tools = server.tools()
            threads = [
                threading.Thread(target=in_thread, args=(n, backend, tools))
                for n, backend in enumerate([None, "asyncio", "trio", None, "asyncio", "trio"])
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert answers == {n: [f"{n} {i}" for i in range(5)] for n in range(6)}
        assert served.notes.count("started") == 1

    def test_a_forked_child_connects_by_itself(self, served, run_python):
        """In a separate process: a fork of this one, which has threads, would be a deprecated one."""
        run_python(
            f"""
            import os, sys, warnings
            from treadle import Loop
            from treadle.mcp import MCPConnectionError, MCPServer
            from treadle.testing import ScriptedLLM, call, calls

            warnings.simplefilter("ignore", DeprecationWarning)

            def asked(tools):
                model = ScriptedLLM(calls(call("echo", "a", text="x")), "Done.")
                return Loop.run_sync("Hi", model, tools=tools).messages[2]["content"]

            with MCPServer({served.command!r}) as server:
                tools = server.tools()
                child = os.fork()
                if child == 0:
                    print("child", asked(tools), flush=True)
                    os._exit(0)
                os.waitpid(child, 0)
                print("parent", asked(tools))
            """,
            "child x\nparent x\n",
        )
        assert served.notes.count("started") == 2

    def test_a_program_that_never_disconnects_exits(self, served, run_python):
        run_python(
            f"""
            from treadle.mcp import MCPConnectionError, MCPServer
            print(len(MCPServer({served.command!r}).__enter__().tools()))
            """,
            "10\n",
        )
