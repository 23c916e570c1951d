"""Servers of other authors: of the newer handshake (PyPI) and of the older one (npm)."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.http_server import free_port
from tests.npm import installed

from treadle import ToolProgress
from treadle.mcp import MCPServer
from treadle.testing import ScriptedLLM, call, calls

from .conftest import await_port

EVERYTHING = "@modelcontextprotocol/server-everything"
FILESYSTEM = "@modelcontextprotocol/server-filesystem"
VERSION = "2026.8.31"


@pytest.fixture(scope="session")
def everything():
    return installed("mcp-everything", EVERYTHING, VERSION, "dist/index.js")


@pytest.fixture(scope="session")
def filesystem():
    return installed("mcp-filesystem", FILESYSTEM, VERSION, "dist/index.js")


def children_with(word):
    """The ids of the child processes of this one that have a word in their command."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and word in (folder / "cmdline").read_text():
                yield int(folder.name)


class TestTime:
    def test_its_tools_are_listed_and_called(self, way):
        with MCPServer([sys.executable, "-m", "mcp_server_time"]) as server:
            names = {one.name for one in server.tools()}
            good, bad, later = way.results(
                calls(
                    call("get_current_time", "a", timezone="Europe/Oslo"),
                    call("get_current_time", "b", timezone="Mars/Base"),
                ),
                calls(call("get_current_time", "c", timezone="Asia/Tokyo")),
                tools=server.tools(),
            )
        assert names == {"get_current_time", "convert_time"}
        assert '"timezone": "Europe/Oslo"' in good.content
        assert (bad.is_error, "Mars/Base" in bad.content) == (True, True)
        assert not later.is_error


class TestGit:
    def test_it_reads_a_repository(self, sync, tmp_path):
        for command in (["init", "-q"], ["add", "."]):
            (tmp_path / "new.txt").write_text("new\n")
            subprocess.run(["git", *command], cwd=tmp_path, check=True)
        with MCPServer([sys.executable, "-m", "mcp_server_git"], cwd=tmp_path) as server:
            tools = server.tools()
            status, missing = sync.results(
                calls(
                    call("git_status", "a", repo_path=str(tmp_path)),
                    call("git_status", "b", repo_path=str(tmp_path / "none")),
                ),
                tools=tools,
            )
        assert "new.txt" in status.content
        assert missing.is_error


@pytest.mark.npm
class TestFilesystem:
    def test_it_reads_its_folder_and_nothing_else(self, filesystem, sync, tmp_path):
        (tmp_path / "a.txt").write_text("So.")
        with MCPServer([*filesystem, str(tmp_path)], trusted=True) as server:
            tools = {one.name: one for one in server.tools()}
            inside, outside = sync.results(
                calls(
                    call("read_text_file", "a", path=str(tmp_path / "a.txt")),
                    call("read_text_file", "b", path="/etc/hostname"),
                ),
                tools=server.tools(),
            )
        assert inside.content == "So."
        assert outside.is_error
        assert tools["read_text_file"].idempotent
        assert not tools["write_file"].parallel_safe

    def test_a_folder_that_does_not_exist_is_an_error_that_shows_what_it_said(
        self, filesystem, tmp_path
    ):
        with pytest.raises(ConnectionError, match=r"stderr:\n[^$]*none"):
            MCPServer([*filesystem, str(tmp_path / "none")]).__enter__()


@pytest.mark.npm
class TestEverything:
    def test_results_of_all_kinds(self, everything, sync):
        with MCPServer(everything) as server:
            echo, total, image, wrong = sync.results(
                calls(
                    call("echo", "a", message="hello"),
                    call("get-sum", "b", a=1, b=2),
                    call("get-tiny-image", "c"),
                ),
                calls(call("get-resource-reference", "d", resourceType="Text", resourceId=1)),
                tools=server.tools(),
            )
            resources = server.resources_sync()
        assert echo.content == "Echo: hello"
        assert "3" in total.content
        assert "image_url" in {part["type"] for part in image.parts}
        assert "[resource demo://" in wrong.content
        assert resources

    def test_it_is_killed_in_mid_call(self, everything, sync):
        def kill(event):
            if isinstance(event, ToolProgress):
                for child in children_with(everything[-1]):
                    os.kill(child, signal.SIGKILL)

        model = ScriptedLLM(
            calls(call("trigger-long-running-operation", "a", duration=20, steps=200)),
            calls(call("echo", "b", message="again")),
            "Done.",
        )
        with MCPServer(everything) as server:
            messages = sync.run(model, tools=server.tools(), on_event=kill).messages
        assert "was lost while 'trigger-long-running-operation' ran" in messages[2]["content"]
        assert messages[4]["content"] == "Echo: again"

    def test_its_progress_is_an_event(self, everything, way):
        seen = []
        model = ScriptedLLM(
            calls(call("trigger-long-running-operation", "a", duration=0.4, steps=4)), "Done."
        )
        with MCPServer(everything) as server:
            way.run(model, tools=server.tools(), on_event=seen.append)
        shares = [one.progress for one in seen if isinstance(one, ToolProgress)]
        assert shares == [0.25, 0.5, 0.75, 1.0]

    def test_over_http_a_server_that_was_started_again_gets_a_new_session(
        self, everything, sync, started
    ):
        url, process = started(everything)
        with MCPServer(url) as server:
            tools = server.tools()
            (first,) = sync.results(calls(call("echo", "a", message="one")), tools=tools)
            process.kill()
            process.wait()
            started(everything, int(url.rpartition(":")[2].partition("/")[0]))
            lost, again = sync.results(
                calls(call("echo", "b", message="two")),
                calls(call("echo", "c", message="three")),
                tools=tools,
            )
        assert first.content == "Echo: one"
        assert "was lost while 'echo' ran" in lost.content
        assert again.content == "Echo: three"


@pytest.fixture
def started():
    """A function that starts server-everything at a port; it gives the address and the process."""
    processes = []

    def start(command, port=None):
        port = free_port() if port is None else port
        processes.append(
            subprocess.Popen(
                [*command, "streamableHttp"],
                env={**os.environ, "PORT": str(port)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        url = f"http://127.0.0.1:{port}/mcp"
        await_port(url, processes[-1])
        return url, processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
