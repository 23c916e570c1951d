"""The exceptions: mistakes of the caller, told at the door. Expected failures are values, see `reasons`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TreadleError(Exception):
    """The base of every exception that treadle raises of its own accord."""


class OptionError(TreadleError, TypeError):
    """An option that does not exist, or a value that an option cannot take."""


class ToolDefinitionError(TreadleError, ValueError):
    """A tool that could never be called: no name, a broken schema, nothing that runs it."""


class MissingExtraError(TreadleError, ImportError):
    """An optional part was asked for and is not installed.

    Args:
        what: the part that was asked for, as the user would say it.
        command: the command that installs it.
    """

    def __init__(self, what: str, command: str) -> None:
        super().__init__(f"{what} is not installed; install it with: {command}")
        self.what = what
        self.command = command


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Make the hint that ends an error about an unknown name.

    Args:
        name: what was given.
        known: what would have been right.

    Returns:
        ``"; did you mean 'x'?"`` where something is close, else the known names.
    """
    names = [str(candidate) for candidate in known]
    close = difflib.get_close_matches(str(name), names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(names)}" if names else "; there are none"
