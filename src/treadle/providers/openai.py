"""OpenAI, and all that speaks its chat completions, through the official SDK."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from anyio.lowlevel import current_token

from treadle.effects import Call, Mode, Steps, drive_sync
from treadle.errors import MissingExtraError, OptionError
from treadle.messages import JSONDict

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PLACEHOLDER_KEY = "no-key"
"""What the SDK is given for servers that want no key; it refuses to make a client without one."""


class OpenAIModel:
    """A model behind an OpenAI-compatible endpoint: a backend for `Loop`, async, safe to share.

    It works under ``run`` and ``run_sync`` and on any number of event loops. Connections belong to
    the loop that made them, so each loop has a client of its own. The SDK's own retries are off,
    since the loop retries, and tells of it.

    Args:
        name: the model, as the endpoint calls it.
        base_url: the endpoint, such as ``http://127.0.0.1:8080/v1``; None is ``OPENAI_BASE_URL``,
            and where that is not set, OpenAI's own.
        api_key: None is ``OPENAI_API_KEY``. Where there is none and an endpoint is given, a
            placeholder is sent: servers on one's own machine ask for no key.
        stream: have the answer come in pieces, so that the run tells its text as it is written.
        **opts: for every request, in OpenAI's words, such as ``temperature=0``; ``timeout`` is in
            seconds.

    Raises:
        MissingExtraError: the SDK is not installed.
        OptionError: no model is named, or OpenAI's own endpoint is meant and there is no key.
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
        self.opts = {**(_STREAMED if stream else {}), **opts}
        self._base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        self._api_key = _key(api_key, self._base_url)
        self._client_class = _client_class()
        self._clients: WeakKeyDictionary[Any, AsyncOpenAI] = WeakKeyDictionary()

    async def __call__(self, messages: list[JSONDict], **opts: Any) -> Any:
        """Ask once.

        Args:
            messages: OpenAI chat dicts.
            **opts: for this request; they win over those of the model.

        Returns:
            The SDK's chat completion, or its stream of chunks.

        Raises:
            openai.OpenAIError: as the SDK does; the loop makes an ``Err`` of it.
        """
        create: Callable[..., Any] = self._client().chat.completions.create
        return await create(model=self.name, messages=messages, **{**self.opts, **opts})

    def _client(self) -> AsyncOpenAI:
        loop = _event_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._client_class(
                base_url=self._base_url, api_key=self._api_key, max_retries=0
            )
        return client

    async def aclose(self) -> None:
        """Close the connections made on the running event loop; the next request makes new ones."""
        client = self._clients.pop(_event_loop(), None)
        if client is not None:
            await client.close()

    def close(self) -> None:
        """Close the connections that ``run_sync`` made."""
        drive_sync(self._closing())

    def _closing(self) -> Steps[None]:
        yield Call(self.aclose, mode=Mode.ASYNC, label="close")

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r})"


_STREAMED: JSONDict = {"stream": True, "stream_options": {"include_usage": True}}
"""Without ``include_usage`` a streamed answer does not tell what it took."""


def _key(given: str | None, base_url: str | None) -> str:
    key = given or os.environ.get("OPENAI_API_KEY")
    if key:
        return key
    if base_url:
        return PLACEHOLDER_KEY
    raise OptionError(
        "model: OpenAI wants an API key; set OPENAI_API_KEY, or give the base_url of another server"
    )


def _client_class() -> type[AsyncOpenAI]:
    try:
        from openai import AsyncOpenAI  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise MissingExtraError("the openai SDK", "pip install 'treadle[openai]'") from error
    return AsyncOpenAI


def _event_loop() -> Any:
    """What stands for the running event loop, of asyncio or trio, and dies with it."""
    token: Any = current_token()
    return getattr(token, "native_token", token)  # anyio before 4.11 gives the loop itself
