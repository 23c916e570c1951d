"""Google's SDK: its endpoint and clients, and the models that embed texts."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

import anyio

from treadle.errors import ProviderError
from treadle.http_bodies import LAST_PIECES, client_options
from treadle.messages import JSONDict, NotAResponseError, is_mapping
from treadle.messages.decode import check_no_error
from treadle.providers.embedding import SDKEmbedder
from treadle.providers.endpoint import PLACEHOLDER, Endpoint
from treadle.providers.sdk_connection import MissingKeyError, RedirectError, SDKConnection

GEMINI = Endpoint(
    "Google Gemini",
    "https://generativelanguage.googleapis.com",
    "GOOGLE_GEMINI_BASE_URL",
    ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
)
"""The SDK's variables; the first one takes precedence there, too."""

TIMEOUT = 600.0
"""The time limit of a request in seconds, that of other providers' SDKs: this SDK has none by default."""

_opened: ContextVar[list[Any] | None] = ContextVar("treadle_gemini_opened", default=None)
"""Receives the HTTP response of the request that the running task sends."""


async def _note(response: Any) -> None:
    """Note the response; raise an error that a server sends with the status 200, which the SDK would ignore."""
    opened = _opened.get()
    if opened is not None:
        opened.append(response)
    if response.is_success and "json" in response.headers.get("content-type", ""):
        await response.aread()
        with contextlib.suppress(ValueError):  # which the SDK reports
            found: Any = response.json()
            check_no_error(found if is_mapping(found) else None)


class Client:
    """An async client of the SDK, with its retries off.

    Args:
        sdk: the module ``google.genai``.
        base_url: see `Endpoint.url_of`.
        api_key: see `Endpoint.key_for`.
    """

    def __init__(self, sdk: Any, base_url: str, api_key: str) -> None:
        httpx = importlib.import_module("httpx2")  # which the SDK uses
        verify = httpx.create_ssl_context()  # one for both clients: it takes 10 ms
        # The SDK's own async client, and aiohttp, which it prefers, work with asyncio only. A redirect would send
        # the messages and the key to a server that the caller did not name.
        self._http = httpx.AsyncClient(
            follow_redirects=False, verify=verify, **client_options(None, _note)
        )
        self._sdk_client = sdk.Client(
            vertexai=False,  # whatever the environment says: the endpoint and the key are those of this API
            api_key=api_key,
            http_options={
                "base_url": base_url,
                "api_version": "v1beta",
                "timeout": milliseconds(TIMEOUT),
                "client_args": {"verify": verify},
                "httpx_async_client": self._http,
            },
        )
        self.models: Any = self._sdk_client.aio.models

    async def close(self) -> None:
        """Close the connections."""
        self._sdk_client.close()
        await self._http.aclose()


def milliseconds(seconds: float) -> int:
    """A time limit as the SDK takes it."""
    return max(1, round(seconds * 1000))


class Stream:
    """A stream of the SDK, after its first piece has come, so that errors of the request are known.

    The SDK's stream consists of generators within generators, and closing the outer one leaves the others to the
    garbage collector. This class closes the HTTP response, and lets them end.
    """

    def __init__(self, pieces: AsyncGenerator[Any], opened: list[Any], first: Any) -> None:
        self._pieces = pieces
        self._opened = opened
        self._first = first

    @classmethod
    async def open(cls, pieces: AsyncGenerator[Any]) -> Stream:
        """Send the request.

        Args:
            pieces: what the SDK returned; it sends the request when the first piece is asked for.
        """
        opened: list[Any] = []
        token = _opened.set(opened)
        made = cls(pieces, opened, None)
        try:
            made._first = await made._next()
        except BaseException:
            await made.aclose()
            raise
        finally:
            _opened.reset(token)
        return made

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        piece, self._first = self._first, None
        piece = await self._next() if piece is None else piece
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def _next(self) -> Any:
        """The next piece; None at the end."""
        try:
            piece = await anext(self._pieces, None)
        except (TypeError, AttributeError) as error:
            self._check_no_error()
            raise ProviderError("the stream has an error that Google's SDK cannot read") from error
        self._check_no_error()
        return piece

    def _check_no_error(self) -> None:
        """Raise an error at the end of the stream: the SDK reads only one without candidates, with a number."""
        pieces = (response.extensions.get(LAST_PIECES, ()) for response in self._opened)
        last = b"".join(itertools.chain.from_iterable(pieces))
        if b'"error"' not in last:
            return
        text = last.decode(errors="replace")
        for part in (text, *text.splitlines()):
            with contextlib.suppress(ValueError):
                found: Any = json.loads(part.removeprefix("data:"))
                check_no_error(found if is_mapping(found) else None)

    async def aclose(self) -> None:
        """Close the connection of a stream that was not read to its end, also in a task that is cancelled."""
        with anyio.CancelScope(shield=True):
            for response in self._opened:
                await response.aclose()
            # The closed response raises, which ends all generators.
            with contextlib.suppress(Exception):
                async for _ in self._pieces:
                    pass


_KEY_REFUSED = frozenset({401, 403})


class GeminiConnection(SDKConnection):
    """A model behind Google's SDK; the base of `GeminiModel` and `GeminiEmbedder`."""

    provider = "gcp.gemini"
    endpoint = GEMINI
    package = "google.genai"
    extra = "gemini"

    def _new_client(self) -> Any:
        return Client(self._sdk, self._base_url, self._api_key)

    def _explained(self, error: Exception) -> Exception | None:
        status = getattr(error, "code", None)
        response = getattr(error, "response", None)
        is_refused = status in _KEY_REFUSED or "API_KEY_INVALID" in str(error)
        if is_refused and self._api_key == PLACEHOLDER:
            return MissingKeyError(self.endpoint.key_is_missing(self._base_url))
        if response is not None and isinstance(status, int) and 300 <= status < 400:  # noqa: PLR2004 - redirects
            return RedirectError(self._redirected(response))
        if isinstance(error, (json.JSONDecodeError, self._sdk.errors.UnknownApiResponseError)):
            return NotAResponseError(f"{self!r}: the server sent text that is no JSON")
        return None


class GeminiEmbedder(GeminiConnection, SDKEmbedder):
    """A model behind the Gemini API that embeds texts; see `SDKEmbedder`."""

    max_texts = 100  # the API's limit of a batch
    # No limit of a request is documented; each text may have 2,048 tokens or 8,192.
    max_bytes = 1_000_000

    async def _embed(self, client: Any, texts: list[str]) -> list[list[float]]:
        config: JSONDict = {}
        if self.dimensions is not None:
            config["output_dimensionality"] = self.dimensions
        if self._timeout is not None:
            config["http_options"] = {"timeout": milliseconds(self._timeout)}
        made = await client.models.embed_content(model=self.name, contents=texts, config=config)
        return [one.values for one in made.embeddings or ()]
