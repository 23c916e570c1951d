"""The endpoint of a provider, and the API key that a server receives: only one that was meant for it."""

from __future__ import annotations

import ipaddress
import os
import re
import urllib.parse
import warnings
from typing import TypeAlias

from treadle.errors import OptionError
from treadle.fast_dataclass import light_dataclass

PLACEHOLDER = "no-key"
"""The key for servers that need none; SDKs refuse to create a client without one."""

_Origin: TypeAlias = tuple[str, str, int]
"""The scheme, the host and the port of a server."""
_PLAIN_SERVER = re.compile(r"(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::\d+)?", re.ASCII | re.IGNORECASE)
"""A host with or without a port. Parsers of URLs differ in what they make of anything else."""
_PORTS = {"http": 80, "https": 443}


@light_dataclass(frozen=True)
class Endpoint:
    """The endpoint of a provider.

    Args:
        title: the name of the provider, for errors.
        url: its own base URL.
        url_variable: the environment variable that may have another base URL; None if there is none.
        key_variables: the environment variables that may have the API key, the first one taking precedence.
        needs_key: whether its own endpoint requires a key.
    """

    title: str
    url: str
    url_variable: str | None
    key_variables: tuple[str, ...]
    needs_key: bool = True

    def url_of(self, given: str | None) -> str:
        """The given base URL, by default the one in the environment, else the provider's own."""
        of_environment = os.environ.get(self.url_variable) if self.url_variable else None
        return given or of_environment or self.url

    def key_for(self, url: str, given: str | None) -> str:
        """Choose the key for a server.

        The key in the environment is that of the provider, and of the server that the environment sets together
        with it. Another server receives it only if it is given.

        Args:
            url: see `url_of`.
            given: the key that was given for it.

        Returns:
            The key; `PLACEHOLDER` if there is none for this server.

        Raises:
            OptionError: there is none for the provider's own endpoint, which requires one; or it has characters
                that a header cannot have.
        """
        key = given or (self._key_of_environment() if self.is_of_environment(url) else None)
        if not key:
            if self.needs_key and self.is_own(url):
                raise OptionError(
                    f"model: {self.title} needs an API key; set {' or '.join(self.key_variables)}, or base_url= "
                    "for another server"
                )
            return PLACEHOLDER
        _check_key(key, url)
        if key != PLACEHOLDER and not _is_confidential(url):
            text = "the API key and the messages are sent to {} without encryption; use https"
            warnings.warn(text.format(server_of(url)), UserWarning, stacklevel=5)
        return key

    def _key_of_environment(self) -> str | None:
        return next(filter(None, map(os.environ.get, self.key_variables)), None)

    def key_is_missing(self, url: str) -> str:
        """What to do if a server refused the placeholder."""
        variable = self.key_variables[0]
        own = (
            f"{self.title} and to the server in {self.url_variable}"
            if self.url_variable
            else self.title
        )
        return (
            f"{server_of(url)} requires an API key, and none was given for it: set api_key=, or "
            f"--api-key-env of the command. {variable} is only sent to {own}"
        )

    def is_own(self, url: str) -> bool:
        """Whether a server is the provider's own."""
        return _origin_of(url) == _origin_of(self.url)

    def is_of_environment(self, url: str) -> bool:
        """Whether the variables of the environment for the provider's SDK are meant for a server."""
        default = self.url_of(None)
        origins = {_origin_of(self.url), _origin_of(default)} - {None}
        return url == default or _origin_of(url) in origins


def _check_key(key: str, url: str) -> None:
    """Check that a key can be sent; the errors of HTTP clients are obscure, or show it."""
    if not (key.isascii() and key.isprintable() and key == key.strip()):
        raise OptionError(
            f"model: the API key for {server_of(url)} cannot be sent in a header: expected printable ASCII "
            "characters, without white space at its start and its end"
        )


def _origin_of(url: str) -> _Origin | None:
    """Where a URL leads; None if that is not certain."""
    if not url.isprintable() or " " in url:  # which some parsers leave out
        return None
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not _PLAIN_SERVER.fullmatch(parts.netloc):
        return None
    return parts.scheme, parts.hostname or "", _PORTS[parts.scheme] if port is None else port


def _is_confidential(url: str) -> bool:
    """Whether a request cannot be read between this process and the server."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https" or host == "localhost" or host.endswith(".localhost"):
            return True
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def server_of(url: str) -> str:
    """The scheme, host and port of a URL, without a name and a password."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return "the server"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
