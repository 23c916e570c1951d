"""What a server is reached by: a command, a URL, or an object in this process; and the SDK's client for it."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shlex
import threading
import urllib.parse
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from treadle.errors import MissingExtraError, OptionError
from treadle.http_bodies import client_options
from treadle.mcp.wire import OnEnd, OnRefused, watched
from treadle.messages import safe_str
from treadle.messages.sanitizing import valid_name
from treadle.redaction import REDACTED, redacted

if TYPE_CHECKING:
    from mcp import Client

MAX_ERROR_LINES = 20
"""The last lines on stderr of a server that are kept for errors."""
MAX_ERROR_LINE = 500
"""Characters of one such line; the rest is dropped."""
HTTP_SECONDS = 30.0
"""How long connecting, and sending a request, may take; the default of the SDK."""


@dataclass(frozen=True)
class Target:
    """A server, and how to reach it. Its repr shows no secrets.

    Args:
        given: a command, as a text or as a list of arguments; a URL; or a server object of the SDK.
        env: environment variables of the process, besides those few that the SDK passes on.
        cwd: the folder in which the process starts; None means the current one.
        headers: headers of each HTTP request.

    Raises:
        OptionError: it is none of these, or an option does not apply to it.
    """

    given: Any = field(repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | os.PathLike[str] | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        is_command = self.command is not None
        applies = {"env": is_command, "cwd": is_command, "headers": self.url is not None}
        for option, fits in applies.items():
            if getattr(self, option) is not None and not fits:
                kind = "command" if option != "headers" else "URL"
                raise OptionError(f"MCPServer: {option} applies to a {kind} only, not to {self}")
        if is_command and not self.command:
            raise OptionError("MCPServer: expected a command or a URL, got an empty one")
        if self.command is None and self.url is None and not _is_server(self.given):
            kind = type(self.given).__name__
            raise OptionError(
                f"MCPServer: expected a command, a URL or a server object of the MCP SDK, got {kind}"
            )

    @property
    def url(self) -> str | None:
        """The URL; None if it is no URL."""
        given = self.given
        is_url = isinstance(given, str) and re.match(r"https?://", given, re.IGNORECASE)
        return given if is_url else None

    @property
    def command(self) -> list[str] | None:
        """The command and its arguments; None if it is no command."""
        given = self.given
        if isinstance(given, str):
            return None if self.url is not None else _words_of(given)
        return [os.fspath(word) for word in given] if _is_words(given) else None

    @property
    def name(self) -> str:
        """The name of a server that reports none: the last part of the command's path, or the host of the URL."""
        if self.url is not None:
            return valid_name(urllib.parse.urlsplit(self.url).hostname or "server")
        if self.command is None:
            return valid_name(safe_str(getattr(self.given, "name", "server")))
        return valid_name(Path(self.command[0]).name)

    def __str__(self) -> str:
        """The command or the URL without credentials, for errors."""
        if self.url is not None:
            return redacted(self.url.partition("?")[0])
        if self.command is not None:
            return redacted(shlex.join(_without_secrets(self.command)))
        return f"the {type(self.given).__name__} in this process"

    def client(
        self, stderr: Stderr, on_end: OnEnd, on_refused: OnRefused, **options: Any
    ) -> Client:
        """Make a client, which is not connected.

        Args:
            stderr: takes what the process writes there.
            on_end: is called when the connection ends, or the server has forgotten its session.
            on_refused: is called with each listed tool that the SDK cannot read.
            **options: those of the SDK's ``Client``.
        """
        from mcp import Client  # noqa: PLC0415 - an extra

        def version() -> str:
            return made.protocol_version

        given: Any = self.given
        if self.url is not None:
            given = watched(self._over_http(self.url, on_end), version, on_end, on_refused)
        elif self.command is not None:
            given = watched(self._as_process(self.command, stderr), version, on_end, on_refused)
        made = Client(given, **options)
        return made

    @contextlib.asynccontextmanager
    async def _over_http(self, url: str, on_end: OnEnd) -> AsyncGenerator[Any]:
        import httpx2  # noqa: PLC0415 - the SDK needs it
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - an extra

        # A server may be silent for as long as a tool runs, which the loop limits.
        timeout = httpx2.Timeout(HTTP_SECONDS, read=None)

        async def check(response: Any) -> None:
            # The status of a session that the server has forgotten, by the specification, and in practice.
            if "mcp-session-id" in response.request.headers and response.status_code in {404, 400}:
                on_end("")

        def note(response: Any, error: Exception) -> None:
            request = response.request  # the streams of notifications are opened again
            if request.method == "POST" and b'"subscriptions/listen"' not in request.content:
                on_end(redacted(safe_str(error)))

        options = client_options(self.headers, check, on_failed=note)
        async with (
            httpx2.AsyncClient(timeout=timeout, **options) as http_client,
            streamable_http_client(url, http_client=http_client) as streams,
        ):
            yield streams

    @contextlib.asynccontextmanager
    async def _as_process(self, command: list[str], stderr: Stderr) -> AsyncGenerator[Any]:
        from mcp import StdioServerParameters  # noqa: PLC0415 - as above
        from mcp.client.stdio import stdio_client  # noqa: PLC0415 - as above

        name, *args = command
        env = None if self.env is None else dict(self.env)
        cwd = None if self.cwd is None else os.fspath(self.cwd)
        parameters = StdioServerParameters(
            command=name,
            args=args,
            env=env,
            cwd=cwd,
            # Else its reader would end at the first such byte, and no request would notice.
            encoding_error_handler="replace",
        )
        async with contextlib.AsyncExitStack() as stack:
            with stderr.writer() as errlog:  # the process has it from then on
                streams = await stack.enter_async_context(stdio_client(parameters, errlog))
            yield streams


def _is_words(given: Any) -> TypeGuard[Sequence[str | os.PathLike[str]]]:
    is_many = isinstance(given, (list, tuple))
    return is_many and all(isinstance(word, (str, os.PathLike)) for word in given)  # pyright: ignore[reportUnknownVariableType]


def _words_of(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise OptionError(f"MCPServer: the command cannot be split into words: {error}") from error


def _without_secrets(command: Sequence[str]) -> list[str]:
    """The words of a command, without the values of options whose names are those of secrets."""
    shown: list[str] = []
    is_value = False
    for word in command:
        if is_value and not word.startswith("--"):
            shown.append(REDACTED)
        else:
            shown.append(_ASSIGNED.sub(rf"\1{REDACTED}", word))
        is_value = word.startswith("-") and _ENDS_WITH_NAME.search(word) is not None
    return shown


_NAME = r"(?:auth|authorization|cookie|token|secret|pass|passwd|password|credential|key)s?"
"""The end of the name of a secret."""
_ASSIGNED = re.compile(rf"({_NAME}[=:] ?).+", re.IGNORECASE | re.DOTALL)
"""The name and the value of an option, a variable or a header in one word."""
_ENDS_WITH_NAME = re.compile(rf"{_NAME}$", re.IGNORECASE)


def _is_server(given: Any) -> bool:
    """Whether an object is a server of the SDK: its ``MCPServer``, or its low-level ``Server``."""
    check_installed()
    from mcp.server import MCPServer, Server  # noqa: PLC0415 - an extra

    return isinstance(given, (Server, MCPServer))


def check_installed() -> None:
    """Check that the SDK is installed; raises `MissingExtraError`."""
    try:
        importlib.import_module("mcp.client.subscriptions")  # version 2 has it
    except ImportError as error:
        raise MissingExtraError("the MCP SDK", "pip install 'treadle[mcp]'") from error


class Stderr:
    """Keeps the last lines that a process writes to stderr."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_ERROR_LINES)
        self._reader: threading.Thread | None = None

    @contextlib.contextmanager
    def writer(self) -> Any:
        """Make the file for the process; it is closed here when the process has it."""
        read, write = os.pipe()
        self._reader = threading.Thread(
            target=self._read, args=(read,), name="treadle-mcp-stderr", daemon=True
        )
        self._reader.start()
        with os.fdopen(write, "w", encoding="utf-8") as file:
            yield file

    def _read(self, fd: int) -> None:
        is_rest = False  # of a line that is too long; alone it could be a part of a credential
        with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
            while piece := file.readline(MAX_ERROR_LINE):
                if piece.strip() and not is_rest:
                    self._lines.append(piece.rstrip())
                is_rest = not piece.endswith("\n")

    def text(self, *, has_ended: bool = False) -> str:
        """The last lines so far, without recognizable credentials; waits for those of a process that has ended."""
        if self._reader is not None:
            # No longer: a child of the process may keep the pipe open.
            self._reader.join(2.0 if has_ended else 0.2)
        return redacted("\n".join(self._lines))
