"""Saved pauses: files with the state of a paused run.

While a run resumes a saved pause, its file has another name, which says who has claimed it:
``<name>.claimed-<claimant>``, or ``<name>.claimed`` once that run was interrupted. The name is the claim, so that
one rename makes all of it or nothing. If the run pauses again, the file has the new pause, under its first name.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadle.errors import PausedStateError
from treadle.files import replace_file
from treadle.pauses.claimant import Claimant
from treadle.pauses.claims import at, claimed
from treadle.pauses.signature import is_state

CLAIMED = ".claimed"
MAX_SHOWN = 300
"""The number of characters of a path in an error text."""
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


def save_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write the state of a paused run to a file that only its owner can read. An earlier saved pause is replaced.

    Args:
        path: the file. It is written next to its place and renamed: it never has a part of a state.
        state: the state.

    Raises:
        PausedStateError: the file is not a saved pause, or the saved pause is being resumed.
        OSError: it cannot be written. An earlier file is as it was.
    """
    if not is_state(state):
        raise PausedStateError("this Paused has no state, so that it cannot be saved")
    target = target_of(path)
    for name in claimed_names(target):
        raise PausedStateError(why_claimed(name))
    if os.path.lexists(target):
        try:
            load_state(target)
        except PausedStateError as error:
            raise PausedStateError(f"{error}; it is not overwritten") from None
    write_state(target, state)


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state to a file, or replace the state that it has.

    Raises:
        OSError: it cannot be written. An earlier file is as it was.
    """
    replace_file(path, json.dumps(state).encode(), durable=True)


def load_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the state of a paused run from a file. It is not checked.

    Args:
        path: the file.

    Raises:
        PausedStateError: the file does not exist, is claimed, or is not a saved pause.
        OSError: it cannot be read.
    """
    try:
        is_regular = stat.S_ISREG(Path(path).stat().st_mode)  # a pipe would wait for its writer
        state: Any = json.loads(Path(path).read_bytes()) if is_regular else None
    except OSError as error:
        if error.errno not in _MISSING:
            raise
        for name in claimed_names(target_of(path)):
            raise PausedStateError(why_claimed(name)) from None
        raise PausedStateError(f"there is no saved pause at {shown(path)}") from None
    except (ValueError, RecursionError):
        state = None
    if not is_state(state):
        raise PausedStateError(f"{shown(path)} is not a saved pause")
    return dict(state)


def target_of(path: str | os.PathLike[str]) -> Path:
    """The file that a path leads to, also if it does not exist.

    Raises:
        PausedStateError: it cannot be a path.
    """
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a null character
        raise PausedStateError(f"there is no saved pause at {shown(path)}") from None


def shown(path: str | os.PathLike[str]) -> str:
    """A path for an error text; a text that is none may be long."""
    text = repr(os.fspath(path))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...'"


def claimed_name(target: Path, claimant: str) -> Path:
    """The name of a saved pause that a claimant resumes; an empty claimant was interrupted."""
    ending = f"{CLAIMED}-{claimant}" if claimant else CLAIMED
    return target.with_name(target.name + ending)


def claimed_names(target: Path) -> list[Path]:
    """The names that a saved pause has while it is claimed: as a rule one, or none."""
    start = f"{target.name}{CLAIMED}"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        found = [one for one in target.parent.iterdir() if one.name.startswith(start)]
        return sorted(one for one in found if one.name == start or _claimant_of(one))
    return []


def is_held(name: Path) -> bool:
    """Whether the process that has claimed a saved pause is known to run still."""
    claimant = _claimant_of(name)
    return claimant is not None and claimant.is_running() is True


def why_claimed(name: Path) -> str:
    """Why a saved pause cannot be used.

    Args:
        name: its name while it is claimed.
    """
    try:
        since = at(name.stat().st_ctime)  # a rename sets it
    except OSError:
        since = "an unknown time"
    return claimed(str(name).rpartition(CLAIMED)[0], _claimant_of(name), since)


def _claimant_of(name: Path) -> Claimant | None:
    before, mark, text = name.name.rpartition(f"{CLAIMED}-")
    return Claimant.parse(text) if before and mark else None
