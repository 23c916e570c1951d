"""Saved pauses: files with the state of a paused run, and the claim of such a file.

While a run resumes a saved pause, its file has another name, which says who has claimed it:
``<name>.claimed-<claimant>``, or ``<name>.claimed`` once that run was interrupted. The name is the claim, so that
one rename makes all of it or nothing. If the run pauses again, the file has the new pause, under its first name.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadle.errors import PausedStateError
from treadle.files import replace_file
from treadle.pauses.claims import Outcome, claimed
from treadle.pauses.protection import is_state
from treadle.pauses.resume_holder import ResumeHolder

CLAIMED = ".claimed"
MAX_SHOWN = 300
"""The number of characters of a path in an error text: a text that is no path may be long."""
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


def save_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write the state of a paused run to a private file, whole, or in place of another saved pause."""
    if not is_state(state):
        raise PausedStateError("this Paused has no state, so that it cannot be saved")
    target = _target_of(path)
    if _claimed_names(target):
        raise _missing(target)
    if os.path.lexists(target):
        try:
            load_state(target)
        except PausedStateError as error:
            raise PausedStateError(f"{error}; it is not overwritten") from None
    replace_file(target, json.dumps(state).encode(), durable=True)


def load_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the state of a paused run from a file that has one, and is not claimed. It is not checked."""
    try:
        is_regular = stat.S_ISREG(Path(path).stat().st_mode)  # a pipe would wait for its writer
        state: Any = json.loads(Path(path).read_bytes()) if is_regular else None
    except OSError as error:
        if error.errno not in _MISSING:
            raise
        raise _missing(_target_of(path)) from None
    except (ValueError, RecursionError):
        state = None
    if not is_state(state):
        raise PausedStateError(f"{str(path)!r} is not a saved pause")
    return dict(state)


class FileClaims:
    """The claim of one saved pause: a `ClaimStore` for this pause only.

    Args:
        path: the saved pause.
        take_over: also find one that another run has claimed, unless the process of that run is still running.

    Attributes:
        state: the state in the file.
    """

    def __init__(self, path: str | os.PathLike[str], *, take_over: bool) -> None:
        self._target = self._found = _target_of(path)
        if take_over and not os.path.lexists(self._target):
            holders = {name: _holder_of(name) for name in _claimed_names(self._target)}
            free = (name for name, one in holders.items() if not (one and one.is_running()))
            self._found = next(free, self._target)
        self.state = load_state(self._found)

    def claim(self, pause_id: str, claimant: str, *, take_over: bool) -> bool:
        """Claim a pause, in one atomic step. Of several processes that rename the same file, one succeeds."""
        del take_over  # it was decided before which file is claimed
        mine = _claimed_name(self._target, claimant)
        try:
            self._found.rename(mine)
        except FileNotFoundError:
            raise _missing(self._target) from None
        if load_state(mine).get("pause_id") == pause_id:
            return True
        if not os.path.lexists(self._found):
            mine.rename(self._found)
        raise PausedStateError(f"{str(self._target)!r} was replaced by another pause meanwhile")

    def keep(self, claimant: str, state: Mapping[str, Any]) -> None:
        """Replace the pause by the next one of its run, which can then be resumed from the same path.

        At each moment there is one file, and it has one of the two pauses. A file that another run has taken over
        is left alone, and so is one that was put in its place meanwhile.
        """
        mine = _claimed_name(self._target, claimant)
        if not os.path.lexists(mine):
            return
        if os.path.lexists(self._target):
            raise FileExistsError(f"there is another file at {str(self._target)!r}")
        replace_file(mine, json.dumps(state).encode(), durable=True)
        mine.rename(self._target)

    def release(self, pause_id: str, claimant: str, outcome: Outcome) -> None:
        """End a claim. A file that has the next pause, or that was taken over, stays as it is."""
        del pause_id
        mine = _claimed_name(self._target, claimant)
        with contextlib.suppress(FileNotFoundError):
            if outcome == "done":
                mine.unlink()
            elif outcome == "undone" and not os.path.lexists(self._found):
                mine.rename(self._found)
            else:
                mine.rename(_claimed_name(self._target, ""))


def _target_of(path: str | os.PathLike[str]) -> Path:
    """The file that a path leads to, also if it does not exist."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        raise PausedStateError("there is no saved pause at a path with a null character") from None


def _claimed_name(target: Path, claimant: str) -> Path:
    """The name of a saved pause that a claimant resumes; an empty claimant was interrupted."""
    ending = f"{CLAIMED}-{claimant}" if claimant else CLAIMED
    return target.with_name(target.name + ending)


def _claimed_names(target: Path) -> list[Path]:
    """The names that a saved pause has while it is claimed: as a rule one, or none."""
    found = target.parent.glob(f"{glob.escape(target.name)}{CLAIMED}*")
    return sorted(one for one in found if one == _claimed_name(target, "") or _holder_of(one))


def _missing(target: Path) -> PausedStateError:
    """Why there is no saved pause: it is claimed, or there is none."""
    for name in _claimed_names(target):
        with contextlib.suppress(FileNotFoundError):
            since = name.stat().st_ctime  # a rename sets it
            return PausedStateError(claimed(str(target), _holder_of(name), since))
    return PausedStateError(f"there is no saved pause at {str(target)!r:.{MAX_SHOWN}}")


def _holder_of(name: Path) -> ResumeHolder | None:
    before, mark, text = name.name.rpartition(f"{CLAIMED}-")
    return ResumeHolder.parse(text) if before and mark else None
