"""The client of a server, from the start of a ``with`` block to its end: it outlives connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from treadle.forks import renew_after_fork
from treadle.mcp.client_thread import ClientThread
from treadle.mcp.connection import Connection
from treadle.mcp.definitions import Definition
from treadle.mcp.errors import MCPConnectionError
from treadle.mcp.log import warn
from treadle.mcp.targets import Target

R = TypeVar("R")

REFETCH_DELAY = 0.05
"""Seconds after which a changed list is fetched: changes often come in groups."""
RECONNECTS = 3
"""How often a call tries to connect again to a server that was lost."""
RECONNECT_DELAY = 0.2
"""Seconds before the second try; each further delay is twice as long."""


class ReconnectingClient:
    """Connects to a server, lists its tools, and connects again if the server was lost.

    Args:
        target: the server.
        seconds: how long connecting may take.

    Attributes:
        definitions: the tools by name, as the server listed them last.
        server_name: the name that the server says; None if it says none.
    """

    def __init__(self, target: Target, seconds: float) -> None:
        self._target = target
        self._seconds = seconds
        self._connection: Connection | None = None
        self._opening: Connection | None = None
        """The latest connection, also if it is not open yet: it has a process, too."""
        self._thread: ClientThread | None = None
        self._mutex = asyncio.Lock()
        self._is_stale = False
        self._is_disconnected = False
        self._refetching: asyncio.Task[None] | None = None
        self.definitions: Mapping[str, Definition] = {}
        self.server_name: str | None = None
        renew_after_fork(self, ReconnectingClient._renew)

    def _renew(self) -> None:
        """Forget the connection in a forked child: it is that of the parent. The next call connects again."""
        self._thread = self._connection = self._opening = None
        self._mutex = asyncio.Lock()

    @property
    def client_thread(self) -> ClientThread:
        """The event loop of the connection."""
        if self._thread is None:
            self._thread = ClientThread()
        return self._thread

    async def _connect(self) -> Connection:
        """Connect, and list the tools."""
        if self._connection is not None:
            await self._connection.close()
        made = self._opening = Connection(self._target, self._note_change, self._seconds)
        await made.open()
        self._connection = made
        self.server_name = made.server_name
        await self._list(made)
        return made

    async def connected(self) -> Connection:
        """The connection, with the latest list of tools; if there is none, or the server was lost, a new one.

        This and all other coroutine functions run on the client thread.

        Raises:
            MCPConnectionError: it cannot be connected to, or was disconnected.
        """
        async with self._mutex:
            if self._is_disconnected:
                raise MCPConnectionError(f"{self._target} was disconnected")
            connection = self._connection
            if connection is None:
                return await self._connect()
            if not connection.is_alive:
                return await self._reconnect()
            if self._is_stale:
                await self._list(connection)
            return connection

    async def settle(self) -> None:
        """Wait until a list that the server reported as changed is fetched; a failure is logged."""
        if self._is_stale:
            await self.call(self._refetch)

    async def _reconnect(self) -> Connection:
        warn("%s was lost; connecting again", self._target)
        delay = RECONNECT_DELAY
        for _ in range(RECONNECTS - 1):
            try:
                return await self._connect()
            except MCPConnectionError:
                await asyncio.sleep(delay)
                delay *= 2
        return await self._connect()

    async def _list(self, connection: Connection) -> None:
        self._is_stale = False
        try:
            self.definitions = await connection.definitions()
        except BaseException:
            self._is_stale = True
            raise

    def _note_change(self) -> None:
        """Note that the list of tools changed, and fetch it soon; a call in the meantime fetches it first."""
        if not self._is_stale:
            self._is_stale = True
            self._refetching = asyncio.create_task(self._refetch(REFETCH_DELAY))

    async def _refetch(self, delay: float = 0) -> None:
        await asyncio.sleep(delay)
        try:
            await self.connected()
        except Exception as error:  # noqa: BLE001 - nothing awaits this task, and the next call tries again
            warn("the tools of %s cannot be listed: %s", self._target, error)

    async def call(self, fn: Callable[..., Coroutine[Any, Any, R]], *args: Any) -> R:
        """Await a coroutine function here, from a task of any event loop; cancelling the task cancels it."""
        return await self.client_thread.call(fn, *args)

    async def disconnect(self) -> None:
        """Close the connection for good."""
        self._is_disconnected = True
        connection, self._connection = self._connection, None
        if self._refetching is not None:
            self._refetching.cancel()
        for one in (connection, self._opening):
            if one is not None:
                await one.close()

    def end(self) -> None:
        """End the client thread; later calls are refused."""
        self.client_thread.close()
