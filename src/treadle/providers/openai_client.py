"""OpenAI's SDK: its endpoints and clients, and the models that embed texts."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from typing import Any

from treadle.http_bodies import client_options
from treadle.messages import is_list
from treadle.providers.embedding import SDKEmbedder
from treadle.providers.endpoint import Endpoint

OPENAI = Endpoint("OpenAI", "https://api.openai.com/v1", "OPENAI_BASE_URL", ("OPENAI_API_KEY",))
XAI = Endpoint("xAI", "https://api.x.ai/v1", "XAI_BASE_URL", ("XAI_API_KEY",))


def new_client(sdk: Any, endpoint: Endpoint, base_url: str, api_key: str) -> Any:
    """Make an async client with its retries off.

    Args:
        sdk: the module ``openai``.
        endpoint: that of the provider.
        base_url: see `Endpoint.url_of`.
        api_key: see `Endpoint.key_for`.
    """
    # The SDK reads more from the environment than the key. All of it is for OpenAI.
    is_of_env = endpoint is OPENAI and endpoint.is_of_environment(base_url)
    client = sdk.AsyncOpenAI(
        base_url=base_url,
        api_key=api_key,
        max_retries=0,
        default_headers=None if is_of_env else _headers_for_others(sdk, api_key),
        # A redirect would send the messages and all headers but one to a server that the caller did not name.
        http_client=sdk.DefaultAsyncHttpxClient(follow_redirects=False, **client_options()),
    )
    if not is_of_env:  # the SDK has read them from the environment
        client.organization = client.project = None
    return client


def _headers_for_others(sdk: Any, api_key: str) -> dict[str, Any]:
    """Headers in place of those in the environment, for a server that they are not meant for."""
    given = os.environ.get("OPENAI_CUSTOM_HEADERS", "")
    names = {line.partition(":")[0].strip() for line in given.split("\n") if ":" in line}
    others: dict[str, Any] = {name: sdk.Omit() for name in names if name.lower() != "authorization"}
    return {**others, "Authorization": f"Bearer {api_key}"}


@functools.cache
def parameters_of(resource: str, owner: str) -> frozenset[str]:
    """The names of the parameters of ``create``, a method of the SDK, that are options of a request.

    Args:
        resource: the module of the method in ``openai.resources``.
        owner: its class.
    """
    found = getattr(importlib.import_module(f"openai.resources.{resource}"), owner).create
    return frozenset(inspect.signature(found).parameters) - {"self", "stream"}


class OpenAIEmbedder(SDKEmbedder):
    """A model behind OpenAI's embeddings, or any endpoint that implements them; see `SDKEmbedder`."""

    provider = "openai"
    endpoint = OPENAI
    package = extra = "openai"
    max_texts = 2048
    max_bytes = 300_000  # OpenAI's limit of tokens, as the reference of its API says

    def _new_client(self) -> Any:
        return new_client(self._sdk, self.endpoint, self._base_url, self._api_key)

    async def _embed(self, client: Any, texts: list[str]) -> list[list[float]]:
        opts = {"dimensions": self.dimensions, "timeout": self._timeout}
        given = {name: value for name, value in opts.items() if value is not None}
        # Not every server has base64, which the SDK asks for by default.
        made = await client.embeddings.create(
            model=self.name, input=texts, encoding_format="float", **given
        )
        data: Any = getattr(made, "data", None)  # the server may be none of embeddings
        items = data if is_list(data) else []
        found = [one for one in items if is_list(getattr(one, "embedding", None))]
        return [one.embedding for one in sorted(found, key=lambda one: one.index or 0)]
