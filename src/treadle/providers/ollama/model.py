"""`OllamaModel` and `OllamaEmbedder`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from treadle.errors import TreadleError
from treadle.messages import Chunk, JSONDict, Response
from treadle.providers.embedding import SDKEmbedder
from treadle.providers.endpoint import server_of
from treadle.providers.json_tools import Offer, constraint, offer_of, plain_messages, translated
from treadle.providers.ollama.connection import OLLAMA, new_client
from treadle.providers.ollama.request import body_of, check_names
from treadle.providers.ollama.response import chunk_of, response_of
from treadle.providers.sdk_model import SDKModel, provider_of


class NoToolUseError(TreadleError):
    """The model has no native tool use. The message names `JSONToolModel`, which can call its tools."""


class OllamaModel(SDKModel):
    """A model behind Ollama's native chat; see `SDKModel`.

    Ollama's own options may be given by name, such as ``num_ctx``, ``keep_alive`` and ``think``; others of the
    model in ``options``. Set ``num_ctx``: Ollama leaves out the older messages of a prompt that is longer than the
    context, without an error, and its default may be as small as 4,096 tokens.

    Ollama neither requires tool calls (``tool_choice``) nor calls tools when the response has a format. Such a
    request is sent as that of a `JSONToolModel`: the tools are described in the prompt, and the response is
    constrained to a call, or to a call or an answer in this format.
    """

    provider = "ollama"
    dialect = "ollama"
    endpoint = OLLAMA
    package = extra = "ollama"
    length_option = "num_predict"

    async def __call__(self, messages: list[JSONDict], **opts: Any) -> Any:
        """Send one request; see `SDKModel`."""
        given = {**self.opts, **opts}
        offer = _offer_of(given)
        if offer is None:
            return await super().__call__(messages, **opts)
        changes = {
            **opts,
            **dict.fromkeys(("tools", "tool_choice", "format", "parallel_tool_calls")),
            "response_format": constraint("json_schema", offer),
        }
        return translated(await super().__call__(plain_messages(messages, offer), **changes), offer)

    def _check_options(self, opts: Mapping[str, Any]) -> None:
        check_names(opts)

    def _body(self, messages: list[JSONDict], opts: JSONDict) -> JSONDict:
        return body_of(self.name, messages, opts)

    async def _send(self, client: Any, body: JSONDict, is_streamed: bool) -> Any:
        # Not `client.chat`: it leaves out ids, and keywords of schemas such as anyOf and nested properties. Its
        # streams take an error that is an object for one of their own.
        given = {"timeout": body.pop("timeout")} if "timeout" in body else {}
        request = {"json": {**body, "stream": is_streamed}, **given}
        if is_streamed:
            return _pieces(client._client, request)  # noqa: SLF001
        return await client._request(dict, "POST", "/api/chat", stream=False, **request)  # noqa: SLF001

    def _response(self, raw: Any) -> Response:
        return response_of(raw)

    async def _chunks(self, raw: Any) -> AsyncIterator[Chunk]:
        calls = 0
        async with contextlib.aclosing(raw):
            with self._explaining():  # the request is sent when the first piece is read
                async for piece in raw:
                    chunk = chunk_of(piece, calls)
                    calls += len(chunk.tool_calls)
                    yield chunk

    def _explained(self, error: Exception) -> Exception | None:
        if getattr(error, "status_code", None) == 400 and "does not support tools" in str(error):  # noqa: PLR2004
            return NoToolUseError(
                f"the model {self.name!r} has no native tool use; a JSONToolModel around it calls tools by JSON "
                "text"
            )
        return unreachable(self._base_url, error) or super()._explained(error)

    def _new_client(self) -> Any:
        return new_client(self._sdk, self._base_url, self._api_key)


async def _pieces(http: Any, request: JSONDict) -> AsyncGenerator[Any]:
    """The pieces of a streamed response, one JSON object a line."""
    async with http.stream("POST", "/api/chat", **request) as response:
        async for line in response.aiter_lines():
            if line.strip():
                yield json.loads(line)


def unreachable(base_url: str, error: Exception) -> ConnectionError | None:
    """A clearer exception in place of one about a server that cannot be reached; None for others."""
    # The SDK raises Python's `ConnectionError` for a whole response, and httpx's for a stream.
    if type(error).__name__ not in ("ConnectError", "ConnectionError"):
        return None
    return ConnectionError(
        f"no Ollama server at {server_of(base_url)}; start it with `ollama serve`, or set base_url= or OLLAMA_HOST"
    )


def _offer_of(opts: Mapping[str, Any]) -> Offer | None:
    """What a request that Ollama does not serve with native tool use offers; None for any other request."""
    opts = _with_response_format(opts)
    is_forced = opts.get("tool_choice") not in (None, "auto", "none")
    has_format = opts.get("response_format") not in (None, {"type": "text"})
    return offer_of(opts, is_parallel=True) if is_forced or has_format else None


def _with_response_format(opts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with OpenAI's ``response_format`` in place of Ollama's ``format``."""
    given = opts.get("format")
    if not given:
        return opts
    schema = {"name": "response", "schema": given}
    made = (
        {"type": "json_object"}
        if given == "json"
        else {"type": "json_schema", "json_schema": schema}
    )
    return {**opts, "response_format": made}


class OllamaEmbedder(SDKEmbedder):
    """A model behind Ollama's embeddings; see `SDKEmbedder`. A text that is too long is an error."""

    provider = "ollama"
    endpoint = OLLAMA
    package = extra = "ollama"
    max_texts = 512  # Ollama has no limit; this many keep a request short
    max_bytes = 1_000_000

    def _new_client(self) -> Any:
        return new_client(self._sdk, self._base_url, self._api_key, self._timeout)

    async def _embed(self, client: Any, texts: list[str]) -> list[list[float]]:
        made = await client.embed(
            model=self.name, input=texts, truncate=False, dimensions=self.dimensions
        )
        return [[*vector] for vector in made.embeddings]

    def _explained(self, error: Exception) -> Exception | None:
        return unreachable(self._base_url, error) or super()._explained(error)


PROVIDER = provider_of(OllamaModel, "ollama", open_embedder=OllamaEmbedder)
