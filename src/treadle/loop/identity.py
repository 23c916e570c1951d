"""Which model a backend asks, and who serves it, as far as that can be seen from outside."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

_PROVIDERS: Mapping[str, str] = {
    "anthropic": "anthropic",
    "cohere": "cohere",
    "google": "gcp.gen_ai",
    "groq": "groq",
    "mistralai": "mistral_ai",
    "openai": "openai",
}
"""The values of ``gen_ai.provider.name`` in OpenTelemetry's conventions, by the package of the SDK."""


def identity(fn: Any, opts: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Tell the model and the provider of a backend.

    Args:
        fn: the backend: a function, a method of a client, a partial of one, or an object that may say it
            itself, as ``model`` and ``provider``.
        opts: the options of every request; a ``model`` there comes first.

    Returns:
        The model as it is asked for, and the provider in OpenTelemetry's words; each None where it cannot be
        seen.
    """
    model: Any = opts.get("model")
    while isinstance(fn, functools.partial):
        model = model or fn.keywords.get("model")
        fn = fn.func
    model = model or _said(fn, "model")
    provider = _said(fn, "provider")
    if provider is None:
        owner = getattr(fn, "__self__", fn)
        module = _said(type(owner), "__module__") or ""
        provider = _PROVIDERS.get(module.partition(".")[0])
    return model if isinstance(model, str) else None, provider


def _said(holder: Any, name: str) -> str | None:
    try:
        said = getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - a property of somebody else's
        return None
    return said if isinstance(said, str) and said else None
