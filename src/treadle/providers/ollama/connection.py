"""The address of Ollama's server, and clients of its SDK."""

from __future__ import annotations

from typing import Any

from treadle.fast_dataclass import light_dataclass
from treadle.http_bodies import client_options
from treadle.messages import NotAResponseError, is_mapping
from treadle.providers.endpoint import Endpoint, server_of

DEFAULT_PORT = 11434
_CLOUD = Endpoint("Ollama", "https://ollama.com", None, ())
"""Ollama's own servers, to which the key in the environment is sent too."""


@light_dataclass(frozen=True)
class OllamaEndpoint(Endpoint):
    """The endpoint of Ollama: a local server, or that in the environment, whose form needs no scheme."""

    def url_of(self, given: str | None) -> str:
        """The given base URL, by default the one in the environment, else the provider's own."""
        return full_url(super().url_of(given))

    def is_of_environment(self, url: str) -> bool:
        """Whether the variables of the environment for the provider's SDK are meant for a server."""
        return _CLOUD.is_own(url) or super().is_of_environment(url)


OLLAMA = OllamaEndpoint(
    "Ollama",
    f"http://127.0.0.1:{DEFAULT_PORT}",
    "OLLAMA_HOST",
    ("OLLAMA_API_KEY",),
    needs_key=False,
)


def full_url(host: str) -> str:
    """Complete the address of a server, as Ollama's own clients do.

    Args:
        host: a URL, or ``host``, ``host:port`` or ``:port``. The address on which a server listens on all
            interfaces, which `OLLAMA_HOST` often has, becomes that of this machine.
    """
    scheme, has_scheme, rest = host.strip().partition("://")
    if not has_scheme:
        scheme, rest = "http", host.strip()
    place, slash, path = rest.partition("/")
    name, port = _split(place)
    if not port and not has_scheme:
        port = f":{DEFAULT_PORT}"
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(name, name)  # noqa: S104 - compared only
    return f"{scheme}://{name}{port}{slash}{path}".rstrip("/")


def _split(place: str) -> tuple[str, str]:
    """The host, and the port with its colon; an IPv6 address has colons in brackets."""
    name, colon, port = place.rpartition(":")
    return (name, f":{port}") if colon and port.isdigit() else (place, "")


def new_client(sdk: Any, base_url: str, api_key: str, timeout: float | None = None) -> Any:
    """Make an async client, which has no retries.

    Args:
        sdk: the module ``ollama``.
        base_url: see `full_url`.
        api_key: see `Endpoint.key_for`. It takes the place of the one that the SDK reads from the environment.
        timeout: seconds for each request; None for no limit, the SDK's default.
    """

    async def check(response: Any) -> None:
        # The SDK's own exceptions have neither the headers (Retry-After) nor the place of a redirect.
        if response.is_success:
            _check_type(response, base_url)
            return
        await response.aread()
        error = sdk.ResponseError("", response.status_code)
        error.error, error.response = _error_text(response), response
        error.args = (error.error,)
        raise error

    return sdk.AsyncClient(
        base_url,
        timeout=timeout,
        # A redirect would send the messages to a server that the caller did not name.
        follow_redirects=False,
        **client_options({"authorization": f"Bearer {api_key}"}, check),
    )


def _check_type(response: Any, base_url: str) -> None:
    if "text/html" in response.headers.get("content-type", "").lower():
        raise NotAResponseError(
            f"llm_send_fn: {server_of(base_url)} responded with a web page; check the base URL, which has no /v1"
        )


def _error_text(response: Any) -> str:
    try:
        error: Any = response.json()["error"]
        return str(error["message"] if is_mapping(error) else error)
    except (ValueError, LookupError, TypeError):
        return str(response.text)
