"""Phoenix and runs that report to it, in a separate network namespace.

    inside.py PYTHON FOLDER

``PYTHON`` is an interpreter that has Phoenix, ``FOLDER`` an empty folder for its data. The spans that
were sent, and those that Phoenix returns at the end, are written to ``FOLDER/report.json``. The caller has to
end the namespace together with this process, so that Phoenix ends too.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from runs import RUNS

from treadle import Telemetry

GUIDE = Path(__file__).parents[2] / "docs" / "guide-phoenix.md"
SECONDS_TO_START = 240.0
SECONDS_TO_ARRIVE = 30.0
ADDRESS = "http://127.0.0.1:6006"  # every port of the namespace is free
SETTINGS = {
    "PHOENIX_HOST": "127.0.0.1",
    "PHOENIX_PORT": "6006",
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
}


def raise_loopback() -> None:
    """Bring ``lo`` up, which is down in a new namespace."""
    set_flags, is_up = 0x8914, 0x1  # SIOCSIFFLAGS, IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH22x", b"lo", is_up))


def start_phoenix(python: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start Phoenix and wait until it answers.

    Raises:
        SystemExit: it ended, or did not answer in time.
    """
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        **SETTINGS,
        "HOME": str(folder),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_SQL_DATABASE_URL": f"sqlite:///{folder}/phoenix.db",
    }
    with (folder / "phoenix.log").open("wb") as log:
        phoenix = subprocess.Popen(
            [python, "-m", "phoenix.server.main", "serve"],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    until = time.monotonic() + SECONDS_TO_START
    while phoenix.poll() is None and time.monotonic() < until:
        try:
            ask("/v1/projects")
        except (OSError, urllib.error.URLError):
            time.sleep(0.25)
        else:
            return phoenix
    sys.exit(f"Phoenix did not start: {(folder / 'phoenix.log').read_text()[-3000:]}")


def ask(path: str, body: Any = None, **query: Any) -> Any:
    """The ``data`` of Phoenix's response.

    Args:
        path: of its API.
        body: what to post; None asks for what is there.
        **query: of the address.
    """
    url = f"{ADDRESS}{path}?{urllib.parse.urlencode(query)}"
    posted = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, posted, {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310
        return json.load(answer)["data"]


def priced(*names: str) -> dict[str, float]:
    """The cost of each project in US dollars, once Phoenix has a price for those named.

    It works that out a little after it has stored the spans.
    """
    query = {"query": "{projects{edges{node{name costSummary{total{cost}}}}}}"}
    costs: dict[str, float] = {}
    until = time.monotonic() + SECONDS_TO_ARRIVE
    while not all(costs.get(name) for name in names) and time.monotonic() < until:
        nodes = [edge["node"] for edge in ask("/graphql", query)["projects"]["edges"]]
        costs = {node["name"]: node["costSummary"]["total"]["cost"] or 0.0 for node in nodes}
        time.sleep(0.1)
    return costs


def run(name: str) -> list[dict[str, Any]]:
    """Run the function of a project; return the spans that were sent."""
    resource = Resource({"openinference.project.name": name, "service.name": "treadle"})
    tracers = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    kept = InMemorySpanExporter()
    tracers.add_span_processor(SimpleSpanProcessor(kept))
    exporter = OTLPSpanExporter(f"{ADDRESS}/v1/traces", timeout=30)
    tracers.add_span_processor(BatchSpanProcessor(exporter))
    RUNS[name](tracers.get_tracer("application"), {"telemetry": Telemetry(tracer_provider=tracers)})
    tracers.shutdown()  # what is left goes out
    return [sent(span) for span in kept.get_finished_spans()]


def sent(span: Any) -> dict[str, Any]:
    """The compared fields of a span."""
    return {
        "name": span.name,
        "trace_id": f"{span.context.trace_id:032x}",
        "span_id": f"{span.context.span_id:016x}",
        "parent_id": f"{span.parent.span_id:016x}" if span.parent else None,
        "links": [f"{link.context.span_id:016x}" for link in span.links],
    }


def wait_for(name: str, count: int) -> list[Any]:
    """The spans of a project, once there are that many; Phoenix stores them with a delay."""
    spans: list[Any] = []
    until = time.monotonic() + SECONDS_TO_ARRIVE
    while len(spans) < count and time.monotonic() < until:
        try:
            spans = ask(f"/v1/projects/{name}/spans", limit=1000)
        except urllib.error.HTTPError as error:
            if error.code != 404:  # the first span makes the project
                raise
        time.sleep(0.1)
    return spans


def known(name: str, count: int) -> dict[str, Any]:
    """The data of a project, once Phoenix has all its spans."""
    return {
        "spans": wait_for(name, count),
        "traces": ask(f"/v1/projects/{name}/traces", limit=100),
        "sessions": ask(f"/v1/projects/{name}/sessions", limit=100),
    }


def run_page(page: Path) -> None:
    """Run all Python of a page as one module, including the blocks that need Phoenix."""
    blocks = re.findall(r"^```python.*?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    module: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), module)  # noqa: S102 - the repository's own page


def main(python: str, folder: Path) -> None:
    """Start Phoenix, run everything, query and stop it."""
    raise_loopback()
    began = time.monotonic()
    phoenix = start_phoenix(python, folder)
    report: dict[str, Any] = {"seconds_to_start": time.monotonic() - began, "projects": {}}
    try:
        sent_to = {name: run(name) for name in RUNS}
        run_page(GUIDE)
        for name, spans in sent_to.items():
            report["projects"][name] = {"sent": spans, **known(name, len(spans))}
        report["guide"] = {"sent": [], **known("sums", 9)}
        costs = priced("with-content", "without-content", "streamed")
        for name, project in report["projects"].items():
            project["cost"] = costs[name]
    finally:
        phoenix.kill()
        phoenix.wait()
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
