"""The exceptions: mistakes of the caller, told at the door. Expected failures are values, see `reasons`."""

from __future__ import annotations


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
