"""The model as a callable: how it is called is decided once, and whatever it returns becomes a response."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextvars import Context, copy_context
from typing import Any, TypeAlias

from treadle.effects import InContext, Mode, Then, call_mode, is_awaitable
from treadle.errors import OptionError, did_you_mean
from treadle.messages import (
    ATOMS,
    Chunk,
    JSONDict,
    NotAResponseError,
    Response,
    copy_json,
    to_chunk,
    to_response,
)
from treadle.model.info import ModelInfo, model_info

LLMSendFn: TypeAlias = Callable[..., Any]
"""Takes ``(messages)``, ``(messages, opts)`` or ``(messages, **opts)``; see `ModelClient`."""

_OPTS_NAMES = frozenset({"opts", "options", "kwargs", "params"})
_OPTION_NAMES = frozenset(
    {
        "tools",
        "tool_choice",
        "model",
        "temperature",
        "top_p",
        "max_tokens",
        "stream",
        "stop",
        "seed",
    }
)
"""OpenAI's names of options that a backend may take one by one."""


class ModelClient:
    """A model, of whatever form the callable is.

    Args:
        fn: sync or async, takes messages alone, or with options as one dict or as keywords; messages may
            be keyword-only, as those of OpenAI's client are.
        llm_opts: options that the user wants every request to have.

    Raises:
        OptionError: it is not callable, takes no messages, or does not take an option of ``llm_opts``.
    """

    __slots__ = ("_call", "_fn", "_has_nested", "_opts", "mode")

    def __init__(self, fn: LLMSendFn, llm_opts: Mapping[str, Any]) -> None:
        if not callable(fn):
            raise OptionError(f"llm_send_fn: expected a callable, got {type(fn).__name__}")
        self.mode: Mode = call_mode(fn)
        self._opts: dict[str, Any] = copy_json(dict(llm_opts))
        self._has_nested = any(value.__class__ not in ATOMS for value in self._opts.values())
        self._call = _adapted(fn, self._opts)
        self._fn = fn

    def model_info(self) -> ModelInfo:
        """Which model is asked for, of whom, and how, as far as it can be seen."""
        return model_info(self._fn, self._opts)

    def exchange(
        self, messages: list[JSONDict], tools: list[JSONDict], *, uses_tools: bool = True
    ) -> ModelRequest:
        """Make one request, ready to be sent.

        Args:
            messages: what to send.
            tools: the tools in OpenAI's form; where there are none, the request has no such key.
            uses_tools: whether the model may call them; else they are there and disabled, since some
                servers refuse a history with calls where no tools are.
        """
        # One that changes what it is handed changes its own copy.
        opts: dict[str, Any] = copy_json(self._opts) if self._has_nested else {**self._opts}
        if tools:
            opts.setdefault("tools", list(tools))
        if not uses_tools and "tools" in opts:
            opts["tool_choice"] = "none"
        return ModelRequest(self._call, messages, opts)


class ModelRequest:
    """One request to a model and its answer, at once or piece by piece.

    Its methods are what `Call` effects call: all that they return is data, so that it can be recorded.
    """

    __slots__ = ("_context", "_iterator", "_messages", "_opts", "_send", "chunk_mode")

    def __init__(self, send: Send, messages: list[JSONDict], opts: dict[str, Any]) -> None:
        self._send = send
        self._messages = messages
        self._opts = opts
        self._iterator: Any = None
        self._context: Context | None = None
        self.chunk_mode = _THREAD

    def open(self) -> Any:
        """Send the request.

        Returns:
            The response; or None where the answer comes in pieces; or an awaitable of either.
        """
        raw = self._send(self._messages, self._opts)
        return Then(raw, self._taken) if is_awaitable(raw) else self._taken(raw)

    async def open_async(self) -> Response | None:
        """As `open`, where the backend is async for sure: to await this takes a third of the time."""
        return self._taken(await self._send(self._messages, self._opts))

    def _taken(self, raw: Any) -> Response | None:
        if raw.__class__ in _WHOLE:  # as nearly always; to ask for iterators takes a microsecond
            return to_response(raw)
        is_iterator = isinstance(raw, AsyncIterator)
        if is_iterator or hasattr(type(raw), "__aiter__"):  # pyright: ignore[reportUnknownArgumentType]
            # An iterator goes as it is: OpenAI's gives another in __aiter__, which closes nothing.
            self._iterator = raw if is_iterator else aiter(raw)
            self.chunk_mode = Mode.ASYNC
            return None
        if isinstance(raw, Iterator):
            self._iterator = raw
            return None
        return to_response(raw)

    def next_chunk(self) -> Any:
        """Take the next piece; None, or an awaitable of it, where there is no more."""
        # A generator may hold something open from one piece to the next, such as a span, and each piece may be
        # asked for in another thread or task: its context variables are its own, from the first to the last.
        if self.chunk_mode is Mode.ASYNC:
            return self._next_later()
        if self._context is None:
            self._context = copy_context()
        raw = self._context.run(next, self._iterator, _END)
        return None if raw is _END else to_chunk(raw)

    async def _next_later(self) -> Chunk | None:
        if self._context is None:  # copied where it is awaited: a driver may await it elsewhere
            self._context = copy_context()
        raw = await InContext(_next_of(self._iterator), self._context)
        return None if raw is _END else to_chunk(raw)

    def close(self) -> Any:
        """Let go of an answer that is not read to its end; None, or an awaitable of it."""
        if self.chunk_mode is Mode.ASYNC:
            return self._close_later()
        self._closed()
        return None

    async def _close_later(self) -> None:
        closed = self._closed()
        if is_awaitable(closed):
            await (closed if self._context is None else InContext(closed, self._context))

    def _closed(self) -> Any:
        for name in ("aclose", "close"):
            close = getattr(self._iterator, name, None)
            if callable(close):
                return close() if self._context is None else self._context.run(close)
        return None


async def _next_of(iterator: AsyncIterator[Any]) -> Any:
    # Not `anext(iterator, _END)`, which ends the interpreter where `__anext__` raises at once (CPython 3.11).
    try:
        return await iterator.__anext__()
    except StopAsyncIteration:
        return _END


_END = object()
_THREAD = Mode.THREAD  # members are looked up slowly
_WHOLE = frozenset({dict, str, Response})
"""Classes of answers that come at once, and are no iterators."""


Send: TypeAlias = Callable[[list[JSONDict], dict[str, Any]], Any]


def _adapted(fn: LLMSendFn, llm_opts: Mapping[str, Any]) -> Send:
    """Make ``call(messages, opts)`` of a callable, by its signature."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not tell: the common form
        return lambda messages, opts: fn(messages, **opts)
    positional = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    by_name = {p.name for p in parameters if p.kind in {p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD}}
    if not positional and "messages" not in by_name:
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            return lambda messages, opts: fn(messages, **(opts if takes_any else {}))
        raise OptionError(f"llm_send_fn: {fn!r} takes no messages")
    if len(positional) > 1 and _is_opts(positional[1], llm_opts):
        return fn
    first = positional[0].name if positional else "messages"
    known = by_name - {first}
    if not takes_any:
        for option in llm_opts:
            if option not in known:
                hint = did_you_mean(option, sorted(known))
                raise OptionError(f"llm_opts: llm_send_fn does not take {option!r}{hint}")

    def call(messages: list[JSONDict], opts: dict[str, Any]) -> Any:
        taken = opts if takes_any else {name: opts[name] for name in opts if name in known}
        return fn(messages, **taken) if positional else fn(messages=messages, **taken)

    return call


def _is_opts(second: inspect.Parameter, llm_opts: Mapping[str, Any]) -> bool:
    """Whether the second parameter takes all options as one dict, not one of them."""
    if second.name in _OPTS_NAMES:
        return True
    is_one = second.name in _OPTION_NAMES or second.name in llm_opts
    return not is_one and second.default is second.empty


__all__ = ["LLMSendFn", "ModelClient", "ModelRequest", "NotAResponseError"]
