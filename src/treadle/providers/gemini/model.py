"""The model behind the Gemini API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from treadle.messages import Chunk, JSONDict, Response
from treadle.providers.gemini.client import GeminiConnection, GeminiEmbedder, Stream
from treadle.providers.gemini.options import check_options, config_of, with_system
from treadle.providers.gemini.request import conversation_of, is_earlier
from treadle.providers.gemini.response import Reader, response_of
from treadle.providers.sdk_model import SDKModel, provider_of


class GeminiModel(GeminiConnection, SDKModel):
    """A model behind the Gemini API, or any endpoint that implements it; see `SDKModel`.

    Options have OpenAI's names or those of the SDK's ``GenerateContentConfig``. Google's own tools are options by
    their names, such as ``google_search=True``.
    """

    dialect = "gemini"
    accepts_tool_result_parts = True
    length_option = "max_output_tokens"

    def _check_options(self, opts: Mapping[str, Any]) -> None:
        check_options(opts)

    def _body(self, messages: list[JSONDict], opts: JSONDict) -> JSONDict:
        check_options(opts)
        model = opts.pop("model", None) or self.name
        conversation = conversation_of(messages, earlier=is_earlier(model))
        config = with_system(config_of(model, opts), conversation.system)
        return {"model": model, "contents": conversation.contents, "config": config}

    async def _send(self, client: Any, body: JSONDict, is_streamed: bool) -> Any:
        types = self._sdk.types  # dicts would be sent with the names of their keys as they are
        contents = [types.Content.model_validate(one) for one in body["contents"]]
        config = types.GenerateContentConfig.model_validate(body["config"])
        made = {"model": body["model"], "contents": contents, "config": config}
        if is_streamed:
            return await Stream.open(await client.models.generate_content_stream(**made))
        return await client.models.generate_content(**made)

    def _response(self, raw: Any) -> Response:
        return response_of(raw)

    async def _chunks(self, raw: Any) -> AsyncGenerator[Chunk]:
        reader = Reader()
        try:
            async for piece in raw:
                yield reader.read(piece)
        except self._sdk.errors.UnknownApiResponseError as error:
            raise ConnectionError("the stream broke off within a piece of the response") from error
        finally:
            await raw.aclose()


PROVIDER = provider_of(
    GeminiModel,
    "gemini",
    aliases=("google",),
    prefixes=("gemini-",),
    open_embedder=GeminiEmbedder,
)
