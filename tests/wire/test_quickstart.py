"""docs/quickstart.md with a server: the program that a reader pastes, with the address of the server."""

import sys

import pytest
from tests.guides.pasted import shown_blocks
from tests.programs import run_program

pytestmark = pytest.mark.wire

ADDRESS = "http://127.0.0.1:8080/v1"
USAGE = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}


def called(name, arguments):
    return {"toolCalls": [{"name": name, "arguments": arguments}], "usage": USAGE}


def test_the_program_runs_with_a_server(wire, tmp_path):
    """All of it, as one file, in a process of its own, with the official client."""
    program = "\n\n".join(shown_blocks("quickstart.md"))
    assert "ScriptedLLM" not in program
    assert ADDRESS in program
    lima = called("get_weather", '{"city": "Lima"}')
    answer = {"content": "It is 18 degrees, with light drizzle.", "usage": USAGE}
    weather = called("Weather", '{"city": "Lima", "degrees": 18, "rain": true}')
    umbrella = {"content": "Yes, take one.", "usage": USAGE}
    wire.script(lima, answer, lima, weather, lima, answer, lima, lima, umbrella)
    file = tmp_path / "quickstart.py"
    file.write_text(program.replace(ADDRESS, wire.base_url), encoding="utf-8")

    done = run_program([sys.executable, "-W", "error", file])

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "It is 18 degrees, with light drizzle.",
        "answer: It is 18 degrees, with light drizzle.",
        "18 degrees, rain",
        '[get_weather {"city": "Lima"}]',
        "It is 18 degrees, with light drizzle.",
        "no answer (max_iterations_reached): no answer within max_iterations=2",
        "answer: Yes, take one.",
    ]
    assert all(request["stream"] for request in wire.requests)
