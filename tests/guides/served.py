"""A web service on a real port, as tests need it, and models whose pieces the test puts."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections import deque

import httpx
import uvicorn

DEADLINE = 60  # seconds in which anything happens, on a busy machine


class Said:
    """A model that streams what the test says, when the test says it; `END` ends a response."""

    END = object()

    def __init__(self, *responses):
        self._pieces = deque()
        self._waiting = None
        self.requests = []
        for response in responses:
            self.say(*response)
            if not isinstance(response[-1], Exception):
                self.say(self.END)

    def say(self, *pieces):
        """Say something, from any thread."""
        self._pieces.extend(pieces)
        if (waiting := self._waiting) is not None:
            loop, said = waiting
            loop.call_soon_threadsafe(said.set)

    async def __call__(self, messages):
        self.requests.append(messages)
        return self._stream()

    async def _stream(self):
        while True:
            said = asyncio.Event()
            self._waiting = (asyncio.get_running_loop(), said)
            if not self._pieces:
                await said.wait()
            piece = self._pieces.popleft()
            if piece is self.END:
                return
            if isinstance(piece, Exception):
                raise piece
            yield piece


class Served:
    """An ASGI application on a port of this machine, and an HTTP client of it."""

    def __init__(self, app):
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self.http = httpx.Client(base_url=self.url, timeout=DEADLINE, trust_env=False)

    def __enter__(self):
        self._thread.start()
        wait_until(lambda: self._server.started)
        return self

    def __exit__(self, *_):
        self.http.close()
        self._server.should_exit = True
        self._thread.join(DEADLINE)
        self._socket.close()
        assert not self._thread.is_alive()

    def cut(self):
        """Break all connections off, as a proxy or a network does."""
        for connection in [*self._server.server_state.connections]:
            loop = connection.loop
            loop.call_soon_threadsafe(connection.transport.abort)

    def ask(self, text="Go.", **more):
        """Start a run; return its address."""
        answer = self.http.post("/runs", json={"text": text, **more})
        assert answer.status_code == 202, answer.text
        return f"/runs/{answer.json()['id']}"

    def status(self, run):
        return self.http.get(run).json()["status"]

    @contextlib.contextmanager
    def events(self, run, after=None):
        """The events of a run from a number, as pairs of the number and the data, while they arrive."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        with self.http.stream("GET", f"{run}/events", headers=headers) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield parsed(answer.iter_lines())

    def all_events(self, run, after=None):
        with self.events(run, after) as events:
            return [*events]


def parsed(lines):
    """Server-sent events as pairs of the id and the data, by the rules of the HTML standard."""
    fields = {}
    for line in lines:
        if not line:
            if "data" in fields:
                yield int(fields.get("id", 0)), json.loads(fields["data"])
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def wait_until(is_so):
    end = time.monotonic() + DEADLINE
    while not is_so():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
