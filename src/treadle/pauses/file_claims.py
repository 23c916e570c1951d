"""The claim of one saved pause: its file has another name while a run resumes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadle.errors import PausedStateError
from treadle.pauses.claims import Outcome
from treadle.pauses.saved import (
    claimed_name,
    claimed_names,
    is_held,
    load_state,
    shown,
    target_of,
    why_claimed,
    write_state,
)


class FileClaims:
    """The claim of one saved pause, a `ClaimStore` for this pause only.

    Args:
        path: the saved pause.
        take_over: also find one that another run has claimed, unless the process of that run is still running.

    Attributes:
        state: the state in the file.

    Raises:
        PausedStateError: there is no saved pause that could be resumed.
    """

    def __init__(self, path: str | os.PathLike[str], *, take_over: bool) -> None:
        self._target = target_of(path)
        self._found = self._target
        if take_over and not os.path.lexists(self._target):
            self._found = _to_take_over(self._target)
        self.state = load_state(self._found)

    def claim(self, pause_id: str, claimant: str, *, take_over: bool) -> bool:
        """Claim a pause, in one atomic step. Of several processes that rename the same file, one succeeds.

        Args:
            pause_id: the pause, which the file has to have still.
            claimant: who claims it.
            take_over: it was decided before which file is claimed.
        """
        del take_over
        mine = claimed_name(self._target, claimant)
        try:
            self._found.rename(mine)
        except FileNotFoundError:
            for name in claimed_names(self._target):
                raise PausedStateError(why_claimed(name)) from None
            text = f"there is no longer a saved pause at {shown(self._target)}: it was resumed meanwhile"
            raise PausedStateError(text) from None
        if load_state(mine).get("pause_id") == pause_id:
            return True
        if not os.path.lexists(self._found):
            mine.rename(self._found)
        raise PausedStateError(f"{shown(self._target)} was replaced by another pause meanwhile")

    def keep(self, claimant: str, state: Mapping[str, Any]) -> None:
        """Replace the pause by the next one of its run, which can then be resumed from the same path.

        At each moment there is one file, and it has one of the two pauses. A file that another run has taken over
        is left alone, and so is one that was put in its place meanwhile.

        Args:
            claimant: who has claimed the pause.
            state: the next pause.

        Raises:
            OSError: it cannot be written.
        """
        mine = claimed_name(self._target, claimant)
        if not os.path.lexists(mine):
            return
        if os.path.lexists(self._target):
            raise FileExistsError(f"there is another file at {shown(self._target)}")
        write_state(mine, state)
        mine.rename(self._target)

    def release(self, pause_id: str, claimant: str, outcome: Outcome) -> None:
        """End a claim. A file that has the next pause, or that was taken over, is left alone.

        Args:
            pause_id: the pause of the file.
            claimant: who has claimed it.
            outcome: how the claim ends.
        """
        del pause_id
        mine = claimed_name(self._target, claimant)
        try:
            if outcome == "done":
                mine.unlink()
            else:
                is_undone = outcome == "undone" and not os.path.lexists(self._found)
                mine.rename(self._found if is_undone else claimed_name(self._target, ""))
        except FileNotFoundError:
            return


def _to_take_over(target: Path) -> Path:
    names = claimed_names(target)
    for name in names:
        if not is_held(name):
            return name
    raise PausedStateError(
        why_claimed(names[0]) if names else f"there is no saved pause at {shown(target)}"
    )
