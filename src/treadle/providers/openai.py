"""OpenAI, and every server that implements its chat completions, through the official SDK."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from anyio.lowlevel import current_token

from treadle.effects import Call, Mode, Steps, drive_sync
from treadle.errors import MissingExtraError, OptionError, TreadleError
from treadle.messages import JSONDict
from treadle.model.sdk_answer import check_async_answer
from treadle.providers.api_key import (
    PLACEHOLDER,
    endpoint_of,
    is_of_environment,
    key_for,
    key_is_missing,
    server_of,
)
from treadle.redaction import redacted

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_STREAM_OPTIONS: JSONDict = {"stream": True, "stream_options": {"include_usage": True}}
"""Without ``include_usage``, a streamed response has no token counts."""


class MissingKeyError(TreadleError):
    """A server refused a request without an API key. The message names the server, and how to give a key."""


class RedirectError(TreadleError):
    """A server redirected a request. The message names the place, so that the base URL can be corrected."""


class OpenAIModel:
    """A model behind an OpenAI-compatible endpoint, for `Loop`; async, and safe to share.

    It works with ``run`` and ``run_sync`` and on any number of event loops. A connection belongs to
    the event loop that opened it, so each event loop has its own client. The SDK's retries are off:
    the loop retries, and reports each attempt.

    Args:
        name: the model, as the endpoint calls it.
        base_url: the endpoint, such as ``http://127.0.0.1:8080/v1``; by default
            ``OPENAI_BASE_URL``, else OpenAI's own.
        api_key: the key for this endpoint. ``OPENAI_API_KEY`` is the default for OpenAI and for the
            server in ``OPENAI_BASE_URL``; any other receives a placeholder, since local servers
            usually need no key. A `UserWarning` says if a key is sent without encryption.
        stream: whether responses are streamed, so that listeners receive the text as it arrives.
        **opts: options of every request, with OpenAI's names, such as ``temperature=0``;
            ``timeout`` is in seconds.

    Raises:
        MissingExtraError: the SDK is not installed.
        OptionError: the name is empty, or there is no key for OpenAI's own endpoint.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        stream: bool = False,
        **opts: Any,
    ) -> None:
        if not name:
            raise OptionError("model: expected the name of a model, got an empty one")
        self.name = self.model = name
        self.provider = "openai"
        self.opts = {**(_STREAM_OPTIONS if stream else {}), **opts}
        self._base_url = endpoint_of(base_url)
        self._api_key = key_for(self._base_url, api_key)
        try:
            import openai  # noqa: PLC0415 - slow to import
        except ImportError as error:
            raise MissingExtraError("the openai SDK", "pip install 'treadle[openai]'") from error
        self._sdk = openai
        self._clients: WeakKeyDictionary[Any, AsyncOpenAI] = WeakKeyDictionary()

    async def __call__(self, messages: list[JSONDict], **opts: Any) -> Any:
        """Send one request.

        Args:
            messages: the conversation, as OpenAI's chat dicts.
            **opts: options of this request; they override those of the model.

        Returns:
            The SDK's chat completion, or its stream of chunks.

        Raises:
            openai.OpenAIError: any error of the SDK; the loop returns it as an ``Err``.
            NotAResponseError: the server sent a page, or another text that is no JSON.
            MissingKeyError: the server requires a key, and none was given for it.
            RedirectError: the server redirected the request.
        """
        create: Any = self._client().chat.completions.create
        try:
            raw = await create(model=self.name, messages=messages, **{**self.opts, **opts})
        except self._sdk.AuthenticationError as error:
            if self._api_key == PLACEHOLDER:
                raise MissingKeyError(key_is_missing(self._base_url)) from error
            raise
        except self._sdk.APIStatusError as error:
            if 300 <= error.status_code < 400:  # noqa: PLR2004 - HTTP's class of redirects
                raise RedirectError(self._redirected(error.response)) from error
            raise
        return await check_async_answer(raw)

    def _client(self) -> AsyncOpenAI:
        loop = current_token().native_token  # lives as long as the event loop, of asyncio or trio
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._new_client()
        return client

    def _new_client(self) -> AsyncOpenAI:
        is_of_env = is_of_environment(self._base_url)
        client = self._sdk.AsyncOpenAI(
            base_url=self._base_url,
            api_key=self._api_key,
            max_retries=0,
            default_headers=None if is_of_env else self._headers_for_others(),
            # A redirect would send the messages and all headers but one to a server that the caller did not name.
            http_client=self._sdk.DefaultAsyncHttpxClient(follow_redirects=False),
        )
        if not is_of_env:  # the SDK has read them from the environment
            client.organization = client.project = None
        return client

    def _headers_for_others(self) -> dict[str, Any]:
        """Headers in place of those in the environment, for a server that they are not meant for."""
        given = os.environ.get("OPENAI_CUSTOM_HEADERS", "")
        names = {line.partition(":")[0].strip() for line in given.split("\n") if ":" in line}
        others: dict[str, Any] = {
            name: self._sdk.Omit() for name in names if name.lower() != "authorization"
        }
        return {**others, "Authorization": f"Bearer {self._api_key}"}

    def _redirected(self, response: Any) -> str:
        place = str(response.url.join(response.headers.get("location", "")).copy_with(query=None))
        return (
            f"{server_of(self._base_url)} redirects to {redacted(place)}, and redirects are not followed, since "
            "they would carry the conversation and its headers to another place; if that is right, set base_url="
        )

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next request opens new ones."""
        client = self._clients.pop(current_token().native_token, None)
        if client is not None:
            await client.close()

    def close(self) -> None:
        """Close the connections that ``run_sync`` opened."""
        drive_sync(self._close())

    def _close(self) -> Steps[None]:
        yield Call(self.aclose, mode=Mode.ASYNC, label="close")

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"
