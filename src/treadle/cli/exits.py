"""How the command ends: exit codes, bad usage, and files that it cannot write or must not overwrite."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
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


@contextmanager
def writing(option: str, target: object) -> Generator[None]:
    """Raise UsageError, with the name of the option, if the file of an option cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{option}: cannot write {target}: {error.strerror}") from error
    except ValueError as error:  # a file that is not to be overwritten
        raise UsageError(f"{option}: {error}") from error


def same_file(one: str, other: str) -> bool:
    """Whether two paths name the same file."""
    return os.path.realpath(one) == os.path.realpath(other)
