"""A relay in front of a server: passes bytes on unchanged, and keeps the bodies of requests as they were sent.

The journal of the wire server has each request in the form of OpenAI's chat. The relay shows what the SDK of
a provider really sent. Whatever happens to a connection, such as a stream that is cut, happens at both ends.
"""

import contextlib
import json
import socket
import threading
from urllib.parse import urlsplit


class Relay:
    """Listens on a free port of this machine, and relays each connection to a server.

    Args:
        url: the server, such as ``http://127.0.0.1:8080``.
    """

    def __init__(self, url):
        target = urlsplit(url)
        self._target = target.hostname, target.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sent = []
        self.open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                sent = bytearray()
                self._sent.append(sent)
                self.open.add(client)
                threading.Thread(
                    target=self._pump, args=(client, server, sent), daemon=True
                ).start()
                threading.Thread(
                    target=self._pump, args=(server, client, None), daemon=True
                ).start()

    def _pump(self, source, target, kept):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if kept is not None:
                    kept += data
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.open -= {source, target}

    @property
    def requests(self):
        """The path and the JSON body of each request with a body, in order of the connections."""
        return [request for sent in self._sent for request in _requests(bytes(sent))]

    def clear(self):
        """Forget the requests so far."""
        for sent in self._sent:
            sent.clear()

    def close(self):
        """Accept no more connections."""
        self._listener.close()


def _requests(data):
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        length = int(headers.get("content-length", 0))
        if length:
            yield first.split(" ")[1], json.loads(rest[:length])
        data = rest[length:]
