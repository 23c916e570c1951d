"""The scripted model as an OpenAI client without a network, so that each peer talks to it as to a real one.

A peer is handed an ordinary ``openai`` client whose HTTP transport answers in this process. So what is sent
and what comes back goes through the peer's own conversions, and through the SDK's own retries: nothing is
lost or mended by an adapter.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import openai
from torture_suite.protocol import Model, ScenarioOver, TooManyCalls
from torture_suite.script import ModelError

MODEL = "gpt-4.1"
"""A name that peers know, of a model without peculiarities."""

KEY = "none"
URL = "http://scripted.invalid/v1"


class Wire(httpx2.AsyncBaseTransport, httpx2.BaseTransport):
    """Answers chat completion requests by a scripted model, instead of a connection.

    Args:
        model: the scenario's model.
    """

    def __init__(self, model: Model | Recorder) -> None:
        self._model = model

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request of a client without an event loop."""
        request.read()
        return self._answer(request)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request of an async client."""
        await request.aread()
        return self._answer(request)

    def completion(self, body: dict[str, Any]) -> Any:
        """The chat completion for a request's body."""
        return self._model.completion(body["messages"], _tools(body))

    def stream(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The same in chunks."""
        return self._model.stream(body["messages"], _tools(body))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        try:
            if body.get("stream"):
                chunks = self.stream(body)
                return httpx2.Response(
                    200,
                    headers={"content-type": "text/event-stream"},
                    stream=_Events(chunks, request),
                    request=request,
                )
            completion = self.completion(body)
        except ModelError as error:
            return _refusal(request, error.status_code, str(error), error.code, error.headers)
        except (TooManyCalls, ScenarioOver) as error:
            return _refusal(request, 400, str(error))
        except OSError as error:
            raise _failure(error, request) from error
        # Lone surrogates are escaped by json, as they are in what real servers send.
        return httpx2.Response(
            200,
            headers={"content-type": "application/json"},
            content=json.dumps(completion).encode(),
            request=request,
        )


def _tools(body: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The tools that may be called: none where the request says so."""
    return None if body.get("tool_choice") == "none" else body.get("tools")


GO_ON = "Go on."
"""What a caller says who goes on from the messages of a run that is over."""


class Recorder:
    """Stands in for a model, to see what a peer sends where a caller goes on from a run that is over.

    That is what the messages of that run are worth, and a peer may put them right only then.

    Attributes:
        messages: those of the last request.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    @property
    def history(self) -> list[dict[str, Any]] | None:
        """The messages without `GO_ON`; None where there are no others."""
        is_asked = bool(self.messages) and self.messages[-1]["role"] == "user"
        return (self.messages[:-1] if is_asked else self.messages) or None

    def completion(self, messages: list[dict[str, Any]], _tools: object) -> dict[str, Any]:
        """Keep the messages, and say something."""
        self.messages = messages
        message = {"role": "assistant", "content": "seen"}
        return {
            "id": "recorded",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [
                {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }


class _Events(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    """Chunks as server-sent events; a stream that breaks off has no end mark."""

    def __init__(self, chunks: Iterator[dict[str, Any]], request: httpx2.Request) -> None:
        self._chunks = chunks
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        is_finished = False
        try:
            for chunk in self._chunks:
                choices = chunk["choices"]
                is_finished = is_finished or bool(choices and choices[0]["finish_reason"])
                yield f"data: {json.dumps(chunk)}\n\n".encode()
        except OSError as error:
            raise _failure(error, self._request) from error
        if is_finished:
            yield b"data: [DONE]\n\n"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in self:
            yield event


def _refusal(
    request: httpx2.Request,
    status: int,
    text: str,
    code: str | None = None,
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    error = {"message": text, "type": "error", "param": None, "code": code}
    return httpx2.Response(status, headers=headers, json={"error": error}, request=request)


def _failure(error: OSError, request: httpx2.Request) -> httpx2.TransportError:
    """What the HTTP client raises where a connection fails so."""
    if isinstance(error, TimeoutError):
        return httpx2.ReadTimeout(str(error), request=request)
    return httpx2.ReadError(str(error), request=request)


def async_http(model: Model | Recorder) -> httpx2.AsyncClient:
    """An async HTTP client that reaches only the scripted model."""
    return httpx2.AsyncClient(transport=Wire(model))


def http(model: Model | Recorder, wire_type: type[Wire] = Wire) -> httpx2.Client:
    """The same without an event loop."""
    return httpx2.Client(transport=wire_type(model))


def async_client(model: Model | Recorder) -> openai.AsyncOpenAI:
    """An async OpenAI client with its defaults, retries included."""
    return openai.AsyncOpenAI(api_key=KEY, base_url=URL, http_client=async_http(model))
