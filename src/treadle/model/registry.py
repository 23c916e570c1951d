"""Models by name: the providers, found through entry points, and the forms of a name."""

from __future__ import annotations

import functools
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, TypeAlias

from treadle.errors import OptionError, did_you_mean
from treadle.fast_dataclass import light_dataclass
from treadle.model.info import LLMSendFn
from treadle.redaction import redacted

log = logging.getLogger("treadle.model")

ENTRY_POINTS = "treadle.providers"
"""The group of entry points. The name of each is that of its provider, and it loads a `Provider`."""


Embedder: TypeAlias = Callable[[Sequence[str]], Awaitable[list[list[float]]]]
"""Takes texts; returns a vector for each, in their order."""


@light_dataclass(frozen=True)
class Provider:
    """A provider of models, as it registers itself.

    Args:
        name: what comes before the colon in the name of a model.
        title: its name for people.
        open_model: takes the name of a model, and ``base_url``, ``api_key`` and options of every request by
            keyword; returns the model. It imports the SDK, not the module in which it is defined.
        open_embedder: the same for a model that embeds texts; it returns a callable that takes texts and
            returns a vector for each. None if the provider has none.
        aliases: other names of it.
        prefixes: starts of the names of its models, by which it is found if a name has no provider.
        forms: the forms of its models' names, for errors and lists; None means ``name:MODEL``.
        package: the package of its SDK; None if it needs none.
        extra: the extra of treadle that installs it; None for a provider of another distribution.
        key_variables: the environment variables that may have its API key, the first one taking precedence.
        url_variable: the environment variable that may have its base URL; None if there is none.
        needs_key: whether the endpoint of the provider requires a key.
        check: returns what else is missing, with the command that installs it; None if nothing is.
    """

    name: str
    title: str
    open_model: Callable[..., LLMSendFn]
    open_embedder: Callable[..., Embedder] | None = None
    aliases: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    forms: tuple[str, ...] | None = None
    package: str | None = None
    extra: str | None = None
    key_variables: tuple[str, ...] = ()
    url_variable: str | None = None
    needs_key: bool = True
    check: Callable[[], str | None] | None = None

    @property
    def model_forms(self) -> tuple[str, ...]:
        """The forms of the names of its models."""
        return (f"{self.name}:MODEL",) if self.forms is None else self.forms

    def missing(self) -> str | None:
        """What has to be installed or set before a model can be opened; None if nothing has to.

        Returns:
            A command, such as ``pip install 'treadle[openai]'``, or the setting of a variable.
        """
        if self.package is not None and not _is_installed(self.package):
            what = self.package if self.extra is None else f"'treadle[{self.extra}]'"
            return f"pip install {what}"
        is_set = not self.needs_key or any(map(os.environ.get, self.key_variables))
        if not is_set:
            return f"set {' or '.join(self.key_variables)}"
        return None if self.check is None else self.check()

    def environment(self) -> tuple[str | None, ...]:
        """The values of its environment variables: a model that was opened before depends on them."""
        names = (*self.key_variables, self.url_variable)
        return tuple(os.environ.get(name) if name else None for name in names)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package around it
        return False


@functools.cache
def providers() -> Mapping[str, Provider]:
    """The installed providers by name, sorted. One that cannot be loaded is logged and left out."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import

    found: dict[str, Provider] = {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            loaded = point.load()
        except Exception:  # another distribution's code
            log.warning("the provider %r cannot be loaded", point.name, exc_info=True)
            continue
        if isinstance(loaded, Provider):
            found[point.name] = loaded
        else:
            kind = type(loaded).__name__
            log.warning("the provider %r: expected a Provider, got %s", point.name, kind)
    return found


_aliases: dict[str, str] = {}


def aliases() -> Mapping[str, str]:
    """The aliases of models in this process, each with the name that it stands for."""
    return {**_aliases}


def add_alias(alias: str, name: str) -> None:
    """Give a model another name in this process, such as ``fast``.

    Args:
        alias: the new name. It takes precedence over every other form.
        name: the name of the model; of another alias, the model that it has now is taken.

    Raises:
        OptionError: one of them is no text, or the name is unknown or is this alias itself.
    """
    if not isinstance(alias, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"alias: expected text, got {type(alias).__name__}")
    if alias == name:
        raise OptionError(f"alias: {alias!r} is an alias of itself")
    find_provider(name)
    _aliases[alias] = _aliases.get(name, name)


def find_provider(name: str) -> tuple[Provider, str]:
    """Find the provider of a model, and the name of the model there, which is empty for a default model.

    The name is an alias, ``provider:model``, ``provider/model``, a name that starts as those of one provider do,
    or that of a provider with a default model. `OptionError` says why no provider is found.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"model: expected a name, got {type(name).__name__}")
    name = _aliases.get(name, name)
    known = providers()
    by_name = {other: one for one in known.values() for other in (one.name, *one.aliases)}
    if name in by_name:
        return by_name[name], ""
    for separator, called in ((":", "colon"), ("/", "slash")):
        first, found, model = name.partition(separator)
        if found and first in by_name:
            if not model:
                raise OptionError(f"model: {name!r} has no name after the {called}")
            return by_name[first], model
    for provider in known.values():
        if provider.prefixes and name.startswith(provider.prefixes):
            return provider, name
    raise OptionError(_unknown(name, by_name))


def check_model(fn: object) -> None:
    """Raise an `OptionError` with advice if a value is neither a callable nor the name of a model."""
    if isinstance(fn, str):
        find_provider(fn)
    elif not callable(fn):
        from treadle.model.wrong_model import advice_on  # noqa: PLC0415 - most programs need no advice

        kind = type(fn).__name__
        raise OptionError(f"llm_send_fn: expected a callable, got {kind}; {advice_on(fn)}")


_KEY = r"sk-|(?=[\w-]{20,}$)(?=.*\d)(?=.*[a-z])(?=.*[A-Z])"
"""A name that may be an API key: some start with ``sk-``, others are long and random."""
MAX_SHOWN = 100
"""The length of an unknown name that an error shows."""


def _unknown(name: str, by_name: Mapping[str, Provider]) -> str:
    is_shown = len(name) <= MAX_SHOWN and not re.match(_KEY, name, re.ASCII)
    shown = repr(redacted(name)) if is_shown else "this name"
    first, colon, _ = name.partition(":")
    hint = did_you_mean(first, by_name) if colon else ""
    forms = ", ".join(form for one in dict.fromkeys(by_name.values()) for form in one.model_forms)
    forms = forms or "none: no provider is registered; is treadle installed, with its entry points?"
    return f"model: {shown} is unknown{hint if 'mean' in hint else ''}; known are {forms}"


def backend(
    name: str, *, base_url: str | None = None, api_key: str | None = None, **opts: Any
) -> LLMSendFn:
    """Open a model by name.

    Args:
        name: a name such as ``openai:gpt-5-mini``, or an alias.
        base_url: another endpoint than that of the provider.
        api_key: the key for the endpoint; by default that of the environment, for the provider's own endpoint.
        **opts: options of the model, and of every request.

    Returns:
        A model for ``llm_send_fn=``. It has a ``close()`` if there is something to close.

    Raises:
        OptionError: no provider is known for the name, there is no API key, or an option is invalid.
        MissingExtraError: a package that the provider needs is not installed.
    """
    provider, model = find_provider(name)
    return provider.open_model(model, base_url=base_url, api_key=api_key, **opts)


def embedder(
    name: str, *, base_url: str | None = None, api_key: str | None = None, **opts: Any
) -> Embedder:
    """Open a model that embeds texts, by name.

    Args:
        name: as in `backend`.
        base_url: as in `backend`.
        api_key: as in `backend`.
        **opts: options of the provider's embedder.

    Returns:
        An async callable: ``vectors = await embedder(texts)``.

    Raises:
        OptionError: as `backend`; or the provider has no models that embed.
        MissingExtraError: a package that the provider needs is not installed.
    """
    provider, model = find_provider(name)
    if provider.open_embedder is None:
        others = ", ".join(one.name for one in providers().values() if one.open_embedder)
        raise OptionError(
            f"embedder: {provider.title} has no models that embed; these have: {others}"
        )
    return provider.open_embedder(model, base_url=base_url, api_key=api_key, **opts)


def named_model(name: str) -> LLMSendFn:
    """The model of a name, as `backend` opens it; runs with the same name share it, and its connections."""
    provider, model = find_provider(name)
    return _opened(provider, model, provider.environment())


@functools.lru_cache(maxsize=64)
def _opened(provider: Provider, model: str, _environment: tuple[str | None, ...]) -> LLMSendFn:
    return provider.open_model(model)
