"""The local model as a provider."""

from __future__ import annotations

from typing import Any

from treadle.errors import MissingExtraError, OptionError
from treadle.model.registry import Provider


def _open(
    name: str, *, base_url: str | None = None, api_key: str | None = None, **opts: Any
) -> Any:
    from treadle.providers.local.model import LocalModel  # noqa: PLC0415 - only if it is used

    for option, value in (("base_url", base_url), ("api_key", api_key)):
        if value is not None:
            raise OptionError(f"{option}: a local model has none; use it with openai:NAME")
    return LocalModel(name or None, **opts)


def _missing() -> str | None:
    from treadle.providers.local.engine import find_weights  # noqa: PLC0415 - only if it is asked for

    try:
        find_weights()
    except MissingExtraError as error:
        return error.command
    return None


PROVIDER = Provider(
    "local",
    "llama.cpp in this process",
    _open,
    forms=("local", "local:PATH.gguf"),
    package="xllamacpp",
    extra="local",
    needs_key=False,
    check=_missing,
)
