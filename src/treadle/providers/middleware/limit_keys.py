"""Which requests share a limit: those to a provider, or to a model of it."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from treadle.errors import OptionError
from treadle.model import ModelRequest

Per: TypeAlias = Literal["provider", "model"]
"""Whether the models of a provider share a limit, or each model has its own."""


def check_per(owner: str, per: Per) -> Per:
    """Check the option ``per``.

    Raises:
        OptionError: it is neither.
    """
    if per not in get_args(Per):
        raise OptionError(f'{owner}: per: expected "provider" or "model", got {per!r}')
    return per


def key_of(request: ModelRequest, per: Per) -> str:
    """The key of a limit: the provider of a request, or its model too. Unknown ones share a key."""
    info = request.model.model_info()
    provider = info.provider or "other"
    if per == "provider":
        return provider
    return f"{provider}:{request.opts.get('model') or info.model or 'other'}"
