"""The API key that a server receives: only one that was meant for it."""

from __future__ import annotations

import ipaddress
import os
import re
import urllib.parse
import warnings
from typing import TypeAlias

from treadle.errors import OptionError

PLACEHOLDER = "no-key"
"""The key for servers that need none; the SDK refuses to create a client without one."""
OPENAI_URL = "https://api.openai.com/v1"
"""OpenAI's own endpoint."""

_Origin: TypeAlias = tuple[str, str, int]
"""The scheme, the host and the port of a server."""
_PLAIN_SERVER = re.compile(r"(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::\d+)?", re.ASCII | re.IGNORECASE)
"""A host with or without a port. Parsers of URLs differ in what they make of anything else."""
_PORTS = {"http": 80, "https": 443}


def endpoint_of(base_url: str | None) -> str:
    """The given endpoint, by default the one in ``OPENAI_BASE_URL``, else OpenAI's own."""
    return base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL


def key_for(endpoint: str, given: str | None) -> str:
    """Choose the key for an endpoint.

    The key in ``OPENAI_API_KEY`` is that of OpenAI, and of the server in ``OPENAI_BASE_URL``, which the
    environment sets together with it. Another server receives it only if it is given.

    Args:
        endpoint: see `endpoint_of`.
        given: the key that was given for it.

    Returns:
        The key; `PLACEHOLDER` if there is none for this server.

    Raises:
        OptionError: there is none for OpenAI's own endpoint.
    """
    key = given or (os.environ.get("OPENAI_API_KEY") if is_of_environment(endpoint) else None)
    if not key:
        if _origin_of(endpoint) == _origin_of(OPENAI_URL):
            raise OptionError(
                "model: OpenAI needs an API key; set OPENAI_API_KEY, or base_url= for another server"
            )
        return PLACEHOLDER
    if key != PLACEHOLDER and not _is_confidential(endpoint):
        text = "the API key and the messages are sent to {} without encryption; use https"
        warnings.warn(text.format(server_of(endpoint)), UserWarning, stacklevel=4)
    return key


def key_is_missing(endpoint: str) -> str:
    """What to do if a server refused the placeholder."""
    return (
        f"{server_of(endpoint)} requires an API key, and none was given for it: set api_key=, or "
        "--api-key-env of the command. OPENAI_API_KEY is only sent to OpenAI and to the server in OPENAI_BASE_URL"
    )


def is_of_environment(endpoint: str) -> bool:
    """Whether the variables of the environment for OpenAI's SDK are meant for an endpoint."""
    default = endpoint_of(None)
    origins = {_origin_of(OPENAI_URL), _origin_of(default)} - {None}
    return endpoint == default or _origin_of(endpoint) in origins


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
