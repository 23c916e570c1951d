"""Clients of Redis, for the stores that are in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treadle.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    import redis

TIMEOUT = 10.0
"""How long a client made from a URL waits for an answer, in seconds; a URL may have its own ``socket_timeout``."""

RETRIES = 6
"""How often a client made from a URL connects again, within 2.3 seconds: Redis may be restarting."""


def client_of(
    given: str | redis.Redis, what: str, *, timeout: float = TIMEOUT, retries: int = RETRIES
) -> Any:  # the annotations of redis-py are too wide
    """The client that the caller passed, or one for a URL, with a time limit in seconds and retries.

    Raises:
        MissingExtraError: redis-py is not installed.
        OptionError: it is neither, or the URL is invalid; the text begins with ``what``.
    """
    try:
        from redis import Redis  # noqa: PLC0415 - an extra
        from redis.backoff import ExponentialBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("redis-py", "pip install 'treadle[redis]'") from error
    if isinstance(given, Redis):
        return given
    if isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        client_class: Any = Redis
        try:
            return client_class.from_url(
                given,
                socket_timeout=timeout,
                socket_connect_timeout=timeout,
                retry=Retry(ExponentialBackoff(cap=1.0, base=0.02), retries),
            )
        except ValueError:  # its text may have a part of the password
            raise OptionError(
                f"{what}: expected a URL such as redis://localhost:6379/0, got another text"
            ) from None
    raise OptionError(
        f"{what}: expected a URL or a redis.Redis, got an object of type {type(given).__name__}"
    )


def address_of(client: Any) -> str:
    """The address of Redis, without credentials."""
    options: Mapping[str, Any] = client.get_connection_kwargs()
    if "path" in options:
        return f"unix://{options['path']}"
    host, port = options.get("host", "localhost"), options.get("port", 6379)
    return f"redis://{host}:{port}/{options.get('db') or 0}"


def decoded(value: str | bytes) -> str:
    """A value that a client has decoded or not."""
    return value if isinstance(value, str) else value.decode()
