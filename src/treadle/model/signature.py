"""The signature of a model: whether it takes options one by one, as one dict, or none."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any, NamedTuple, TypeAlias

from treadle.effects import Mode, call_mode, generator_mode
from treadle.errors import OptionError, did_you_mean
from treadle.messages import JSONDict
from treadle.model.info import OPTIONS
from treadle.shown import callable_name

Send: TypeAlias = Callable[[list[JSONDict], dict[str, Any]], Any]
"""Takes messages and options, calls a model with them, and returns what it returns."""

_OPTS_NAMES = frozenset({"opts", "options", "kwargs", "params"})
_OPTION_NAMES = OPTIONS | {"tools", "tool_choice", "model"}
"""OpenAI's names of options that a backend may take one by one."""


class Signature(NamedTuple):
    """How a callable is called; a builtin without a signature is taken to have the defaults.

    Args:
        mode: see `Mode`.
        takes_messages: whether there is a parameter for the messages.
        is_named: whether they are passed by the name ``messages``.
        second: the second positional parameter; None if there is none.
        takes_any: whether it takes options of any name.
        known: the names of its other parameters.
        lacking: the names of tool options that need a value, each with None.
    """

    mode: Mode
    takes_messages: bool = True
    is_named: bool = False
    second: inspect.Parameter | None = None
    takes_any: bool = True
    known: frozenset[str] = frozenset()
    lacking: Mapping[str, None] = {}


def adapted(
    fn: Callable[..., Any], signature: Signature, llm_opts: Mapping[str, Any]
) -> tuple[Send, frozenset[str] | None]:
    """Adapt a callable to ``call(messages, opts)``.

    Returns:
        The call, and the names of the options that it takes; None if it takes any.

    Raises:
        OptionError: it takes no messages, or not an option of ``llm_opts``.
    """
    _, takes_messages, is_named, second, takes_any, known, lacking = signature
    if not takes_messages:
        raise OptionError(f"llm_send_fn: {callable_name(fn)} takes no messages")
    if second is not None and _is_opts(second, llm_opts):
        return fn, None
    if not takes_any:
        check_options(llm_opts, known)
    elif not (is_named or lacking):
        return lambda messages, opts: fn(messages, **opts), None

    def call(messages: list[JSONDict], opts: dict[str, Any]) -> Any:
        taken = opts if takes_any else {name: opts[name] for name in opts if name in known}
        if lacking:
            taken = {**lacking, **taken}
        return fn(messages=messages, **taken) if is_named else fn(messages, **taken)

    return call, None if takes_any else known


def check_options(options: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raise an `OptionError` for an option that a callable does not take."""
    for option in options:
        if option not in known:
            hint = did_you_mean(option, sorted(known))
            raise OptionError(f"llm_opts: llm_send_fn does not take {option!r}{hint}")


def _is_opts(second: inspect.Parameter, llm_opts: Mapping[str, Any]) -> bool:
    """Whether the second parameter takes all options as one dict, not a single option."""
    if second.name in _OPTS_NAMES:
        return True
    is_one = second.name in _OPTION_NAMES or second.name in llm_opts
    return not is_one and second.default is second.empty


def signature_of(fn: Callable[..., Any]) -> Signature:
    """The signature of a callable. It is cached, since reading it takes as long as half an iteration."""
    key = _key_of(fn)
    if key is None:
        return _read(fn)
    if key not in _signatures:
        if len(_signatures) >= MAX_SIGNATURES:
            _signatures.clear()
        _signatures[key] = _read(fn)
    return _signatures[key]


_signatures: dict[Any, Signature] = {}
MAX_SIGNATURES = 256
"""The maximum number of cached signatures."""


def _key_of(fn: Any) -> Any:
    """Equal for callables of the same signature, such as closures of each run; None if that is unknown."""
    if type(fn) is functools.partial:
        key = _key_of(fn.func)
        return None if key is None or vars(fn) else (key, len(fn.args), *fn.keywords)
    plain, marks = (fn.__func__ if isinstance(fn, MethodType) else fn), getattr(fn, "__dict__", ())
    if (
        type(plain) is not FunctionType
        and _MARKER not in marks
        and not hasattr(fn, "__signature__")
    ):
        plain = next(
            vars(kind)["__call__"] for kind in type(fn).__mro__ if "__call__" in vars(kind)
        )
    # A wrapper has the signature of the function that it wraps.
    if type(plain) is not FunctionType or vars(plain) or "__wrapped__" in marks:
        return None
    return plain.__code__, plain is fn, len(plain.__defaults__ or ()), *(plain.__kwdefaults__ or ())


_MARKER = "_is_coroutine_marker"
"""The attribute by which ``inspect.markcoroutinefunction`` marks an object."""


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
