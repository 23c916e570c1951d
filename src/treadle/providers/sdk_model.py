"""The base of models behind an SDK: the options of their requests, and the steps of a translation."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, ClassVar

from treadle.errors import OptionError
from treadle.messages import Chunk, JSONDict, Response, for_sdk, is_mapping
from treadle.messages.decode import check_no_error
from treadle.model.info import host_of
from treadle.model.registry import Provider
from treadle.providers.prices import Prices, listed_cost
from treadle.providers.sdk_connection import SDKConnection


class SDKModel(SDKConnection):
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
        prices: what tokens cost; None takes the prices that genai-prices lists, for the provider's own endpoint.
        **opts: options of every request, by OpenAI's names or the provider's own; ``timeout`` is in seconds.

    Raises:
        MissingExtraError: the SDK is not installed.
        OptionError: the name is empty, an option is unknown, or there is no key for the provider's own endpoint.

    Attributes:
        name, model: the model, as the provider names it.
        opts: the options of every request.
    """

    dialect: ClassVar[str]
    """The name of the API, in the origin of what it sent."""

    accepts_tool_result_parts: ClassVar[bool] = False
    """Whether tool messages may have content parts."""

    length_option: ClassVar[str] = "max_tokens"
    """The option that limits the tokens of a response."""

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
        super().__init__(name, base_url, api_key)
        self.opts: Mapping[str, Any] = {"stream": stream, **opts}
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
            ProviderError: the server reported an error in place of a response.
            MissingKeyError: the server requires a key, and none was given for it.
            RedirectError: the server redirected the request.
            Exception: any other error of the SDK; the loop returns it as an ``Err``.
        """
        given = {**self.opts, **opts}
        is_streamed = bool(given.pop("stream"))
        body = self._body(for_sdk(messages, self.origin), given)
        client = await self._client()
        with self._explaining():
            raw = await self._send(client, body, is_streamed)
            if is_streamed:
                await _check_stream(raw)
        return _ending(self._chunks(raw)) if is_streamed else self._response(raw)

    @property
    def origin(self) -> str:
        """The API and its server; see `treadle.messages.for_sdk`."""
        return f"{self.dialect}@{host_of(self._base_url)}"

    @property
    def endpoint_url(self) -> str:
        """The base URL of the server to which requests are sent."""
        return self._base_url

    def cost_of(self, response: Response) -> float | None:
        """The cost of a response in US dollars; None if it is not known.

        The price of another endpoint is only known if it was given: it may serve the model by another price.
        """
        if self._prices is not None:
            return self._prices.cost(response.usage)
        if not self.endpoint.is_own(self._base_url):
            return None
        names = filter(None, (response.model, self.name))
        costs = (listed_cost(self.provider, name, response.usage) for name in names)
        return next((cost for cost in costs if cost is not None), None)

    # What a subclass defines

    def _check_options(self, opts: Mapping[str, Any]) -> None:
        """Check the options of every request; raises OptionError for one that the provider does not have."""

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


async def _check_stream(raw: Any) -> None:
    """Raise the error that a server sent as a JSON body in place of a stream."""
    response = getattr(raw, "response", None)
    headers: Any = getattr(response, "headers", {})
    if response is not None and "json" in str(headers.get("content-type", "")).lower():
        with contextlib.suppress(ValueError):
            found: Any = json.loads(await response.aread())
            check_no_error(found if is_mapping(found) else None)


def _ending(chunks: Any) -> Any:
    """The chunks of a stream, which is incomplete without a finish reason, also if it has no chunk."""
    return _chunks_to_end(chunks) if isinstance(chunks, AsyncGenerator) else chunks  # pyright: ignore[reportUnknownArgumentType]


async def _chunks_to_end(chunks: AsyncGenerator[Any]) -> AsyncGenerator[Any]:
    async with contextlib.aclosing(chunks):
        yield Chunk(ends_with_reason=True)
        async for chunk in chunks:
            yield chunk


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
