"""The approved definitions of tools: digests by name, in memory or in a JSON file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle.errors import OptionError
from treadle.files import replace_file
from treadle.messages import is_mapping


def pins_of(given: Mapping[str, str] | str | os.PathLike[str]) -> Mapping[str, str]:
    """Read the option ``approved``.

    Args:
        given: digests by the name of the tool, or the path of a JSON file with them.

    Raises:
        OptionError: the file is missing or has another form.
    """
    found: Any = _read(given) if isinstance(given, (str, os.PathLike)) else given
    if not is_mapping(found) or not all(isinstance(digest, str) for digest in found.values()):
        raise OptionError(
            "MCPServer: approved: expected the digests of tools by name, as server.digests() returns them"
        )
    return dict(found)


def _read(path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(Path(path).read_bytes())
    except FileNotFoundError as error:
        raise OptionError(
            f"MCPServer: approved: there is no file {os.fspath(path)}; look at the tools of the server and write "
            f"it with server.approve(path)"
        ) from error
    except (OSError, ValueError) as error:
        raise OptionError(
            f"MCPServer: approved: {os.fspath(path)} cannot be read: {error}"
        ) from error


def write_pins(path: str | os.PathLike[str], pins: Mapping[str, str]) -> None:
    """Write digests to a file that `pins_of` reads."""
    replace_file(path, json.dumps(pins, indent=2, sort_keys=True).encode() + b"\n")


def why_refused(server: str, names: Sequence[str], pins: Mapping[str, str]) -> str:
    """The text of the error about tools that are not approved."""
    changed = [repr(name) for name in names if name in pins]
    unknown = [repr(name) for name in names if name not in pins]
    facts = [
        f"{', '.join(some)} {what}"
        for some, what in (
            (changed, "changed since it was approved"),
            (unknown, "was never approved"),
        )
        if some
    ]
    return (
        f"MCP server {server!r}: the definition of {'; that of '.join(facts)}. Read what the tools say now, then "
        f"approve them without the option approved=, by server.approve(path); or leave them out by exclude="
    )
