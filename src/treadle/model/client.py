"""The model as a callable: its signature is inspected once, and decides how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import FunctionType
from typing import Any

from treadle.effects import Mode, call_mode, generator_mode
from treadle.errors import OptionError, did_you_mean
from treadle.fast_dataclass import light_dataclass
from treadle.messages import JSONDict, Response, copy_json, is_mapping, read_only
from treadle.messages.decode import text_or_none
from treadle.model.info import (
    OPTIONS,
    LLMSendFn,
    ModelInfo,
    attribute_of,
    host_of,
    is_sdk_method,
    model_info,
    package_of,
    url_of,
    without_partials,
)
from treadle.model.registry import check_model
from treadle.shown import callable_name


class ModelClient:
    """A model, with any of the supported signatures.

    Args:
        fn: sync or async, takes messages alone, or with options as one dict or as keywords; ``messages`` may
            be keyword-only, as in OpenAI's client.
        llm_opts: options for every request.

    Raises:
        OptionError: it is not callable, takes no messages, or does not take an option of ``llm_opts``.

    Attributes:
        mode: how it is called.
        options: the options of every request.
        takes_parts: whether it takes content parts in tool messages; its attribute ``accepts_tool_result_parts``.
        provider: the provider of a response that names none; None if the class of the model has none.
        length_option: the option that limits the tokens of a response; None if the class of the model has none.
        cost_of: takes a response and returns US dollars; None if the model has no such method.
    """

    def __init__(self, fn: LLMSendFn, llm_opts: Mapping[str, Any]) -> None:
        check_model(fn)
        self._fn = self._call = fn
        self._plain, self._filled, _ = without_partials(fn)
        if is_sdk_method(self._plain):
            # Few runs need it.
            from treadle.model.wrong_model import check_method, checked_answers  # noqa: PLC0415

            check_method(self._plain)
            self._call = checked_answers(fn)
        self._signature = signature = signature_of(fn)
        self.mode = signature.mode
        self.options: Mapping[str, Any] = read_only(dict(llm_opts))
        if not signature.takes_messages:
            raise OptionError(f"llm_send_fn: {callable_name(fn)} takes no messages")
        second = signature.second  # it takes all options as one dict, or is a single option
        self._takes_dict = second is not None and (
            second.name in _OPTS_NAMES
            or (second.default is second.empty and second.name not in _OPTION_NAMES | {*llm_opts})
        )
        self._takes_any = self._takes_dict or signature.takes_any
        self._check_options(self.options)
        self.takes_parts = getattr(self._plain, "accepts_tool_result_parts", False) is True
        # Attributes of the class: an object that makes up attributes, such as a mock, has none.
        kind: Any = self._plain.__class__
        self.provider = text_or_none(getattr(kind, "provider", None)) or None
        self.length_option = text_or_none(getattr(kind, "length_option", None))
        is_priced = callable(getattr(kind, "cost_of", None))
        self.cost_of: Callable[[Response], float | None] | None = (
            attribute_of(self._plain, "cost_of") if is_priced else None
        )

    def model_info(self) -> ModelInfo:
        """The model, the provider and the request options, if the callable shows them."""
        return model_info(self._fn, self.options)

    @property
    def origin(self) -> str:
        """The server of the model, such as ``openai@api.openai.com``, or the name of the callable.

        A model may declare it: by the attribute ``origin``, or by ``provider`` and ``endpoint_url``, the base URL.
        """
        fn, url = self._plain, url_of(self._plain)
        declared, dialect = (text_or_none(attribute_of(fn, n)) for n in ("origin", "provider"))
        if is_sdk_method(fn):
            dialect = package_of(fn)
        if not declared and dialect and url and "://" in url:
            return f"{dialect}@{host_of(url)}"
        return declared or f"{attribute_of(fn, '__module__')}.{callable_name(fn)}"

    @property
    def name(self) -> str:
        """The name of the model, or of the callable if it does not show its model."""
        return self.model_info().model or callable_name(self._fn)

    def takes(self, option: str) -> bool:
        """Whether it takes an option of this name."""
        return self._takes_any or option in self._signature.known

    def identity(self) -> list[Any]:
        """The attributes by which the callable identifies its model."""
        info, fn = self.model_info(), self._plain
        opts = attribute_of(fn, "opts")
        kind = fn if hasattr(fn, "__qualname__") else fn.__class__
        names = [attribute_of(kind, "__module__"), attribute_of(kind, "__qualname__"), url_of(fn)]
        if info.model is None:  # objects of one class may differ in anything
            holders = fn, attribute_of(fn, "__self__")
            names += [dict(getattr(holder, "__dict__", ())) for holder in holders]
        asked = dict(opts if is_mapping(opts) else info.request)
        return [info.provider, info.model, asked, self._filled, *names]

    def opts_of(
        self, options: Mapping[str, Any], tools: Sequence[JSONDict] = (), tool_choice: Any = None
    ) -> dict[str, Any]:
        """Copies of the options that the model receives with one request, with the tools in OpenAI's form."""
        if options is not self.options:
            self._check_options(options)
        opts: dict[str, Any] = copy_json({**options}) if options else {}
        if tools:
            opts.setdefault("tools", tools)
        if tool_choice is not None and "tools" in opts:
            opts["tool_choice"] = tool_choice
        return opts

    def send(self, messages: list[JSONDict], opts: dict[str, Any]) -> Any:
        """Call the model, and return what it returns. It may change the messages and the options."""
        if self._takes_dict:
            return self._call(messages, opts)
        signature = self._signature
        if not signature.takes_any:
            opts = {name: opts[name] for name in opts if name in signature.known}
        if signature.lacking:
            opts = {**signature.lacking, **opts}
        if signature.is_named:
            return self._call(messages=messages, **opts)
        return self._call(messages, **opts)

    def _check_options(self, options: Mapping[str, Any]) -> None:
        for option in options:
            if not self.takes(option):
                hint = did_you_mean(option, sorted(self._signature.known))
                raise OptionError(f"llm_opts: llm_send_fn does not take {option!r}{hint}")


def check_no_tools(where: str, options: Mapping[str, Any]) -> None:
    """Raise an `OptionError` if the options of a request have tools, which would replace those of the loop."""
    if "tools" in options:
        raise OptionError(
            f"{where}: tools belong in tools= of the loop, and tools that run at the provider in options of the "
            "model, such as extra_body={'tools': [...]}"
        )


@light_dataclass(frozen=True)
class Signature:
    """How a callable is called; a builtin without a signature is taken to have the defaults."""

    mode: Mode
    takes_messages: bool = True
    is_named: bool = False
    """Whether the messages are passed by the name ``messages``."""
    second: inspect.Parameter | None = None
    """The second positional parameter."""
    takes_any: bool = True
    """Whether it takes options of any name."""
    known: frozenset[str] = frozenset()
    """The names of its parameters, without the messages."""
    lacking: Mapping[str, None] = field(default_factory=dict[str, None])
    """The names of tool options that need a value."""


_OPTS_NAMES = frozenset({"opts", "options", "kwargs", "params"})
_OPTION_NAMES = OPTIONS | {"tools", "tool_choice", "model"}
"""OpenAI's names of options that a model may take one by one."""


_signatures: dict[Any, Signature] = {}
MAX_SIGNATURES = 256
"""The maximum number of cached signatures."""


def signature_of(fn: Callable[..., Any]) -> Signature:
    """The signature of a callable; that of a function is cached by its code, as models are often closures."""
    if type(fn) is not FunctionType or vars(fn):  # a wrapper has that of what it wraps
        return _read(fn)
    key = fn.__code__, len(fn.__defaults__ or ()), *(fn.__kwdefaults__ or ())
    if key not in _signatures:
        if len(_signatures) >= MAX_SIGNATURES:
            _signatures.clear()
        _signatures[key] = _read(fn)
    return _signatures[key]


def _read(fn: Callable[..., Any]) -> Signature:
    mode = generator_mode(fn) or call_mode(fn)  # reading the stream of a generator may block
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return Signature(mode)
    positional = [p for p in parameters if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    by_name = {p.name for p in parameters if p.kind in {p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD}}
    is_named = not positional and "messages" in by_name
    known = frozenset(by_name - {positional[0].name if positional else "messages"})
    kinds = {p.kind for p in parameters}
    # A request without tools has neither of these; a parameter without a default needs a value.
    names = known & {"tools", "tool_choice"}
    return Signature(
        mode,
        takes_messages=is_named or bool(positional) or inspect.Parameter.VAR_POSITIONAL in kinds,
        is_named=is_named,
        second=positional[1] if len(positional) > 1 else None,
        takes_any=inspect.Parameter.VAR_KEYWORD in kinds,
        known=known,
        lacking={p.name: None for p in parameters if p.name in names and p.default is p.empty},
    )
