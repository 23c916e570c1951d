"""One connection to a server, from its handshake to its end. All of it runs on its `ClientThread`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from treadle.mcp.definitions import Definition, definition_of
from treadle.mcp.errors import MCPConnectionError
from treadle.mcp.log import LEFT_OUT, log, warn
from treadle.mcp.targets import Stderr, Target
from treadle.messages import safe_str
from treadle.redaction import redacted
from treadle.version import __version__

if TYPE_CHECKING:
    from mcp import Client

LISTEN_DELAY = 1.0
"""Seconds before listening for changes again, if the stream of them was lost."""
MAX_PAGES = 1_000
"""The pages of a list that are read: a server may return a next page for ever."""


class Connection:
    """A live client of the SDK, in the task that entered it, as the SDK requires.

    Args:
        target: the server.
        on_change: is called when the server reports that its list of tools changed.
        seconds: how long connecting may take, and then listing the tools.

    Attributes:
        client: the client.
        reason: why the connection ended; empty if that is not known, or the server has closed it.
    """

    def __init__(self, target: Target, on_change: Callable[[], object], seconds: float) -> None:
        self._target = target
        self._seconds = seconds
        self._on_change = on_change
        self._stderr = Stderr()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._refused: dict[str, str] = {}
        self.reason = ""
        self._is_open = False
        self.client: Client = target.client(
            self._stderr,
            self._end,
            self._refused.__setitem__,
            message_handler=self._handle,
            client_info=_client_info(),
            cache=None,
        )

    @property
    def is_alive(self) -> bool:
        """Whether the server has not ended the connection, as far as is known."""
        return self._task is not None and not self._task.done() and not self._closing.is_set()

    @property
    def server_name(self) -> str | None:
        """The name that the server says; None if it says none."""
        info = self.client.server_info
        return None if info is None else info.name

    def stderr(self) -> str:
        """The last lines that the process wrote to stderr; empty if there is none."""
        return self._stderr.text()

    def _end(self, reason: str) -> None:
        """Note that the connection has ended; only the transport says so, whatever code an error has."""
        self.reason = self.reason or reason
        self._closing.set()

    async def open(self) -> None:
        """Connect.

        Raises:
            MCPConnectionError: it failed; the text has the last lines that the process wrote to stderr.
        """
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(opened))
        try:
            await asyncio.wait(
                [opened, self._task], timeout=self._seconds, return_when="FIRST_COMPLETED"
            )
            if opened.done() and opened.exception() is None:
                self._is_open = True
                return
        except BaseException:
            await self._abandon()
            raise
        error = opened.exception() if opened.done() else None  # before it is cancelled
        await self._abandon()
        silence = f"no answer within {self._seconds:g} s"
        why = self.reason or (silence if error is None else _reason(error))
        raise MCPConnectionError(
            f"cannot connect to {self._target}: {why}", self._stderr.text(has_ended=True)
        ) from error

    async def _abandon(self) -> None:
        if self._task is not None:
            if (
                not self._task.cancelling()
            ):  # a second time, it would interrupt the end of the process
                self._task.cancel()
            await asyncio.wait([self._task])

    async def _hold(self, opened: asyncio.Future[None]) -> None:
        """Hold the client until the connection is closed, by either side."""
        try:
            async with self.client:
                opened.set_result(None)
                listening = asyncio.create_task(self._listen())
                try:
                    await self._closing.wait()
                finally:  # also if the client has failed
                    self._closing.set()
                    listening.cancel()
        except BaseException as error:  # noqa: BLE001 - the server is lost: calls see it
            if not opened.done():
                opened.set_exception(error)
                opened.exception()  # retrieved, if nothing waits for it any more
        finally:
            self._closing.set()

    async def _listen(self) -> None:
        """Listen for changes in the way of the newer protocol; a server of the older one notifies unasked."""
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost  # noqa: PLC0415 - an extra
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - as above

        tools = self.client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        while True:
            try:
                async with self.client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._on_change()
            except (ListenNotSupportedError, MCPError, TimeoutError):
                return
            except SubscriptionLost:  # what changed in the meantime is not reported later
                await asyncio.sleep(LISTEN_DELAY)
                self._on_change()
            except Exception as error:  # noqa: BLE001 - the client has ended, or failed: nothing awaits this task
                log.debug("listening to %s ended: %s", self._target, _reason(error))
                return
            else:  # the server has ended it on purpose
                return

    async def _handle(self, message: Any) -> None:
        from mcp import types  # noqa: PLC0415 - an extra

        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()

    async def definitions(self) -> Mapping[str, Definition]:
        """List the tools of the server, by name.

        Raises:
            MCPConnectionError: the server did not list them.
        """
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra

        if self.client.server_capabilities.tools is None:
            return {}
        try:
            async with asyncio.timeout(self._seconds):
                given = await self.pages("tools", self.client.list_tools)
        except (
            MCPError,
            ValueError,
            TimeoutError,
        ) as error:  # ValueError: pydantic's, of a malformed list
            text = f"cannot list the tools of {self._target}: {_reason(error)}"
            raise MCPConnectionError(text, self.stderr()) from error
        for name, reason in self._refused.items():
            warn(LEFT_OUT, str(self._target), name, reason)
        self._refused.clear()
        found: dict[str, Definition] = {}
        for one in given:
            if one.name in found:
                warn(LEFT_OUT, str(self._target), repr(one.name), "another tool has this name")
            else:
                found[one.name] = definition_of(one)
        return found

    async def pages(self, name: str, fetch: Callable[..., Any]) -> list[Any]:
        """List something, page by page.

        Args:
            name: the field of a page that has its items.
            fetch: the client's method.
        """
        items: list[Any] = []
        cursor: str | None = None
        seen = set[str]()
        for _ in range(MAX_PAGES):
            page = await fetch(cursor=cursor)
            items += getattr(page, name)
            cursor = page.next_cursor
            if cursor is None or cursor in seen:
                break
            seen.add(cursor)
        return items

    async def close(self) -> None:
        """Close the connection; a process is ended."""
        self._closing.set()
        if not self._is_open:
            await self._abandon()
        elif self._task is not None:
            await asyncio.wait([self._task])


def _reason(error: BaseException) -> str:
    """The text of an exception, of the first one in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return redacted(safe_str(error)) or type(error).__name__  # pyright: ignore[reportUnknownArgumentType]


@functools.cache
def _client_info() -> Any:
    from mcp import types  # noqa: PLC0415 - an extra

    return types.Implementation(name="treadle", version=__version__)
