"""The connection to a provider through its SDK: the endpoint, the key, and a client for each event loop."""

from __future__ import annotations

import contextlib
import importlib
import os
import urllib.parse
from collections.abc import AsyncGenerator, Generator
from types import ModuleType
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from anyio.lowlevel import current_token

from treadle.effects import Call, Mode, Steps, drive_sync
from treadle.errors import MissingExtraError, OptionError, TreadleError, causes_of
from treadle.http_bodies import ResponseBodyError
from treadle.model.retry import has_broken_connection
from treadle.providers.endpoint import PLACEHOLDER, Endpoint, server_of
from treadle.redaction import redacted


class MissingKeyError(TreadleError):
    """A server refused a request without an API key. The message names the server, and how to give a key."""


class RedirectError(TreadleError):
    """A server redirected a request. The message names the place, so that the base URL can be corrected."""


def import_sdk(package: str, extra: str) -> ModuleType:
    """Import the SDK of a provider.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        install = f"pip install 'treadle[{extra}]'"
        raise MissingExtraError(f"the {package} SDK", install) from error


class SDKConnection:
    """A model of a provider behind its SDK; the base of `SDKModel` and `SDKEmbedder`.

    A connection belongs to the event loop that opened it, so each event loop has its own client, which is closed
    when the event loop ends. A forked process opens its own.

    Args:
        name: the model, as the provider names it.
        base_url: another endpoint than the provider's.
        api_key: the key for this endpoint; see `Endpoint.key_for`.

    Raises:
        MissingExtraError: the SDK is not installed.
        OptionError: the name is empty, or there is no key for the provider's own endpoint.
    """

    provider: ClassVar[str]
    """The name of the provider in OpenTelemetry's conventions."""
    endpoint: ClassVar[Endpoint]
    package: ClassVar[str]
    """The package of the SDK."""
    extra: ClassVar[str]
    """The extra that installs it."""

    def __init__(self, name: str, base_url: str | None, api_key: str | None) -> None:
        if not name:
            raise OptionError("model: expected the name of a model, got an empty one")
        self.name = self.model = name
        self._base_url = self.endpoint.url_of(base_url)
        self._api_key = self.endpoint.key_for(self._base_url, api_key)
        self._sdk: Any = import_sdk(self.package, self.extra)
        self._clients: WeakKeyDictionary[Any, _Client] = WeakKeyDictionary()

    def _new_client(self) -> Any:
        """Make an async client of the SDK, with its retries off. Its ``close()`` is awaited at the end."""
        raise NotImplementedError

    async def _client(self) -> Any:
        """The client of the running event loop, of asyncio or trio."""
        loop = current_token().native_token  # lives as long as the event loop
        held = self._clients.get(loop)
        if held is None or held.process != os.getpid():
            client = self._new_client()
            closing = _closing(client)
            await anext(closing)
            held = self._clients[loop] = _Client(client, closing, os.getpid())
        return held.client

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next request opens new ones."""
        held = self._clients.pop(current_token().native_token, None)
        if held is not None:
            await held.closing.aclose()

    def close(self) -> None:
        """Close the connections that were opened without an event loop, such as by ``run_sync``."""
        if self._clients:
            drive_sync(self._close())

    def _close(self) -> Steps[None]:
        yield Call(self.aclose, mode=Mode.ASYNC, label="close")

    @contextlib.contextmanager
    def _explaining(self) -> Generator[None]:
        """Raise a clearer exception in place of one of the SDK, if there is one."""
        try:
            yield
        except Exception as error:
            explained = self._explained(error)
            if explained is None:
                if has_broken_connection(error) and error.args[:1] == (str(error),):
                    # The SDK does not name the server. The exception stays what it is: the loop tries again.
                    error.args = (f"{error} (server: {_place_of(self._base_url)})", *error.args[1:])
                raise
            raise explained from error

    def _explained(self, error: Exception) -> Exception | None:
        """A clearer exception in place of one of the SDK; None if there is none."""
        for cause in causes_of(error):
            if isinstance(cause, ResponseBodyError):  # SDKs take it for a failed connection
                return cause
        response = getattr(error, "response", None)
        status = getattr(error, "status_code", None)
        if status == 401 and self._api_key == PLACEHOLDER:  # noqa: PLR2004 - HTTP's Unauthorized
            return MissingKeyError(self.endpoint.key_is_missing(self._base_url))
        if response is not None and isinstance(status, int) and 300 <= status < 400:  # noqa: PLR2004 - redirects
            return RedirectError(self._redirected(response))
        return None

    def _redirected(self, response: Any) -> str:
        place = _place_of(str(response.url), response.headers.get("location", ""))
        return (
            f"{server_of(self._base_url)} redirects to {place}, and redirects are not followed, since "
            "they would carry the conversation and its headers to another place; if that is right, set base_url="
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def _place_of(url: str, location: str = "") -> str:
    """A URL, or where a redirect from there leads, without what may be secret."""
    try:
        place = urllib.parse.urlsplit(urllib.parse.urljoin(url, location))
    except ValueError:
        return "an invalid URL"
    return redacted(place._replace(query="", fragment="").geturl())


class _Client(NamedTuple):
    """A client, the generator that closes it, and the process that opened it."""

    client: Any
    closing: AsyncGenerator[None]
    process: int


async def _closing(client: Any) -> AsyncGenerator[None]:
    """Close a client when the event loop ends: it then closes all async generators that have begun."""
    try:
        yield
    finally:
        await client.close()
