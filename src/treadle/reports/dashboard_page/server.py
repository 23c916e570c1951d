"""The server of the dashboard page. It accepts requests from this machine only."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from treadle.reports.dashboard_page.data import page_data
from treadle.reports.dashboard_page.page import make_page
from treadle.reports.sources.source import Source, SourceError

log = logging.getLogger("treadle.reports")

HOST = "127.0.0.1"
_OWN_NAME = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?", re.IGNORECASE)
"""The host names of the server in a browser on this machine. Other names, such as that of a web site whose DNS
record points to this machine, are rejected."""
_OWN_SITES = frozenset({"none", "same-origin"})
"""Values of ``Sec-Fetch-Site`` of the user and of the page itself. Other pages could make it query Prometheus."""
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NOTHING = "default-src 'none'; frame-ancestors 'none'"
"""The policy of responses that are not a page."""


class PageServer(ThreadingHTTPServer):
    """Serves the page. ``serve_forever`` and ``server_close`` are those of the standard library.

    Args:
        source: the source of the metrics.
        port: the port to listen on; 0 for any free port.
        range_key: the time range that is shown initially.
        agent: the agent that is shown initially; None for all agents.

    Raises:
        OSError: the port is in use or not permitted.
    """

    def __init__(
        self, source: Source, *, port: int = 0, range_key: str = "1h", agent: str | None = None
    ) -> None:
        self.source = source
        self.page = make_page(source, range_key, agent)
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        """The URL of the page."""
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless the browser closed the connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers two paths. Request targets are never used as file names."""

    server: PageServer  # pyright: ignore[reportIncompatibleVariableOverride] - made by it alone
    server_version = "treadle"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """Answer a request for this machine."""
        hosts = self.headers.get_all("Host", [])
        try:
            parts = urllib.parse.urlsplit(self.path)
        except ValueError:
            parts = None
        if len(hosts) != 1 or not _OWN_NAME.fullmatch(hosts[0].strip()):
            problem = "this server only answers requests to 127.0.0.1 and localhost\n"
            self._send(HTTPStatus.FORBIDDEN, problem)
        elif self._is_of_another_site():
            problem = (
                "this server does not answer requests of other sites; open its address yourself\n"
            )
            self._send(HTTPStatus.FORBIDDEN, problem)
        elif parts is None:
            self._send(HTTPStatus.BAD_REQUEST, "the request target is invalid\n")
        elif parts.path == "/":
            page = self.server.page
            self._send(HTTPStatus.OK, page.html, "text/html", page.policy)
        elif parts.path == "/data.json":
            self._send_data(urllib.parse.parse_qs(parts.query, keep_blank_values=True))
        else:
            self._send(HTTPStatus.NOT_FOUND, "not found; the page is at /\n")

    def _is_of_another_site(self) -> bool:
        """Whether a page of another site made the request; browsers that send no ``Sec-Fetch-Site`` may say so."""
        origins = self.headers.get_all("Origin", [])
        own = f"http://{self.headers['Host'].strip().lower()}"
        sites = self.headers.get_all("Sec-Fetch-Site", [])
        return not _OWN_SITES.issuperset(sites) or any(one.lower() != own for one in origins)

    def _not_allowed(self) -> None:
        self.close_connection = True  # the request body is not read
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is supported\n", Allow="GET")

    def __getattr__(self, name: str) -> Any:
        """Reject all other HTTP methods."""
        if name.startswith("do_"):
            return self._not_allowed
        raise AttributeError(name)

    def _send_data(self, query: Mapping[str, list[str]]) -> None:
        range_key = query.get("range", ["1h"])[-1]
        agent = query.get("agent", [None])[-1]
        try:
            data = page_data(self.server.source, range_key, agent, time.time())
            status = HTTPStatus.OK
        except ValueError as error:
            status, data = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except SourceError as error:
            status, data = HTTPStatus.BAD_GATEWAY, {"error": str(error)}
        except Exception as error:  # an error of treadle: the page shows it, and asks again
            log.exception("a request for the data of the page failed")
            problem = (
                f"the data cannot be computed: {type(error).__name__}; the log has the details"
            )
            status, data = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": problem}
        self._send(status, json.dumps(data, separators=(",", ":")), "application/json")

    def _send(
        self,
        status: HTTPStatus,
        text: str,
        kind: str = "text/plain",
        policy: str = _NOTHING,
        **headers: str,
    ) -> None:
        body = text.encode()
        self.send_response(status)
        standard = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
        }
        for name, value in {**standard, **_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the standard library
        """Do not log requests."""
