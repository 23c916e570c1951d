"""Models for `Loop`, by name. An SDK is imported when a model of it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.errors import OptionError

__all__ = ["KNOWN_MODELS", "open_model"]

KNOWN_MODELS = ("local", "local:PATH.gguf", "openai:NAME")
"""The forms of a model's name."""


def open_model(spec: str, **opts: Any) -> Any:
    """Open a model by name.

    Args:
        spec: ``local`` (the default weights of the extra ``local``), ``local:PATH.gguf`` (custom
            weights), or ``openai:NAME`` (a model of OpenAI, or with ``base_url=`` of any server
            that implements OpenAI's chat completions).
        **opts: see `LocalModel` and `OpenAIModel`.

    Returns:
        A callable with a ``close()``.

    Raises:
        OptionError: the name is unknown, or the model does not have an option.
        MissingExtraError: a package that the model needs is not installed.
    """
    provider, colon, name = spec.partition(":")
    if provider not in _OPENERS:
        raise OptionError(f"model: {spec!r} is unknown; known are {', '.join(KNOWN_MODELS)}")
    if colon and not name:
        raise OptionError(f"model: {spec!r} has no name after the colon")
    return _OPENERS[provider](name, **opts)


def _open_local(
    name: str, *, base_url: str | None = None, api_key: str | None = None, **opts: Any
) -> Any:
    from treadle.providers.local import LocalModel  # noqa: PLC0415 - an extra

    for option, value in (("base_url", base_url), ("api_key", api_key)):
        if value is not None:
            raise OptionError(f"{option}: a local model has none; use it with openai:NAME")
    return LocalModel(name or None, **opts)


def _open_openai(name: str, **opts: Any) -> Any:
    from treadle.providers.openai import OpenAIModel  # noqa: PLC0415 - an extra

    return OpenAIModel(name, **opts)


_OPENERS: Mapping[str, Callable[..., Any]] = {"local": _open_local, "openai": _open_openai}
"""By the first word of a model's name."""
