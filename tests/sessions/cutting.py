"""A relay to Redis that breaks connections."""

import contextlib
import selectors
import socket
import threading


class Lost:
    """A step of a plan: a script is not passed on.

    Args:
        then: what happens before the connection is closed.
    """

    def __init__(self, then=lambda: None):
        self.then = then


class Cut(Lost):
    """A step of a plan: a script is passed on, and its answer is not."""


class CuttingRelay:
    """Passes everything on, except for scripts, as planned.

    Args:
        port: the port of Redis.

    Attributes:
        plan: what happens to the next scripts; then the connection is closed.
        is_closed: close each new connection at once.
    """

    def __init__(self, port):
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._clients = []
        self.plan = []
        self.is_closed = False

    @property
    def url(self):
        return f"redis://127.0.0.1:{self._server.getsockname()[1]}/0"

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._threads[0].join()
        for client in self._clients:
            with contextlib.suppress(OSError):  # it has ended
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self):
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._relay, args=(client,))
            self._threads.append(thread)
            self._clients.append(client)
            thread.start()

    def _relay(self, client):
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            if self.is_closed:
                return
            selector = selectors.DefaultSelector()
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            with selector:
                while True:
                    for key, _ in selector.select():
                        data = key.fileobj.recv(1 << 20)
                        if not data:
                            return
                        if key.fileobj is client and b"EVALSHA" in data and self.plan:
                            self._break(self.plan.pop(0), server, data)
                            return
                        key.data.sendall(data)

    def _break(self, step, server, data):
        if isinstance(step, Cut):
            server.sendall(data)
            assert server.recv(1 << 20).startswith(b":"), "the script has failed"
        step.then()
