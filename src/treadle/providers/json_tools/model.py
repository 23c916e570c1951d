"""`JSONToolModel`: a model without native tool use, for `Loop`."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from treadle.effects import Mode, is_awaitable
from treadle.errors import OptionError, one_of
from treadle.messages import JSONDict, Response, for_sdk
from treadle.model import LLMSendFn, Model, ModelClient, backend
from treadle.providers.json_tools.conversation import plain_messages
from treadle.providers.json_tools.offer import Offer, offer_of
from treadle.providers.json_tools.reply import translated

Constraint: TypeAlias = Literal["json_schema", "json_object"]
_READ = ("tools", "tool_choice", "parallel_tool_calls")
"""The options that become part of the prompt."""


class JSONToolModel:
    """A model that calls tools by writing JSON, around one without native tool use.

    The tools are described in the system message, and the response is constrained to JSON by ``response_format``,
    where the server supports it; a response that is not constrained is read as well as it can be. Past calls and
    results are sent as plain messages. ``tool_choice`` is respected. Text of an answer is streamed as it arrives;
    calls arrive at the end. A request without tools passes through.

    Args:
        model: what is called: any model that `Loop` takes, sync or async, whole or streamed, or the name of one.
        response_format: the type of the ``response_format`` that is sent, in OpenAI's form. ``"json_schema"``
            constrains the model to a call of an offered tool or an answer, ``"json_object"`` to JSON of any form,
            and None sends nothing, for a server that supports neither. It is not sent to a callable that does not
            take the option.
        parallel_tool_calls: whether the model may call several tools at once, if the request does not say. Small
            models follow the form of one call more reliably.

    Raises:
        OptionError: ``model`` is not a model, or ``response_format`` is unknown.
        MissingExtraError: as `backend`.

    Attributes:
        model, provider, opts: the name, the provider and the options of the model that is called, if known.
    """

    accepts_tool_result_parts = True
    """Results become messages of the user, which may have content parts."""

    def __init__(
        self,
        model: Model,
        *,
        response_format: Constraint | None = "json_schema",
        parallel_tool_calls: bool = False,
    ) -> None:
        if response_format not in ("json_schema", "json_object", None):
            expected = one_of(("json_schema", "json_object", None))
            raise OptionError(f"response_format: expected {expected}, got {response_format!r}")
        self._fn: LLMSendFn = backend(model) if isinstance(model, str) else model
        self._client = ModelClient(self._fn, {})
        self.model, self.provider, self.opts = self._client.model_info()
        takes_it = self._client.takes("response_format")
        self._response_format: Constraint | None = response_format if takes_it else None
        self._is_parallel = parallel_tool_calls

    def __call__(self, messages: list[JSONDict], **opts: Any) -> Any:
        """Send one request.

        Args:
            messages: the conversation, as OpenAI's chat dicts.
            **opts: options of this request.

        Returns:
            The response, an iterator of its chunks, or an awaitable of either, as the model.

        Raises:
            OptionError: the model does not take an option, or ``tool_choice`` names none of the tools.
            Exception: any exception of the model.
        """
        offer = offer_of(opts, is_parallel=self._is_parallel)
        changes = {name: value for name, value in opts.items() if name not in _READ}
        if offer is not None:
            changes.pop("response_format", None)
            if self._response_format is not None:
                changes["response_format"] = constraint(self._response_format, offer)
        messages = plain_messages(for_sdk(messages, self.origin), offer)
        changes = self._client.opts_of(changes)
        if self._client.mode is Mode.ASYNC:
            return self._answer(messages, changes, offer)
        raw = self._client.send(messages, changes)
        return _awaited(raw, offer) if is_awaitable(raw) else _read(raw, offer)

    async def _answer(self, messages: list[JSONDict], opts: JSONDict, offer: Offer | None) -> Any:
        raw = self._client.send(messages, opts)
        return _read(await raw if is_awaitable(raw) else raw, offer)

    @property
    def origin(self) -> str:
        """The server of the model that is called; see `treadle.messages.for_sdk`."""
        return self._client.origin

    @property
    def endpoint_url(self) -> str | None:
        """The base URL of the model that is called, if known: the response cache distinguishes models by it."""
        url: object = getattr(self._fn, "endpoint_url", None)
        return url if isinstance(url, str) else None

    def cost_of(self, response: Response) -> float | None:
        """The cost of a response in US dollars, if the model that is called knows it; else None."""
        return None if self._client.cost_of is None else self._client.cost_of(response)

    async def aclose(self) -> None:
        """Close the model's connections of the running event loop, if it has any."""
        close = getattr(self._fn, "aclose", None)
        if callable(close):
            await close()  # pyright: ignore[reportGeneralTypeIssues]

    def close(self) -> None:
        """Close the model, if it has anything to close."""
        close = getattr(self._fn, "close", None)
        if callable(close):
            close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fn!r})"


def constraint(kind: Constraint, offer: Offer) -> JSONDict:
    """The ``response_format`` for what a model may respond with."""
    if kind == "json_object":
        return {"type": kind}
    return {"type": kind, "json_schema": {"name": "response", "schema": offer.schema()}}


async def _awaited(raw: Any, offer: Offer | None) -> Any:
    return _read(await raw, offer)


def _read(raw: Any, offer: Offer | None) -> Any:
    return raw if offer is None else translated(raw, offer)
