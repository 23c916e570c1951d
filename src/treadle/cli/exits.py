"""How the command ends."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What the command ends with, as shells and scripts see it."""

    OK = 0
    """The model answered."""
    FAILED = 1
    """The run ended without an answer; stderr says why."""
    USAGE = 2
    """The command makes no sense, or lacks a part that has to be installed; argparse's number."""
    INTERRUPTED = 130
    """Ctrl-C: 128 and the number of the signal, as shells have it."""


class UsageError(Exception):
    """The command cannot be carried out as it was given; one line says why."""
