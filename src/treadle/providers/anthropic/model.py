"""The model behind Anthropic's Messages API."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from treadle.http_bodies import client_options
from treadle.messages import Chunk, JSONDict, Response
from treadle.model.wrong_model import checked_answer
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
    ``max_tokens`` is 16,384 by default, since the API requires one. ``reasoning_effort`` asks for adaptive
    thinking, which Claude has since 4.6; models before it take ``thinking`` with ``budget_tokens`` instead. A
    request that forces a call is sent without ``thinking``, as the API wants it.
    """

    provider = "anthropic"
    dialect = "anthropic"
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
        client = self._sdk.AsyncAnthropic(
            base_url=self._base_url,
            api_key=self._api_key,
            max_retries=0,
            default_headers=None if is_of_env else self._headers_for_others(),
            # A redirect would send the messages and the key to a server that the caller did not name.
            http_client=self._sdk.DefaultAsyncHttpxClient(
                follow_redirects=False, **client_options()
            ),
        )
        client.auth_token = None  # some versions have read it from the environment
        if is_of_env and self._is_token():
            client.api_key, client.auth_token = None, self._api_key
        return client

    def _is_token(self) -> bool:
        """Whether the key is a bearer token, by the variable that has it."""
        key, token = map(os.environ.get, self.endpoint.key_variables)
        return self._api_key == token != key

    def _headers_for_others(self) -> dict[str, Any]:
        """Headers in place of those in the environment, for a server that they are not meant for."""
        given = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "")
        names = {line.partition(":")[0].strip() for line in given.split("\n") if ":" in line}
        return {
            name: self._api_key if name.lower() == "x-api-key" else self._sdk.Omit()
            for name in names
        }

    def _body(self, messages: list[JSONDict], opts: JSONDict) -> JSONDict:
        self._check_options(opts)
        conversation = conversation_of(messages)
        return body_of(self.name, conversation, opts)

    async def _send(self, client: Any, body: JSONDict, is_streamed: bool) -> Any:
        if not is_streamed:
            body = {"timeout": WHOLE_SECONDS, **body}
        return await checked_answer(client.messages.create(**body, stream=is_streamed))

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


PROVIDER = provider_of(AnthropicModel, "anthropic", prefixes=("claude-",))
