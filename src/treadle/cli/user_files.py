"""Files that the command keeps for the user: an option or a variable names one, else it is in a private folder."""

from __future__ import annotations

import os
from pathlib import Path

from treadle.cli.exits import UsageError

_PRIVATE_FOLDER = 0o700


def place_of(given: str | None, variable: str, name: str) -> str:
    """The place of a file.

    The folder of the user is that of the XDG Base Directory Specification: a relative one is ignored.

    Args:
        given: what the option names; None if it was not given.
        variable: the environment variable that names the place otherwise; empty if there is none.
        name: the name of the file in the folder of the user.
    """
    folder = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not folder.is_absolute():
        folder = Path.home() / ".local" / "share"
    return given or os.environ.get(variable) or str(folder / "treadle" / name)


def make_folder(file: Path, option: str) -> None:
    """Create the folder of a file, readable by the user only.

    Raises:
        UsageError: it cannot be created.
    """
    try:
        file.parent.mkdir(_PRIVATE_FOLDER, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option}: cannot create {file.parent}: {error.strerror}") from error
