"""OpenAI's chat completions, and every server that implements them, through the official SDK."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

from treadle.messages import JSONDict
from treadle.model.sdk_answer import check_async_answer
from treadle.providers.endpoint import Endpoint
from treadle.providers.sdk_model import SDKModel, provider_of

_STREAM_OPTIONS: JSONDict = {"stream": True, "stream_options": {"include_usage": True}}
"""Without ``include_usage``, a streamed response has no token counts."""

OPENAI = Endpoint("OpenAI", "https://api.openai.com/v1", "OPENAI_BASE_URL", ("OPENAI_API_KEY",))
XAI = Endpoint("xAI", "https://api.x.ai/v1", "XAI_BASE_URL", ("XAI_API_KEY",))


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
        is_of_env = self.endpoint.is_of_environment(self._base_url)
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


class GrokModel(OpenAIModel):
    """A model of xAI, whose endpoint implements OpenAI's chat completions; see `SDKModel`."""

    provider = "x_ai"
    endpoint = XAI


PROVIDER = provider_of(
    OpenAIModel,
    "openai",
    title="OpenAI, chat completions",
    prefixes=("gpt-", "chatgpt-", "o1", "o3", "o4-"),
)
GROK = provider_of(GrokModel, "grok", aliases=("xai",), prefixes=("grok-",))
