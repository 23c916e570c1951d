"""The parts of a run that arguments name: its model and its tools."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import warnings
from collections.abc import Generator
from typing import Any

from treadle.cli.arguments import LIMIT_FLAGS, RETRIES_FLAG
from treadle.cli.builtin_tools import read_only_tools
from treadle.cli.exits import UsageError
from treadle.cli.load_tools import load_tools
from treadle.cli.output import warn
from treadle.errors import TreadleError
from treadle.providers import backend
from treadle.results import Result

_MODEL_MAY_RUN = frozenset({"cancelled", "deadline_exceeded"})
"""Stop reasons after which the model may still be running. Closing it would block."""


@contextlib.contextmanager
def usage_errors(*others: type[Exception]) -> Generator[None]:
    """Raise UsageError if a model, a tool, a limit or a file is invalid, or cannot be opened.

    Args:
        *others: classes of exceptions that are raised as they are.
    """
    try:
        yield
    except others:
        raise
    except (TreadleError, OSError, ValueError) as error:
        raise UsageError(_OPTION.sub(_spelled, str(error))) from error


_OPTION = re.compile(rf"\b({'|'.join([*LIMIT_FLAGS, *RETRIES_FLAG])}|base_url|api_key)\b(=(?!\S))?")
"""A name of an option in an error of the library; ``base_url=`` stands alone there."""


def _spelled(name: re.Match[str]) -> str:
    """An option as it is spelled on the command line."""
    return f"--{name[1].replace('_', '-')}{'-env' if name[1] == 'api_key' else ''}"


def tools_of(args: argparse.Namespace, servers: contextlib.ExitStack) -> list[Any]:
    """The tools; the MCP servers among them are connected as long as the stack is open."""
    if not args.mcp:
        return load_tools(args.tools) if args.tools else read_only_tools()
    from treadle.mcp import MCPServer, mcp_tools  # noqa: PLC0415 - few runs need it

    tools = load_tools(args.tools) if args.tools else []
    connected = [servers.enter_context(MCPServer(server)) for server in args.mcp]
    return mcp_tools(*connected, tools=tools)


def open_model(args: argparse.Namespace) -> Any:
    """The model. Warnings about it are printed.

    Raises:
        UsageError: the variable of the key is not set.
        TreadleError, OSError, ValueError: the model is unknown, or cannot be opened.
    """
    key: str | None = None
    if args.api_key_env is not None:
        key = os.environ.get(args.api_key_env)
        if not key:
            raise UsageError(f"--api-key-env: the variable {args.api_key_env} is not set")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model: Any = backend(args.model, base_url=args.base_url, api_key=key)
    for one in caught:
        warn(str(one.message))
    return model


def close_model(model: Any, last: Result | None) -> None:
    """Close a model, unless its last run has left it running.

    Args:
        model: the model; one of another distribution may have no ``close``.
        last: the result of its last run; None if there was none.
    """
    close = getattr(model, "close", None)
    if close is not None and (last is None or last.stop_reason not in _MODEL_MAY_RUN):
        close()
