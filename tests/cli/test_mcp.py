"""`treadle run --mcp`: tools of servers, whose processes live as long as the run."""

import shlex
import sys

import pytest

SERVER = """
from mcp.server import MCPServer

made = MCPServer({name!r})

@made.tool()
def greet(name: str) -> str:
    \"\"\"Greet.\"\"\"
    return {text!r} + name

made.run()
"""


@pytest.fixture
def server(root):
    """A function that writes a server, and returns the command that starts it."""

    def write(name, text):
        path = root / f"{name}.py"
        path.write_text(SERVER.format(name=name, text=text))
        return shlex.join([sys.executable, str(path)])

    return write


def offered(request):
    return [made["function"]["name"] for made in request["tools"]]


def test_the_tools_of_a_server_replace_the_default_ones(endpoint, spawned, calls, server):
    endpoint.script = [calls(("greet", {"name": "Ada"})), "Done."]

    done = spawned("Greet Ada.", "--mcp", server("english", "Hello, "))

    assert (done.returncode, done.stdout) == (0, "Done.\n")
    first, second = endpoint.bodies
    assert offered(first) == ["greet"]
    assert second["messages"][-1]["content"] == "Hello, Ada"


def test_several_servers_and_other_tools_are_combined(endpoint, spawned, calls, server, root):
    (root / "more_tools.py").write_text("def shout(text: str) -> str:\n    return text.upper()\n")
    endpoint.script = [calls(("french_greet", {"name": "Ada"})), "Done."]
    servers = ["--mcp", server("english", "Hello, "), "--mcp", server("french", "Salut, ")]

    done = spawned("Greet Ada.", *servers, "--tools", "more_tools:shout")

    assert done.returncode == 0
    first, second = endpoint.bodies
    assert offered(first) == ["shout", "english_greet", "french_greet"]
    assert second["messages"][-1]["content"] == "Salut, Ada"


def test_a_server_that_does_not_start_is_bad_usage_in_one_line(endpoint, spawned):
    code = "import sys; sys.exit('no config')"

    done = spawned("Hi", "--mcp", shlex.join([sys.executable, "-c", code]))

    assert (done.returncode, done.stdout, endpoint.bodies) == (2, "", [])
    (line,) = done.stderr.splitlines()
    assert "cannot connect to" in line
    assert "no config" in line
