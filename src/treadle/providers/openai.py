"""OpenAI's chat completions, and every server that implements them, through the official SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from treadle.messages import JSONDict
from treadle.model.sdk_answer import check_async_answer
from treadle.providers.openai_client import OPENAI, XAI, OpenAIEmbedder, new_client
from treadle.providers.sdk_model import SDKModel, provider_of

_STREAM_OPTIONS: JSONDict = {"stream": True, "stream_options": {"include_usage": True}}
"""Without ``include_usage``, a streamed response has no token counts."""


class OpenAIModel(SDKModel):
    """A model behind OpenAI's chat completions, or any endpoint that implements them; see `SDKModel`.

    Messages and options are sent as they are.
    """

    provider = "openai"
    endpoint = OPENAI
    package = extra = "openai"

    def _body(self, messages: list[JSONDict], opts: JSONDict) -> JSONDict:
        return {"model": self.name, "messages": messages, **opts}

    async def _send(self, client: Any, body: JSONDict, is_streamed: bool) -> Any:
        if is_streamed:
            body = {**_STREAM_OPTIONS, **body}
        return await check_async_answer(await client.chat.completions.create(**body))

    def _response(self, raw: Any) -> Any:
        return raw

    def _chunks(self, raw: Any) -> AsyncIterator[Any]:
        return raw

    def _new_client(self) -> Any:
        return new_client(self._sdk, self.endpoint, self._base_url, self._api_key)


class GrokModel(OpenAIModel):
    """A model of xAI, whose endpoint implements OpenAI's chat completions; see `SDKModel`."""

    provider = "x_ai"
    endpoint = XAI


PROVIDER = provider_of(
    OpenAIModel,
    "openai",
    title="OpenAI, chat completions",
    open_embedder=OpenAIEmbedder,
    prefixes=("gpt-", "chatgpt-", "o1", "o3", "o4-", "text-embedding-3-", "text-embedding-ada-"),
)
GROK = provider_of(GrokModel, "grok", aliases=("xai",), prefixes=("grok-",))
