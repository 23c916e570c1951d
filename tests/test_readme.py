"""The README: its diagram, the order of its parts, and its programs."""

import json
import os
import sys
from pathlib import Path

from tests.programs import run_program

from treadle import Loop
from treadle.testing import call, calls

from .http_server import ScriptedServer

README = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
QUICKSTART = README.split("```python\n", 1)[1].split("```", 1)[0]
WITH_OPENAI = README.split("```python no-run\n", 1)[1].split("```", 1)[0]


def test_the_diagram_is_that_of_the_default_stages():
    assert f"```mermaid\n{Loop().diagram()}```" in README


def test_installing_comes_first_then_the_quickstart_then_the_commands_for_contributors():
    parts = ("pip install treadle", QUICKSTART, "make run", "make test")
    places = [README.index(part) for part in parts]
    assert places == sorted(places)


def test_the_quickstart_prints_the_answer():
    command = [sys.executable, "-c", QUICKSTART]
    done = run_program(command, check=True)
    assert done.stdout == "It is 5.\n"


def test_the_quickstart_is_short():
    assert len([line for line in QUICKSTART.splitlines() if line.strip()]) <= 20


def test_the_quickstart_with_a_real_model_runs_against_an_openai_compatible_server():
    messages = [calls(call("add", a=2, b=3)), {"role": "assistant", "content": "It is 5."}]
    head = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
    choices = [{"index": 0, "finish_reason": "stop", "message": message} for message in messages]
    kind = {"Content-Type": "application/json"}
    answers = [(200, kind, json.dumps({**head, "choices": [choice]})) for choice in choices]
    with ScriptedServer(*answers) as server:
        environment = {**os.environ, "OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "key"}
        command = [sys.executable, "-c", WITH_OPENAI]
        done = run_program(command, env=environment)
    assert (done.stdout, done.stderr) == ("It is 5.\n", "")
    assert [request["model"] for request in server.bodies] == ["gpt-5-mini", "gpt-5-mini"]
    assert server.bodies[1]["messages"][-1]["content"] == "5"
