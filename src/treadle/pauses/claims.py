"""Claims: a paused run is resumed by one run only, and on purpose by another if that one was interrupted."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable
from typing import Literal, Protocol, TypeAlias

from treadle.errors import PausedStateError
from treadle.pauses.resume_holder import ResumeHolder

HOW = "calls that were approved may have run; to run them all the same, pass take_over=True"
"""How a pause that was claimed is resumed nevertheless."""
MAX_CLAIMS = 100_000
"""The number of resumed pauses that a process remembers, without ``Pauses(claims=...)``."""

Outcome: TypeAlias = Literal["done", "interrupted", "undone"]
"""How a claim ends: ``done`` after a result was returned, so that the pause is never resumed again;
``interrupted`` after an exception in the middle, so that it can only be taken over; ``undone`` if nothing ran,
such as in a run that was cancelled before it began."""


class ClaimStore(Protocol):
    """Stores which pauses are resumed, each with the claimant. Each method may be sync or async.

    A store is shared by all processes that may resume a pause. An exception of a method is raised to the caller of
    `Loop.resume`, and nothing runs.
    """

    def claim(self, pause_id: str, claimant: str, *, take_over: bool) -> bool | Awaitable[bool]:
        """Claim a pause, in one atomic step.

        Args:
            pause_id: the pause.
            claimant: a text that is unique to this attempt to resume.
            take_over: also claim it if another claimant has it, unless that one is still running, as far as the
                store can know, or has ended its claim with ``done``.

        Returns:
            Whether the claimant has the pause now.

        Raises:
            PausedStateError: it has not; the text says why.
        """
        ...

    def release(self, pause_id: str, claimant: str, outcome: Outcome) -> Awaitable[None] | None:
        """End a claim. It has no effect if the claimant does not have the pause, such as after a refused claim.

        Args:
            pause_id: the pause.
            claimant: the text with which it was claimed.
            outcome: how the claim ends.
        """
        ...


class ProcessClaims:
    """The claims of this process: the default."""

    # Operations of dicts are atomic, so that no lock is needed, which a fork could leave locked.
    def __init__(self) -> None:
        self._claims: OrderedDict[str, str] = OrderedDict()
        self._interrupted: OrderedDict[str, str] = OrderedDict()

    def claim(self, pause_id: str, claimant: str, *, take_over: bool) -> bool:
        """Claim a pause, in one atomic step."""
        holder = self._claims.setdefault(pause_id, claimant)
        if holder == claimant:
            self._interrupted.pop(pause_id, None)  # of a claim that was forgotten
            if len(self._claims) > MAX_CLAIMS:
                self._claims.popitem(last=False)
            return True
        if pause_id in self._interrupted and not take_over:
            raise PausedStateError(claimed(pause_id, None))
        if self._interrupted.pop(pause_id, None) is None:
            return False
        self._claims[pause_id] = claimant
        return True

    def release(self, pause_id: str, claimant: str, outcome: Outcome) -> None:
        """End a claim."""
        if self._claims.get(pause_id) != claimant:
            return
        if outcome == "undone":
            self._claims.pop(pause_id, None)
        elif outcome == "interrupted":
            self._interrupted[pause_id] = claimant
            if len(self._interrupted) > MAX_CLAIMS:
                self._interrupted.popitem(last=False)


def claimed(what: str, holder: ResumeHolder | None, since: float | None = None) -> str:
    """Why a pause, or its file, cannot be resumed: another run has claimed it, at a time since the epoch.

    Without a holder, that run was interrupted.
    """
    at = "" if since is None else time.strftime(" at %Y-%m-%d %H:%M:%S UTC", time.gmtime(since))
    if holder is None:
        return f"{what!r} was claimed{at}, and the run that resumed it was interrupted; {HOW}"
    who = f"{what!r} was claimed by process {holder.pid} on {holder.host!r}{at}"
    ends = {
        True: ", which is still running",
        False: f", which has ended since; {HOW}",
        None: f"; if that process has ended: {HOW}",
    }
    return who + ends[holder.is_running()]
