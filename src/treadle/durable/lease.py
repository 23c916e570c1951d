"""The lease of a run: which process drives it, until when, and the thread that renews it.

A lease keeps other processes from a run; its token makes the run safe. The token grows with each owner, and every
write checks it. So a clock that is wrong, or a process that was suspended, lets two processes drive a run at the
worst, of which one can write.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from treadle.errors import OptionError
from treadle.fast_dataclass import fast_dataclass
from treadle.forks import renew_after_fork
from treadle.pauses.resume_holder import ResumeHolder

POLL_SECONDS = 1.0
"""How often a process looks for requests to cancel the runs that it drives, in seconds."""
LEASE = "owner, leased_at, expires_at, lease_seconds"
"""The columns of a lease, in the order of the fields of `StoredLease`."""
log = logging.getLogger("treadle.durable")
_ours: set[str] = set()
"""The owners in this process."""


def new_owner() -> str:
    """A text that names this process, and one lease of it."""
    owner = str(ResumeHolder.here())
    _ours.add(owner)
    return owner


def forget_owner(owner: str) -> None:
    """Note that a lease of this process has ended, even if this cannot be stored."""
    _ours.discard(owner)


@fast_dataclass
class Driver:
    """The process that drives a run.

    Args:
        host: the name of its machine; empty if it is not known.
        pid: its process id; 0 if it is not known.
        since: when it took the run, in seconds since the epoch.
        until: when another process may take the run over unless this one renews its lease, as ``since``.
    """

    host: str
    pid: int
    since: float
    until: float

    def __str__(self) -> str:
        who = f"process {self.pid} on host {self.host}" if self.pid else "an unknown process"
        if self.pid == os.getpid():
            who = f"another task of this process ({self.pid})"
        return (
            f"{who} since {_at(self.since)}; another may take it over after {_at(self.until)}, "
            "unless the lease is renewed"
        )


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class StoredLease(NamedTuple):
    """The lease of a run as it is in the file.

    Args:
        owner: see `new_owner`; None if the run has no driver.
        since: when it was taken, in seconds since the epoch.
        until: when it ends, as ``since``.
        seconds: how long it lasts after it was renewed.
    """

    owner: str | None
    since: float
    until: float
    seconds: float

    def driver(self, now: float) -> Driver | None:
        """The process that holds it; None if it has ended, or its process is known to have ended.

        Args:
            now: the time, in seconds since the epoch.
        """
        # After the clock was put back, an end may be far away. The clock may also be put back while a process
        # drives the run, so an end that is at most two leases away counts.
        if self.owner is None or not 0 < self.until - now <= 2 * self.seconds:
            return None
        claimant = ResumeHolder.parse(self.owner)
        if claimant is None:
            return Driver("", 0, self.since, self.until)
        is_running = claimant.is_running()
        is_given_up = claimant.pid == os.getpid() and self.owner not in _ours
        if is_running is False or (is_running and is_given_up):
            return None
        return Driver(claimant.host, claimant.pid, self.since, self.until)


class Lease(NamedTuple):
    """A lease that this process has taken.

    Args:
        owner: names the process and the lease.
        token: the number of the lease among those of the run.
        seconds: how long it lasts after it was renewed.
    """

    owner: str
    token: int
    seconds: float


def check_seconds(seconds: float) -> None:
    """Check the duration of a lease.

    Raises:
        OptionError: it is not a positive number.
    """
    is_number = isinstance(seconds, (int, float))  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_number or not 0 < seconds < float("inf"):
        raise OptionError(f"SQLiteJournal: lease_seconds: expected more than 0, got {seconds!r}")


class Keeper:
    """A daemon thread that calls a function again and again.

    Args:
        beat: the function. If it raises, this is logged once, until it succeeds again.
        seconds: the time between the calls.
    """

    def __init__(self, beat: Callable[[], object], seconds: float) -> None:
        self._beat = beat
        self._seconds = seconds
        self._forget()
        renew_after_fork(self, Keeper._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._end: threading.Event | None = None

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if self._end is None:
                self._end = threading.Event()
                thread = threading.Thread(
                    target=self._work, args=(self._end,), name="treadle-journal", daemon=True
                )
                thread.start()

    def stop(self) -> None:
        """Have the thread end. It may still be in a call."""
        with self._lock:
            if self._end is not None:
                self._end.set()
                self._end = None

    def _work(self, end: threading.Event) -> None:
        is_failing = False
        while not end.wait(self._seconds):
            try:
                self._beat()
                is_failing = False
            except Exception:
                if not is_failing:
                    log.warning("the leases of runs could not be renewed", exc_info=True)
                is_failing = True
