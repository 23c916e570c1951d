"""Servers on this machine; one answers by a script, and records what it is asked."""

import contextlib
import http.server
import json
import socket
import threading
from typing import NamedTuple


def free_port() -> int:
    """A port of this machine at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Handler(http.server.BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    def respond(self, status, body, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Log nothing."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # some clients ask for several answers at the same time

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):
        """A client that has gone is not an error of the server."""


@contextlib.contextmanager
def running(server):
    """Serve in a thread until the end of the block, and close the server then."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def served_by(handler, **attributes):
    """A server with a handler and attributes for it, until the end of the block."""
    server = Server(handler)
    vars(server).update(attributes)
    with running(server):
        yield server


class Request(NamedTuple):
    """A request; the names of its headers are in small letters, and its body is read as JSON."""

    path: str
    headers: dict[str, str]
    body: object


class ScriptedServer:
    """Sends scripted answers in their order, and the last one again and again.

    Args:
        *answers: a status, headers and a body each: a text, or pieces of one, which are sent one after another.

    Attributes:
        answers: those that are left.
        requests: those that came.
        pause: the seconds before each answer.
        url: where it is.
    """

    def __init__(self, *answers):
        self.answers, self.requests, self.pause = [*answers], [], 0.0
        self._closed = threading.Event()
        outer = self

        class Scripted(Handler):
            def do_POST(self):
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = json.loads(text) if text else None
                outer.requests.append(Request(self.path, headers, body))
                outer._closed.wait(outer.pause)
                status, headers, text = outer.next_answer()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for place, piece in enumerate([text] if isinstance(text, (str, bytes)) else text):
                    outer._closed.wait(0.05 if place else 0)
                    self.wfile.write(piece.encode() if isinstance(piece, str) else piece)

            do_GET = do_POST

        self._server = Server(Scripted)
        self.url = self._server.url
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def next_answer(self):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def bodies(self):
        return [request.body for request in self.requests]

    @property
    def paths(self):
        return [request.path for request in self.requests]

    @property
    def headers(self):
        return [request.headers for request in self.requests]

    def close(self):
        self._closed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
