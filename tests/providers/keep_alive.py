"""A server of OpenAI's protocol that keeps connections open, and knows which ones are."""

import json
import threading
import time

from tests.completion import COMPLETION
from tests.http_server import Handler, Server

CHUNK = {
    **COMPLETION,
    "object": "chat.completion.chunk",
    "choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}],
}


class KeepAliveServer:
    """Answers chat completions, whole and streamed, and embeddings: each text has its length as its vector.

    Attributes:
        url: the base URL.
        requests: the body of each request, with the number of its connection.
    """

    def __init__(self):
        self.requests = []
        self._connections = []
        self._open = set()
        outer = self

        class KeepAlive(Handler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                outer._connections.append(self)
                outer._open.add(self)
                self.number = len(outer._connections)

            def finish(self):
                super().finish()
                outer._open.discard(self)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.number, body))
                kind, text = outer.answer(self.path, body)
                self.respond(200, text.encode(), {"Content-Type": kind})

        self._server = Server(KeepAlive)
        self.url = f"{self._server.url}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path, body):
        """The content type and the text of a response."""
        if path.endswith("/embeddings"):
            data = [
                {"object": "embedding", "index": index, "embedding": [float(len(text))]}
                for index, text in enumerate(body["input"])
            ]
            made = {"object": "list", "model": "m", "data": data[::-1]}
            return "application/json", json.dumps(made)
        if body.get("stream"):
            return "text/event-stream", f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n"
        return "application/json", json.dumps(COMPLETION)

    @property
    def connections(self):
        """The number of the connection of each request."""
        return [number for number, _ in self.requests]

    @property
    def are_closed(self):
        """Whether the clients close all connections within some seconds."""
        end = time.monotonic() + 5
        while self._open and time.monotonic() < end:
            time.sleep(0.01)
        return not self._open

    def close(self):
        self._server.shutdown()
        self._server.server_close()
