"""Calls of tools of a server, under every driver: results, progress, time limits and cancellation."""

import functools
import sys
import threading
import time

import anyio
import pytest

from treadle import (
    Loop,
    OptionError,
    RunHandle,
    ToolFinished,
    ToolProgress,
    ToolRetried,
    ToolStarted,
)
from treadle.mcp import MCPConnectionError, MCPServer
from treadle.testing import ScriptedLLM, call, calls

from .conftest import Served, is_running

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


class TestResults:
    def test_the_tools_of_a_server_are_called_from_any_driver(self, served, way):
        with served.connect() as server:
            batch = calls(call("echo", "a", text="one"), call("echo", "b", text="two"))
            one, two = way.results(batch, tools=server.tools())
        assert [(made.content, made.is_error) for made in (one, two)] == [
            ("one", False),
            ("two", False),
        ]
        assert served.notes == ["started", "called echo", "called echo"]

    def test_an_error_of_the_server_is_an_error_result(self, served, sync):
        with served.connect() as server:
            (failed,) = sync.results(calls(call("fail", "a")), tools=server.tools())
        assert (failed.content, failed.is_error) == ("Error: no luck", True)

    def test_arguments_are_checked_before_they_are_sent(self, served, sync):
        model = ScriptedLLM(calls(call("echo", "a", text=5)), "Done.")
        with served.connect() as server:
            messages = sync.run(model, tools=server.tools()).messages
        assert "text" in messages[2]["content"]
        assert served.notes == ["started"]

    def test_images_and_links_are_content_parts(self, served, sync):
        model = ScriptedLLM(calls(call("picture", "a")), "Done.")
        with served.connect() as server:
            messages = sync.run(model, tools=server.tools()).messages
        link = {"type": "text", "text": "[resource a: file:///a.txt]"}
        assert messages[2]["content"] == [IMAGE, link]

    def test_a_tool_is_called_like_a_function(self, served):
        with served.connect() as server:
            echo = next(one for one in server.tools() if one.name == "echo")

            async def main():
                return await echo(text="So.")

            made = anyio.run(main, backend="trio")
        assert made == [{"type": "text", "text": "So."}]

    async def _read(self, server):
        async with server:
            (found,) = await server.resources()
            return found["uri"], await server.read_resource(found["uri"])

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_resources_are_listed_and_read(self, new_served, backend):
        text = [{"type": "text", "text": "[resource note:a]\nSo."}]
        assert anyio.run(self._read, new_served.connect(), backend=backend) == ("note:a", text)
        with new_served.connect() as server:
            assert server.resources_sync()[0]["name"] == "a"
            assert server.read_resource_sync("note:a") == text

    def test_a_request_that_the_server_refuses_raises(self, tmp_path):
        with (
            Served("old", tmp_path / "notes").connect() as server,
            pytest.raises(MCPConnectionError, match="'old': method not found"),
        ):
            server.resources_sync()


class TestProgress:
    def test_the_progress_of_the_server_is_an_event(self, served, way):
        seen = []
        model = ScriptedLLM(calls(call("steps", "a")), "Done.")
        with served.connect() as server:
            way.run(model, tools=server.tools(), on_event=seen.append)
        reported = [one for one in seen if isinstance(one, ToolProgress)]
        assert [(one.message, one.progress) for one in reported] == [
            ("step 1", 0.25),
            ("step 2", 0.5),
            ("step 3", 0.75),
        ]
        assert reported[0].data == {"progress": 1, "total": 4}


class TestEnds:
    """What ends a call early reaches the server."""

    def test_a_time_limit_cancels_the_call_at_the_server(self, served, way):
        with served.connect(timeout=0.3) as server:
            (result,) = way.results(calls(call("hang", "a")), tools=server.tools())
            served.wait_for("cancelled hang")
        assert (result.status, result.content) == (
            "timeout",
            "Error: 'hang' took longer than 0.3 s.",
        )

    def test_a_cancelled_run_cancels_the_call_at_the_server(self, served, way):
        handle = None if way.name == "stream" else RunHandle()

        def cancel(event):
            if isinstance(event, ToolStarted):
                threading.Thread(target=self._cancel_later, args=(served, handle)).start()

        model = ScriptedLLM(calls(call("hang", "a")), "Done.")
        with served.connect() as server:
            if handle is None:
                anyio.run(self._cancel_stream, server, model, served)
            else:
                result = way.run(model, tools=server.tools(), handle=handle, on_event=cancel)
                assert result.stop_reason == "cancelled"
            served.wait_for("cancelled hang")

    def _cancel_later(self, served, handle):
        served.wait_for("called hang")
        handle.cancel()

    async def _cancel_stream(self, server, model, served):
        async with Loop.stream("Hi", model, tools=server.tools()) as stream:
            async for event in stream:
                if isinstance(event, ToolStarted):
                    await anyio.to_thread.run_sync(served.wait_for, "called hang")
                    stream.cancel()
        assert stream.result.stop_reason == "cancelled"

    def test_a_cancellation_reaches_the_server_before_it_is_disconnected(self, served):
        async def main():
            async with served.connect() as server:
                with anyio.move_on_after(5) as scope:
                    async with anyio.create_task_group() as group:
                        model = ScriptedLLM(calls(call("hang", "a")), "Done.")
                        group.start_soon(
                            functools.partial(Loop.run, "Hi", model, tools=server.tools())
                        )
                        await anyio.to_thread.run_sync(served.wait_for, "called hang")
                        scope.cancel()

        anyio.run(main)
        assert served.notes[-1] == "cancelled hang"

    def test_the_other_calls_go_on(self, served, sync):
        with served.connect(timeout=0.3) as server:
            hung, echoed = sync.results(
                calls(call("hang", "a"), call("echo", "b", text="x")), tools=server.tools()
            )
        assert (hung.is_error, echoed.content) == (True, "x")


class TestLost:
    """A server that ends in mid-call."""

    def test_the_call_fails_the_run_goes_on_and_the_next_call_connects_again(self, served, way):
        with served.connect() as server:
            died, echoed = way.results(
                calls(call("die", "a")),
                calls(call("echo", "b", text="back")),
                tools=server.tools(),
            )
        assert died.is_error
        assert (
            "was lost while 'die' ran; whether the call had an effect is not known" in died.content
        )
        assert (echoed.content, echoed.is_error) == ("back", False)
        assert served.notes == ["started", "called die", "started", "called echo"]

    def test_calls_that_run_at_the_same_time_connect_again_once(self, served, sync):
        with served.connect() as server:
            results = sync.results(
                calls(call("die", "a")),
                calls(*(call("echo", f"b{n}", text=str(n)) for n in range(5))),
                tools=server.tools(),
            )
        assert [one.content for one in results[1:]] == ["0", "1", "2", "3", "4"]
        assert served.notes.count("started") == 2

    def test_a_server_that_was_killed_between_two_calls_is_started_again_first(self, served, sync):
        with served.connect() as server:
            tools = server.tools()
            served.kill()
            time.sleep(0.2)  # so that the end of its output has arrived
            (echoed,) = sync.results(calls(call("echo", "b", text="x")), tools=tools)
        assert (echoed.content, echoed.is_error) == ("x", False)

    def test_a_server_that_is_killed_while_a_call_runs_is_lost(self, served, sync):
        def kill(event):
            if isinstance(event, ToolStarted) and event.call.name == "hang":
                threading.Thread(target=self._kill_later, args=[served]).start()

        with served.connect() as server:
            model = ScriptedLLM(
                calls(call("hang", "a")), calls(call("echo", "b", text="x")), "Done."
            )
            messages = sync.run(model, tools=server.tools(), on_event=kill).messages
        assert "was lost while 'hang' ran" in messages[2]["content"]
        assert messages[4]["content"] == "x"

    def _kill_later(self, served):
        served.wait_for("called hang")
        served.kill()

    def test_what_stderr_said_is_in_the_log_and_not_for_the_model(self, served, sync, caplog):
        with served.connect() as server:
            (died,) = sync.results(calls(call("die", "a")), tools=server.tools())
        assert "ready" not in died.content
        assert f"{served.kind} server: ready, api_key=[redacted]" in caplog.text
        assert "abc123def" not in caplog.text

    def test_only_the_call_of_an_idempotent_tool_of_a_trusted_server_is_repeated(
        self, served, sync
    ):
        batch = calls(call("die_once", "a"))
        with served.connect() as server:
            (died,) = sync.results(batch, tools=server.tools())
        assert died.is_error
        assert served.notes.count("called die_once") == 1
        served.path.unlink()
        seen = []
        with served.connect(trusted=True) as server:
            sync.run(ScriptedLLM(batch, "Done."), tools=server.tools(), on_event=seen.append)
        assert served.notes.count("called die_once") == 2
        assert [one.attempt for one in seen if isinstance(one, ToolRetried)] == [1]
        (result,) = (one.result for one in seen if isinstance(one, ToolFinished))
        assert result.content == "done die_once"

    def test_the_option_idempotent_repeats_calls_too(self, served, sync):
        with served.connect(idempotent=True) as server:
            (result,) = sync.results(calls(call("die_once", "a")), tools=server.tools())
        assert result.content == "done die_once"

    def test_a_server_that_cannot_start_again_is_an_error_after_a_few_tries(
        self, served, sync, tmp_path
    ):
        script = tmp_path / "server.py"
        script.write_text(
            f"import runpy, sys; runpy.run_path({served.command[1]!r}, run_name='__main__')"
        )
        command = [served.command[0], str(script), served.command[2]]
        with MCPServer(command) as server:
            script.write_text("open(__import__('sys').argv[1], 'a').write('failed\\n'); 1 / 0")
            _, echoed = sync.results(
                calls(call("die", "a")), calls(call("echo", "b", text="x")), tools=server.tools()
            )
        assert echoed.is_error
        assert f"cannot connect to {command[0]} {script}" in echoed.content
        assert served.notes == ["started", "called die", "failed", "failed", "failed"]

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_a_call_that_waits_for_a_new_connection_fails_when_the_block_ends(
        self, backend, tmp_path
    ):
        script = tmp_path / "server.py"
        served = Served("old", tmp_path / "notes")
        script.write_text(
            f"import runpy; runpy.run_path({served.command[1]!r}, run_name='__main__')"
        )
        raised = []

        def use(echo):
            with pytest.raises(MCPConnectionError, match="was disconnected") as error:
                anyio.run(lambda: echo(text="x"), backend=backend)
            raised.append(error.value)

        with MCPServer([served.command[0], str(script), served.command[2]]) as server:
            tools = {one.name: one for one in server.tools()}
            script.write_text("open(__import__('sys').argv[1], 'a').write('no answer\\n'); input()")
            with pytest.raises(MCPConnectionError, match="was lost"):
                anyio.run(tools["die"])
            thread = threading.Thread(target=use, args=[tools["echo"]])
            thread.start()
            served.wait_for("no answer")
        thread.join(20)
        assert len(raised) == 1

    def test_a_call_after_the_end_of_its_block_connects_to_nothing(self, served):
        with served.connect() as server:
            link = server._client
        with pytest.raises(MCPConnectionError, match="was disconnected"):
            link.client_thread.call_sync(link.connected)
        assert served.notes == ["started"]


class TestConnecting:
    def test_a_command_that_fails_is_an_error_with_the_last_lines_of_stderr(self, sync):
        code = "import sys; print('no config: token=abc123def', file=sys.stderr); sys.exit(3)"
        with pytest.raises(MCPConnectionError) as raised:
            MCPServer(["python3", "-c", code, "--api-key", "hush"]).__enter__()
        text = str(raised.value)
        assert text.startswith("cannot connect to python3 -c ")
        assert "stderr:\nno config: token=[redacted]" in text
        assert "hush" not in text

    def test_the_rest_of_a_long_line_of_stderr_is_dropped(self):
        """It has no name by which a credential could be recognized."""
        code = "import sys; sys.exit('x' * 480 + ' token=abc123' * 9 + '\\nbye')"
        with pytest.raises(MCPConnectionError) as raised:
            MCPServer([sys.executable, "-c", code]).__enter__()
        assert raised.value.stderr == "x" * 480 + " token=[redacted] token=\nbye"

    def test_a_command_that_does_not_exist_is_an_error_that_names_it(self):
        with pytest.raises(MCPConnectionError, match="cannot connect to no-such-command --fast: "):
            MCPServer("no-such-command --fast").__enter__()

    def test_a_server_that_does_not_answer_is_an_error_after_the_time_limit(self):
        with pytest.raises(MCPConnectionError, match=r"sleep 60: no answer within 0\.3 s"):
            MCPServer("sleep 60", connect_timeout=0.3).__enter__()

    def test_a_server_that_does_not_list_its_tools_is_an_error_after_the_time_limit(self, tmp_path):
        served = Served("old", tmp_path / "notes")
        with pytest.raises(MCPConnectionError, match=r"cannot list the tools of .*: TimeoutError"):
            served.connect(env={"SILENT": "1"}, connect_timeout=1).__enter__()
        assert not is_running(served.pid)

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_the_async_block_raises_likewise(self, backend):
        async def main():
            async with MCPServer("no-such-command"):
                pass

        with pytest.raises(MCPConnectionError, match="no-such-command"):
            anyio.run(main, backend=backend)

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_in_an_async_block_the_loop_runs_on(self, served, backend):
        async def main():
            async with served.connect() as server:
                model = ScriptedLLM(calls(call("echo", "a", text="x")), "Done.")
                return await Loop.run("Hi", model, tools=server.tools())

        assert anyio.run(main, backend=backend).messages[2]["content"] == "x"

    def test_the_process_has_ended_after_the_block(self, served):
        with served.connect():
            pid = served.pid
            assert is_running(pid)
        assert not is_running(pid)

    def test_outside_of_the_block_there_are_no_tools(self, served):
        server = served.connect()
        with pytest.raises(MCPConnectionError, match="is not connected; use it in a `with` block"):
            server.tools()
        with server:
            tools = server.tools()
        with pytest.raises(MCPConnectionError, match="is not connected"):
            anyio.run(lambda: tools[0](text="x"))

    def test_a_server_is_entered_once_at_a_time_and_again_later(self, served):
        server = served.connect()
        for _ in range(2):
            with server:
                assert server.tools()
                with pytest.raises(OptionError, match="is connected already"):
                    server.__enter__()

    @pytest.mark.parametrize(
        ("given", "options", "text"),
        [
            ("", {}, "expected a command or a URL, got an empty one"),
            (5, {}, "expected a command, a URL or a server object of the MCP SDK, got int"),
            ("a 'b", {}, "the command cannot be split"),
            ("http://x/mcp", {"env": {}}, "env applies to a command only, not to http://x/mcp"),
            ("x", {"headers": {}}, "headers applies to a URL only, not to x"),
            ("x", {"tiemout": 5}, "unknown option 'tiemout'; did you mean 'timeout'?"),
            ("x", {"include": "echo"}, "include: expected a list of names, got a text"),
            ("x", {"approved": {"echo": 5}}, "approved: expected the digests"),
        ],
    )
    def test_wrong_options_are_errors(self, given, options, text):
        with pytest.raises(OptionError) as raised:
            MCPServer(given, **options)
        assert text in str(raised.value)

    def test_reprs_and_errors_show_no_secrets(self):
        made = MCPServer("https://me:hush@127.0.0.1:9/mcp?key=hush", headers={"X-Key": "hush"})
        assert repr(made) == "MCPServer('https://[redacted]@127.0.0.1:9/mcp', name='127.0.0.1')"
        with pytest.raises(MCPConnectionError) as raised:
            made.__enter__()
        assert "hush" not in str(raised.value)
        made = MCPServer("serve", env={"KEY": "hush"})
        assert "hush" not in repr(made)

    @pytest.mark.parametrize(
        ("given", "shown"),
        [
            ("x --token=hush -v", "x '--token=[redacted]' -v"),
            ("x --token -hush -v", "x --token '[redacted]' -v"),
            ("x --env=API_KEY=hush", "x '--env=API_KEY=[redacted]'"),
            ("x -e API_KEY=hush", "x -e 'API_KEY=[redacted]'"),
            ("x --githubToken hush", "x --githubToken '[redacted]'"),
            ("x --passwd hush", "x --passwd '[redacted]'"),
            ("x --header 'X-Api-Key: hush'", "x --header 'X-Api-Key: [redacted]'"),
            ("x --token --keys=1,2 y", "x --token '--keys=[redacted]' y"),
            ("x key --port 5", "x key --port 5"),
        ],
    )
    def test_a_command_is_shown_without_the_values_of_secrets(self, given, shown):
        assert repr(MCPServer(given)) == f"MCPServer({shown!r}, name='x')"

    def test_without_the_sdk_the_error_names_the_extra(self, run_python):
        run_python(
            """
            import sys
            sys.modules["mcp"] = None
            from treadle import MissingExtraError
            from treadle.mcp import MCPServer, as_mcp_server
            for make in (MCPServer, as_mcp_server):
                try:
                    make("x")
                except MissingExtraError as error:
                    print(error)
            """,
            "the MCP SDK is not installed; install it with: pip install 'treadle[mcp]'\n" * 2,
        )
