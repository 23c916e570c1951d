"""The model behind Google's Gemini API."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from treadle.messages import Chunk, JSONDict, NotAResponseError, Response
from treadle.providers.embedding import SDKEmbedder
from treadle.providers.endpoint import Endpoint
from treadle.providers.gemini.options import body_of, check_options
from treadle.providers.gemini.request import conversation_of
from treadle.providers.gemini.response import ResponseReader, response_of
from treadle.providers.sdk_connection import import_sdk
from treadle.providers.sdk_model import SDKModel, provider_of

GEMINI = Endpoint(
    "Gemini",
    "https://generativelanguage.googleapis.com",
    "GOOGLE_GEMINI_BASE_URL",
    ("GOOGLE_API_KEY", "GEMINI_API_KEY"),  # the SDK's order
)


class _Client:
    """The async part of the SDK's client, with an HTTP client that follows no redirects."""

    def __init__(self, sdk: Any, base_url: str, api_key: str) -> None:
        http = import_sdk("httpx", "gemini")
        self._http = http.AsyncClient(
            follow_redirects=False, timeout=None
        )  # the SDK sets the time limits
        options = {
            "base_url": base_url,
            "api_version": "v1beta",
            "retry_options": {"attempts": 1},
            "httpx_async_client": self._http,
        }
        self._client = sdk.Client(api_key=api_key, vertexai=False, http_options=options)
        self.models = self._client.aio.models

    async def close(self) -> None:
        self._client.close()
        await self._http.aclose()


class GeminiModel(SDKModel):
    """A model behind Google's Gemini API; see `SDKModel`.

    Options have OpenAI's names, or those of the SDK's ``GenerateContentConfig``, such as ``thinking_config`` and
    ``safety_settings``.
    """

    provider = "gcp.gemini"
    endpoint = GEMINI
    package = "google.genai"
    extra = "gemini"

    def _check_options(self, opts: Mapping[str, Any]) -> None:
        check_options(opts, _parameters())

    def _new_client(self) -> Any:
        return _Client(self._sdk, self._base_url, self._api_key)

    def _body(self, messages: list[JSONDict], opts: JSONDict) -> JSONDict:
        self._check_options(opts)
        return body_of(self.name, conversation_of(messages, opts.get("model") or self.name), opts)

    async def _send(self, client: Any, body: JSONDict, is_streamed: bool) -> Any:
        types = self._sdk.types  # dicts would be sent with the names of their keys as they are
        send = (
            client.models.generate_content_stream if is_streamed else client.models.generate_content
        )
        return await send(
            model=body["model"],
            contents=[types.Content.model_validate(one) for one in body["contents"]],
            config=types.GenerateContentConfig.model_validate(body["config"]),
        )

    def _response(self, raw: Any) -> Response:
        if not raw.candidates and raw.prompt_feedback is None:
            raise NotAResponseError(
                "llm_send_fn: the server responded with something that has no candidates"
            )
        return response_of(raw)

    async def _chunks(self, raw: Any) -> AsyncGenerator[Chunk]:
        reader = ResponseReader()
        try:
            async for response in raw:
                for chunk in reader.read(response):
                    yield chunk
        finally:
            await raw.aclose()

    def _explained(self, error: Exception) -> Exception | None:
        response = getattr(error, "response", None)
        status = getattr(error, "code", None)
        if response is not None and isinstance(status, int):  # the SDK's name for it
            return super()._explained(_WithStatus(status, response))
        return super()._explained(error)


class _WithStatus(Exception):  # noqa: N818 - it is never raised
    def __init__(self, status_code: int, response: Any) -> None:
        super().__init__(status_code)
        self.status_code = status_code
        self.response = response


@functools.cache
def _parameters() -> frozenset[str]:
    """The fields of the SDK's configuration that are options of a request."""
    types = import_sdk("google.genai.types", "gemini")
    return frozenset(types.GenerateContentConfig.model_fields) - {"automatic_function_calling"}


class GeminiEmbedder(SDKEmbedder):
    """A model behind Gemini's embeddings; see `SDKEmbedder`."""

    provider = "gcp.gemini"
    endpoint = GEMINI
    package = "google.genai"
    extra = "gemini"
    max_texts = 100  # the API's limit of one batch
    max_bytes = 1_000_000

    def _new_client(self) -> Any:
        return _Client(self._sdk, self._base_url, self._api_key)

    async def _embed(self, client: Any, texts: list[str]) -> list[list[float]]:
        config: JSONDict = {}
        if self.dimensions is not None:
            config["output_dimensionality"] = self.dimensions
        if self._timeout is not None:
            config["http_options"] = {"timeout": round(self._timeout * 1000)}
        made = await client.models.embed_content(model=self.name, contents=texts, config=config)
        return [list(one.values) for one in made.embeddings]


PROVIDER = provider_of(
    GeminiModel,
    "gemini",
    aliases=("google",),
    prefixes=("gemini-",),
    open_embedder=GeminiEmbedder,
)
