"""The base of models behind an SDK: their options, a client for each event loop, and its end."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import ModuleType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from anyio.lowlevel import current_token

from treadle.effects import Call, Mode, Steps, drive_sync
from treadle.errors import MissingExtraError, OptionError, TreadleError
from treadle.messages import Chunk, JSONDict, Response
from treadle.model import Provider
from treadle.providers.endpoint import PLACEHOLDER, Endpoint, server_of
from treadle.providers.prices import Prices, listed_cost
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


class SDKModel:
    """A model behind the SDK of its provider, for `Loop`; async, and safe to share.

    It works with ``run`` and ``run_sync`` and on any number of event loops. A connection belongs to the event loop
    that opened it, so each event loop has its own client, which is closed when the event loop ends. The SDK's
    retries are off: the loop retries, and reports each attempt.

    A subclass translates: `_body` makes the body of a request, `_send` sends it with the SDK, and `_response` and
    `_chunks` read what it returned.

    Args:
        name: the model, as the provider names it.
        base_url: another endpoint than the provider's.
        api_key: the key for this endpoint. The key in the environment is only sent to the provider, and to the
            server that the environment names; any other receives a placeholder, since local servers usually need
            no key. A `UserWarning` says if a key is sent without encryption.
        stream: whether responses are streamed, so that listeners receive the text as it arrives.
        prices: what tokens cost; None takes the prices in the list of genai-prices, for the provider's own endpoint.
        **opts: options of every request, by OpenAI's names or the provider's own; ``timeout`` is in seconds.

    Raises:
        MissingExtraError: the SDK is not installed.
        OptionError: the name is empty, an option is unknown, or there is no key for the provider's own endpoint.

    Attributes:
        name, model: the model, as the provider names it.
        opts: the options of every request.
    """

    provider: ClassVar[str]
    """The name of the provider in OpenTelemetry's conventions."""
    endpoint: ClassVar[Endpoint]
    package: ClassVar[str]
    """The package of the SDK."""
    extra: ClassVar[str]
    """The extra that installs it."""
    accepts_tool_result_parts: ClassVar[bool] = False
    """Whether tool messages may have content parts."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        stream: bool = True,
        prices: Prices | None = None,
        **opts: Any,
    ) -> None:
        if not name:
            raise OptionError("model: expected the name of a model, got an empty one")
        self.name = self.model = name
        self.opts: Mapping[str, Any] = {"stream": stream, **opts}
        self._base_url = self.endpoint.url_of(base_url)
        self._api_key = self.endpoint.key_for(self._base_url, api_key)
        self._sdk: Any = import_sdk(self.package, self.extra)
        self._clients: WeakKeyDictionary[Any, tuple[Any, AsyncGenerator[None]]]
        self._clients = WeakKeyDictionary()
        if prices is not None and not isinstance(prices, Prices):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"prices: expected Prices, got {type(prices).__name__}")
        self._prices = prices
        self._check_options(opts)

    async def __call__(self, messages: list[JSONDict], **opts: Any) -> Any:
        """Send one request.

        Args:
            messages: the conversation, as OpenAI's chat dicts.
            **opts: options of this request; they override those of the model.

        Returns:
            The response, or an async iterator of its chunks.

        Raises:
            OptionError: an option is unknown.
            NotAResponseError: the server sent a page, or another text that is no JSON.
            MissingKeyError: the server requires a key, and none was given for it.
            RedirectError: the server redirected the request.
            Exception: any other error of the SDK; the loop returns it as an ``Err``.
        """
        given = {**self.opts, **opts}
        is_streamed = bool(given.pop("stream"))
        body = self._body(messages, given)
        client = await self._client()
        try:
            raw = await self._send(client, body, is_streamed)
        except Exception as error:
            explained = self._explained(error)
            if explained is None:
                raise
            raise explained from error
        return self._chunks(raw) if is_streamed else self._response(raw)

    def cost_of(self, response: Response) -> float | None:
        """The cost of a response in US dollars; None if it is not known.

        The price of another endpoint is only known if it was given: it may serve the model by another price.
        """
        if self._prices is not None:
            return self._prices.cost(response.usage)
        if not self.endpoint.is_own(self._base_url):
            return None
        return listed_cost(self.provider, response.model or self.name, response.usage)

    # What a subclass defines

    def _check_options(self, opts: Mapping[str, Any]) -> None:
        """Check the options of every request; raises OptionError for one that the provider does not have."""

    def _new_client(self) -> Any:
        """Make a client of the SDK, with its retries off."""
        raise NotImplementedError

    def _body(self, messages: list[JSONDict], opts: JSONDict) -> JSONDict:
        """Translate a request: the arguments of the SDK's method."""
        raise NotImplementedError

    async def _send(self, client: Any, body: JSONDict, is_streamed: bool) -> Any:
        """Send a request with the SDK."""
        raise NotImplementedError

    def _response(self, raw: Any) -> Any:
        """Translate what the SDK returned to a response."""
        raise NotImplementedError

    def _chunks(self, raw: Any) -> AsyncIterator[Chunk] | Any:
        """Translate the SDK's stream to chunks; an async generator that closes the stream when it ends."""
        raise NotImplementedError

    def _explained(self, error: Exception) -> Exception | None:
        """A clearer exception in place of one of the SDK; None if there is none."""
        response = getattr(error, "response", None)
        status = getattr(error, "status_code", None)
        if status == 401 and self._api_key == PLACEHOLDER:  # noqa: PLR2004 - HTTP's Unauthorized
            return MissingKeyError(self.endpoint.key_is_missing(self._base_url))
        if response is not None and isinstance(status, int) and 300 <= status < 400:  # noqa: PLR2004 - redirects
            return RedirectError(self._redirected(response))
        return None

    def _redirected(self, response: Any) -> str:
        place = str(response.url.join(response.headers.get("location", "")).copy_with(query=None))
        return (
            f"{server_of(self._base_url)} redirects to {redacted(place)}, and redirects are not followed, since "
            "they would carry the conversation and its headers to another place; if that is right, set base_url="
        )

    # Clients

    async def _client(self) -> Any:
        loop = current_token().native_token  # lives as long as the event loop, of asyncio or trio
        held = self._clients.get(loop)
        if held is None:
            client = self._new_client()
            closing = _closing(client)
            await anext(closing)
            held = self._clients[loop] = client, closing
        return held[0]

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next request opens new ones."""
        held = self._clients.pop(current_token().native_token, None)
        if held is not None:
            await held[1].aclose()

    def close(self) -> None:
        """Close the connections that ``run_sync`` opened."""
        drive_sync(self._close())

    def _close(self) -> Steps[None]:
        yield Call(self.aclose, mode=Mode.ASYNC, label="close")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def provider_of(model: type[SDKModel], name: str, **facts: Any) -> Provider:
    """The provider of a class of models.

    Args:
        model: the class.
        name: the name of the provider.
        **facts: further fields of `Provider`; by default its title is that of the endpoint.
    """
    endpoint = model.endpoint
    defaults: dict[str, Any] = {
        "title": endpoint.title,
        "open_model": model,
        "package": model.package,
        "extra": model.extra,
        "key_variables": endpoint.key_variables,
        "url_variable": endpoint.url_variable,
        "needs_key": endpoint.needs_key,
    }
    return Provider(name, **{**defaults, **facts})


async def _closing(client: Any) -> AsyncGenerator[None]:
    """Close a client when the event loop ends: it then closes all async generators that have begun."""
    try:
        yield
    finally:
        await client.close()
