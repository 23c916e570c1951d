"""Files that the command writes: those that it cannot write, and those that it must not overwrite."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from treadle.cli.exits import UsageError
from treadle.files import real_path


@contextlib.contextmanager
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
    with contextlib.suppress(OSError):
        return real_path(one) == real_path(other)
    return False  # one cannot be opened, which is reported where it is opened
