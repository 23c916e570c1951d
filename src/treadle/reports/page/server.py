"""Serves the page and its numbers on this machine, to this machine alone."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from treadle.reports.numbers.source import Source, SourceError
from treadle.reports.page.numbers import numbers
from treadle.reports.page.page import make_page
from treadle.reports.page.times import titles

HOST = "127.0.0.1"
_OWN_NAME = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?", re.IGNORECASE)
"""What a browser on this machine calls the server. A site whose name somebody has pointed at this machine has
another name, and gets nothing."""
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NOTHING = "default-src 'none'; frame-ancestors 'none'"
"""The policy of answers that are no page."""


class PageServer(ThreadingHTTPServer):
    """A server of one page. ``serve_forever`` and ``server_close`` are those of the standard library.

    Args:
        source: where the numbers come from.
        port: to listen on; 0 is one that is free.
        range_key: the range of time that is shown first.
        agent: the agent that is shown first; None are all.

    Raises:
        OSError: the port is taken, or not ours to take.
    """

    def __init__(
        self, source: Source, *, port: int = 0, range_key: str = "1h", agent: str | None = None
    ) -> None:
        self.source = source
        start = {
            "title": source.title,
            "ranges": titles(source.span()),
            "range": range_key,
            "agent": agent,
            "numbers": None,
        }
        self.page = make_page(start, is_served=True)
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of it, but for a browser that left in the middle of an answer, or never asked."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Knows two paths; nothing that is asked for ever names a file."""

    server: PageServer  # pyright: ignore[reportIncompatibleVariableOverride] - made by it alone
    server_version = "treadle"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """Answer, if it is meant for us."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not _OWN_NAME.fullmatch(hosts[0].strip()):
            self._say(
                HTTPStatus.FORBIDDEN, "this server answers to 127.0.0.1 and localhost alone\n"
            )
            return
        parts = urllib.parse.urlsplit(self.path)
        if parts.path == "/":
            page = self.server.page
            self._send(HTTPStatus.OK, "text/html", page.html, policy=page.policy)
        elif parts.path == "/numbers.json":
            self._send_numbers(urllib.parse.parse_qs(parts.query, keep_blank_values=True))
        else:
            self._say(HTTPStatus.NOT_FOUND, "there is nothing here; the page is at /\n")

    def _not_allowed(self) -> None:
        self.close_connection = True  # what it sent along is not read
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered\n", Allow="GET")

    def __getattr__(self, name: str) -> Any:
        """Whatever other method is asked for, it is not allowed."""
        if name.startswith("do_"):
            return self._not_allowed
        raise AttributeError(name)

    def _send_numbers(self, query: Mapping[str, list[str]]) -> None:
        range_key = query.get("range", ["1h"])[-1]
        agent = query.get("agent", [None])[-1]
        try:
            status, told = HTTPStatus.OK, numbers(self.server.source, range_key, agent, time.time())
        except ValueError as error:
            status, told = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except SourceError as error:
            status, told = HTTPStatus.BAD_GATEWAY, {"error": str(error)}
        self._send(status, "application/json", json.dumps(told, separators=(",", ":")))

    def _say(self, status: HTTPStatus, text: str, **headers: str) -> None:
        self._send(status, "text/plain", text, **headers)

    def _send(
        self, status: HTTPStatus, kind: str, text: str, *, policy: str = _NOTHING, **headers: str
    ) -> None:
        body = text.encode()
        self.send_response(status)
        told = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": policy,
        }
        for name, value in {**told, **_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the standard library
        """Say nothing; the terminal is for what goes wrong."""
