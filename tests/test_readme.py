"""The README: its diagram, the order of its parts, and its programs."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from treadle import Loop
from treadle.testing import call, calls

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
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "It is 5.\n"


def test_the_quickstart_is_short():
    assert len([line for line in QUICKSTART.splitlines() if line.strip()]) <= 20


def test_the_quickstart_with_a_real_model_runs_against_an_openai_compatible_server():
    messages = [calls(call("add", a=2, b=3)), {"role": "assistant", "content": "It is 5."}]
    requests = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            message = messages[len(requests) - 1]
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            kind = "chat.completion"
            answer = {"id": "c", "object": kind, "created": 0, "model": "m", "choices": [choice]}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        environment = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "key"}
        command = [sys.executable, "-c", WITH_OPENAI]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env=environment
        )
        server.shutdown()
    assert (done.stdout, done.stderr) == ("It is 5.\n", "")
    assert [request["model"] for request in requests] == ["gpt-5-mini", "gpt-5-mini"]
    assert requests[1]["messages"][-1]["content"] == "5"
