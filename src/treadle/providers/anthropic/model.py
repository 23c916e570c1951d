"""The model behind Anthropic's Messages API."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from treadle.messages import Chunk, JSONDict, Response
from treadle.model.sdk_answer import check_async_answer
from treadle.providers.anthropic.options import body_of, check_options
from treadle.providers.anthropic.request import conversation_of
from treadle.providers.anthropic.response import response_of
from treadle.providers.anthropic.stream import StreamReader
from treadle.providers.endpoint import Endpoint
from treadle.providers.sdk_model import SDKModel, provider_of

WHOLE_SECONDS = 600.0
"""The time limit of a request that is not streamed, in seconds: the SDK's own. Without one, it refuses a request
whose response might take longer, since networks drop idle connections."""


class AnthropicModel(SDKModel):
    """A model behind Anthropic's Messages API, or any endpoint that implements it; see `SDKModel`.

    Options have OpenAI's names or the API's own, such as ``thinking``, ``cache_control`` and ``output_config``.
    """

    provider = "anthropic"
    endpoint = Endpoint(
        "Anthropic",
        "https://api.anthropic.com",
        "ANTHROPIC_BASE_URL",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    )
    package = extra = "anthropic"
    accepts_tool_result_parts = True

    def _check_options(self, opts: Mapping[str, Any]) -> None:
        check_options(opts, _parameters())

    def _new_client(self) -> Any:
        is_of_env = self.endpoint.is_of_environment(self._base_url)
        is_token = is_of_env and self._api_key == os.environ.get("ANTHROPIC_AUTH_TOKEN")
        credential = "auth_token" if is_token else "api_key"
        return self._sdk.AsyncAnthropic(
            base_url=self._base_url,
            **{credential: self._api_key},
            max_retries=0,
            # The SDK reads these headers from the environment. They are for Anthropic.
            default_headers=None if is_of_env else dict.fromkeys(_names(), self._sdk.Omit()),
            # A redirect would send the messages and the key to a server that the caller did not name.
            http_client=self._sdk.DefaultAsyncHttpxClient(follow_redirects=False),
        )

    def _body(self, messages: list[JSONDict], opts: JSONDict) -> JSONDict:
        self._check_options(opts)
        conversation = conversation_of(messages)
        return body_of(self.name, conversation, opts, self._sdk.transform_schema)

    async def _send(self, client: Any, body: JSONDict, is_streamed: bool) -> Any:
        if not is_streamed:
            body = {"timeout": WHOLE_SECONDS, **body}
        return await check_async_answer(await client.messages.create(**body, stream=is_streamed))

    def _response(self, raw: Any) -> Response:
        return response_of(raw)

    async def _chunks(self, raw: Any) -> AsyncGenerator[Chunk]:
        reader = StreamReader()
        try:
            async for event in raw:
                for chunk in reader.read(event):
                    yield chunk
        finally:
            await raw.close()


@functools.cache
def _parameters() -> frozenset[str]:
    """The names of the parameters of the SDK's method that are options of a request."""
    messages = importlib.import_module("anthropic.resources.messages").AsyncMessages
    return frozenset(inspect.signature(messages.create).parameters) - {"self", "messages", "stream"}


def _names() -> set[str]:
    """The names of the headers that the environment sets."""
    given = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "")
    return {line.partition(":")[0].strip() for line in given.split("\n") if ":" in line}


PROVIDER = provider_of(AnthropicModel, "anthropic", prefixes=("claude-",))
