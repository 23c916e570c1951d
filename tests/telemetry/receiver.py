"""A receiver of OTLP over HTTP that stores the requests."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.came[self.path].append(FORMS[self.path].FromString(body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            serving.join()
