"""The model behind OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from treadle.messages import Chunk, JSONDict, Response
from treadle.model.wrong_model import checked_answer
from treadle.providers.openai_client import OPENAI, new_client, parameters_of
from treadle.providers.openai_responses.options import body_of, check_options
from treadle.providers.openai_responses.request import input_items
from treadle.providers.openai_responses.response import response_of
from treadle.providers.openai_responses.stream import StreamReader
from treadle.providers.sdk_model import SDKModel, provider_of


class ResponsesModel(SDKModel):
    """A model behind OpenAI's Responses API, or any endpoint that implements it; see `SDKModel`.

    Nothing is stored at OpenAI (``store=False``): each request has the whole conversation, with the encrypted
    reasoning of earlier responses. ``store``, ``include`` and every other parameter of the API can be given.
    """

    provider = "openai"
    dialect = "openai-responses"
    endpoint = OPENAI
    package = extra = "openai"
    accepts_tool_result_parts = True
    length_option = "max_output_tokens"

    def _check_options(self, opts: Mapping[str, Any]) -> None:
        check_options(opts, parameters_of("responses", "AsyncResponses"))

    def _new_client(self) -> Any:
        return new_client(self._sdk, self.endpoint, self._base_url, self._api_key)

    def _body(self, messages: list[JSONDict], opts: JSONDict) -> JSONDict:
        self._check_options(opts)
        body = body_of(self.name, opts)
        return {**body, "input": input_items(messages, is_stored=body["store"] is not False)}

    async def _send(self, client: Any, body: JSONDict, is_streamed: bool) -> Any:
        return await checked_answer(client.responses.create(**body, stream=is_streamed))

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


PROVIDER = provider_of(ResponsesModel, "openai-responses", title="OpenAI, Responses")
