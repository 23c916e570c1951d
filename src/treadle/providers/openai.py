"""OpenAI's chat completions, and every server that implements them, through the official SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from treadle.errors import OptionError, did_you_mean
from treadle.messages import JSONDict
from treadle.messages.decode import provider_error
from treadle.model.wrong_model import checked_answer
from treadle.providers.openai_client import OPENAI, XAI, OpenAIEmbedder, new_client, parameters_of
from treadle.providers.openai_messages import known_messages
from treadle.providers.sdk_model import SDKModel, provider_of

_STREAM_OPTIONS: JSONDict = {"stream": True, "stream_options": {"include_usage": True}}
"""Without ``include_usage``, a streamed response has no token counts."""


class OpenAIModel(SDKModel):
    """A model behind OpenAI's chat completions, or any endpoint that implements them; see `SDKModel`.

    Options are the parameters of the SDK's method; what another server takes besides belongs in ``extra_body``.
    OpenAI's own endpoint receives messages with the keys that it knows (see `known_messages`), any other with all
    keys.
    """

    provider = "openai"
    dialect = "openai"
    endpoint = OPENAI
    package = extra = "openai"
    length_option = "max_completion_tokens"

    def _check_options(self, opts: Mapping[str, Any]) -> None:
        known = parameters_of("chat.completions", "AsyncCompletions") - {"messages"}
        for option in opts:
            if option not in known:
                what = f"model: {self.endpoint.title}'s chat completions have no option {option!r}"
                hint = did_you_mean(option, sorted(known))
                raise OptionError(
                    f"{what}{hint}; those of another server belong in extra_body={{...}}"
                )

    def _body(self, messages: list[JSONDict], opts: JSONDict) -> JSONDict:
        self._check_options(opts)
        if self.endpoint.is_own(self._base_url):
            messages = known_messages(messages)
        return {"model": self.name, "messages": messages, **opts}

    async def _send(self, client: Any, body: JSONDict, is_streamed: bool) -> Any:
        if is_streamed:
            body = {**_STREAM_OPTIONS, **body}
        raw = await checked_answer(client.chat.completions.create(**body))
        return await _whole(raw) if is_streamed and _is_whole(raw) else raw

    def _response(self, raw: Any) -> Any:
        return raw

    def _chunks(self, raw: Any) -> Any:
        is_stream = isinstance(raw, self._sdk.AsyncStream)
        return _checked(raw, self._sdk.APIError) if is_stream else raw

    def _new_client(self) -> Any:
        return new_client(self._sdk, self.endpoint, self._base_url, self._api_key)


async def _checked(stream: Any, kind_of_error: type[Exception]) -> AsyncGenerator[Any]:
    try:
        async for chunk in stream:
            yield chunk
    except kind_of_error as error:  # an event of the stream
        body: Any = getattr(error, "body", None)
        if getattr(error, "status_code", None) is not None or not body:
            raise
        raise provider_error(body) from error
    finally:
        await stream.close()


def _is_whole(stream: Any) -> bool:
    """Whether a server that was asked for a stream sent the whole response: not every one streams."""
    return "application/json" in str(stream.response.headers.get("content-type", "")).lower()


async def _whole(stream: Any) -> Any:
    """The response that came in place of a stream."""
    await stream.response.aread()
    return stream.response.json()


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
