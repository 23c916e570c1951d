"""How the command ends: exit codes, and the errors that end it."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit code of the command."""

    OK = 0
    """The model answered."""
    FAILED = 1
    """The run ended without an answer; stderr says why."""
    USAGE = 2
    """Bad usage, or a missing dependency. The same code as that of argparse."""
    INTERRUPTED = 130
    """Ctrl-C: 128 plus the number of the signal, as in shells."""


class UsageError(Exception):
    """The command cannot be executed as it was given. The message is one line."""


class OutputError(Exception):
    """Stdout cannot be written, as on a full disk. The message is one line."""
