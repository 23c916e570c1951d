"""Models to drive the loop with. No SDK is imported before a model of it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from treadle.errors import OptionError

if TYPE_CHECKING:
    from treadle.providers.local import LocalModel
    from treadle.providers.openai import OpenAIModel

__all__ = ["KNOWN_MODELS", "open_model"]

KNOWN_MODELS = ("local", "local:PATH.gguf", "openai:NAME")
"""The forms of a model's spec."""


def open_model(spec: str, **opts: Any) -> Any:
    """Make a backend for `Loop` of a model's name.

    Args:
        spec: ``local`` (the small model that the extra brings), ``local:PATH.gguf`` (weights of
            one's own), or ``openai:NAME`` (a model of OpenAI, or with ``base_url=`` of any server
            that speaks its chat completions).
        **opts: see `LocalModel` and `OpenAIModel`.

    Returns:
        A callable with a ``close()``.

    Raises:
        OptionError: an unknown spec, or an option that the model does not take.
        MissingExtraError: what the model needs is not installed.
    """
    provider, colon, name = spec.partition(":")
    opener = _OPENERS.get(provider)
    if opener is None:
        raise OptionError(f"model: {spec!r} is unknown; known are {', '.join(KNOWN_MODELS)}")
    if colon and not name:
        raise OptionError(f"model: {spec!r} names no model after the colon")
    return opener(name, opts)


def _open_local(path: str, opts: dict[str, Any]) -> LocalModel:
    from treadle.providers.local import LocalModel  # noqa: PLC0415 - brings an extra

    if opts.pop("base_url", None) is not None:
        raise OptionError("base_url: a local model has none; it goes with openai:NAME")
    return LocalModel(path or None, **opts)


def _open_openai(name: str, opts: dict[str, Any]) -> OpenAIModel:
    from treadle.providers.openai import OpenAIModel  # noqa: PLC0415 - brings an extra

    return OpenAIModel(name, **opts)


_OPENERS: Mapping[str, Callable[[str, dict[str, Any]], Any]] = {
    "local": _open_local,
    "openai": _open_openai,
}
