"""The model, provider and request options of a callable, as far as it shows them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from treadle.messages import is_dict
from treadle.messages.decode import text_or_none
from treadle.messages.ending import words_of

LLMSendFn: TypeAlias = Callable[..., Any]
"""A model: a callable that takes ``(messages)``, ``(messages, opts)`` or ``(messages, **opts)``."""

Model: TypeAlias = LLMSendFn | str
"""A model, or its name, such as ``anthropic:claude-sonnet-5-5``; see `treadle.model.backend`."""

_PROVIDERS: Mapping[str, str] = {
    **{name: name for name in ("anthropic", "cohere", "groq", "ollama", "openai")},
    "google": "gcp.gen_ai",
    "mistralai": "mistral_ai",
}
"""The values of ``gen_ai.provider.name`` in OpenTelemetry's conventions, by the package of the SDK."""

OPTIONS = words_of(
    """
    frequency_penalty max_completion_tokens max_tokens n presence_penalty reasoning_effort seed stop stream
    temperature top_k top_p
    """
)
"""OpenAI's options for the response. No other option is read: a header may hold a secret."""


class ModelInfo(NamedTuple):
    """The model and the provider of a callable, if known, and its options for every response."""

    model: str | None
    provider: str | None
    request: Mapping[str, Any]


def model_info(fn: Any, opts: Mapping[str, Any]) -> ModelInfo:
    """The model of a callable, as its attributes show it; ``opts`` take precedence over the options there."""
    fn, _, keywords = without_partials(fn)
    own = attribute_of(fn, "opts")
    request: dict[str, Any] = {**(own if is_dict(own) else {}), **keywords, **opts}
    return ModelInfo(
        text_or_none(request.get("model")) or text_or_none(attribute_of(fn, "model")) or None,
        text_or_none(attribute_of(fn, "provider")) or _PROVIDERS.get(package_of(fn)),
        {name: request[name] for name in sorted(OPTIONS & request.keys())},
    )


def host_of(url: str) -> str:
    """The host of a URL, with its port if that is not the one of its scheme."""
    host = url.partition("://")[2].partition("/")[0].partition("?")[0].rpartition("@")[2].lower()
    return host.removesuffix(":443" if url.startswith("https:") else ":80")


def without_partials(fn: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    """The callable within partials, and their arguments; the keywords of the outer ones take precedence."""
    filled, keywords = list[Any](), dict[str, Any]()
    while isinstance(fn, functools.partial):
        filled += fn.args
        keywords = {**fn.keywords, **keywords}
        fn = fn.func
    return fn, filled, keywords


def is_sdk_method(fn: Any) -> bool:
    """Whether a callable is a method of a provider's SDK."""
    return attribute_of(fn, "__self__") is not None and package_of(fn) in _PROVIDERS


def url_of(fn: Any) -> str | None:
    """The base URL that a callable declares, or that of the client whose method it is; None if there is none."""
    url = attribute_of(fn, "endpoint_url")
    if not isinstance(url, str):
        url = attribute_of(attribute_of(attribute_of(fn, "__self__"), "_client"), "base_url")
    return None if url is None else str(url)


def package_of(fn: Any) -> str:
    """The package of a callable, or of the object of which it is a method."""
    owner = attribute_of(fn, "__self__")
    module = str(attribute_of(type(fn if owner is None else owner), "__module__"))
    return module.partition(".")[0]


def attribute_of(holder: Any, name: str) -> Any:
    """An attribute of another library's object; None if it is missing or raises."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - a property may raise anything
        return None
