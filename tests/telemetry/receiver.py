"""A receiver of OTLP over HTTP that stores the requests."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.http_server import Handler, served_by

FORMS = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


class Receiver:
    """The received requests by path.

    Args:
        address: where it listens.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.came: dict[str, list[Any]] = {path: [] for path in FORMS}

    def scopes_of(self, kind: str) -> list[Any]:
        """The scopes of the ``traces``, the ``metrics`` or the ``logs``."""
        field = "spans" if kind == "traces" else kind
        return [
            scope
            for request in self.came[f"/v1/{kind}"]
            for resource in getattr(request, f"resource_{field}")
            for scope in getattr(resource, f"scope_{field}")
        ]


@contextmanager
def receiving() -> Any:
    """Listen on a free port of 127.0.0.1 until the end of the block."""

    class Receiving(Handler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.came[self.path].append(FORMS[self.path].FromString(body))
            self.respond(200, b"", {"Content-Type": "application/x-protobuf"})

    with served_by(Receiving) as server:
        receiver = Receiver(server.url)
        yield receiver
