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

    @property
    def scopes_of_spans(self) -> list[Any]:
        return [
            scope
            for request in self.came["/v1/traces"]
            for resource in request.resource_spans
            for scope in resource.scope_spans
        ]

    @property
    def scopes_of_metrics(self) -> list[Any]:
        return [
            scope
            for request in self.came["/v1/metrics"]
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
        ]

    @property
    def scopes_of_logs(self) -> list[Any]:
        return [
            scope
            for request in self.came["/v1/logs"]
            for resource in request.resource_logs
            for scope in resource.scope_logs
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
