"""Queues by key, whose first members have their turn, in order of arrival; in threads and event loops alike."""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Mapping
from typing import TypeVar

from treadle import labels
from treadle.effects import Call, Signal, Steps, Wait
from treadle.errors import TreadleError
from treadle.forks import renew_after_fork

R = TypeVar("R")
_is_set = operator.attrgetter("is_set")


class LockedError(TreadleError, RuntimeError):
    """A key is in use, and the call must not wait for it, since it holds other keys."""


class Queues:
    """A table of queues by key, each with ``most`` turns at a time; thread-safe, and empty in a forked child."""

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._is_used = False
        self._renew()

    def _renew(self) -> None:
        """Forget all queues: after a fork, their members are in the parent process."""
        self._queues: dict[str, deque[Signal]] = {}
        self._mutex = threading.Lock()

    def enter(self, key: str) -> Signal:
        """Join the queue of a key; the ticket is set when its holder has its turn."""
        if not self._is_used:  # most runs have a table that is never used
            self._is_used = True
            renew_after_fork(self, Queues._renew)
        ticket = Signal()
        with self._mutex:
            queue = self._queues.setdefault(key, deque())
            queue.append(ticket)
            if len(queue) <= self._most:
                ticket.set()  # it has no subscribers yet
        return ticket

    def leave(self, key: str, ticket: Signal) -> None:
        """End a turn, or leave the queue."""
        with self._mutex:
            queue = self._queues.get(key, deque())
            if ticket not in queue:  # it was taken before a fork, and this is the child
                return
            queue.remove(ticket)
            following = queue[self._most - 1] if len(queue) >= self._most else None
            if not queue:
                del self._queues[key]
        if following is not None:
            following.set()

    def holding(
        self, keys: Mapping[str, bool], steps: Steps[R], label: str = labels.LOCK
    ) -> Steps[R]:
        """Run steps while having the turn of each key, in one order for all that hold several.

        ``keys`` has whether to wait for each; ``label`` is that of the effects that look whether a turn has come.

        Raises:
            LockedError: a key is in use, and must not be waited for.
        """
        held: list[tuple[str, Signal]] = []
        try:
            for key, may_wait in keys.items():
                ticket = self.enter(key)
                held.append((key, ticket))
                if not (yield Call(_is_set, ticket, label=label, key=key)):
                    if not may_wait:
                        raise LockedError(f"{key!r} is in use by another call; try again later")
                    yield Wait(ticket)
            return (yield from steps)
        finally:
            for key, ticket in reversed(held):
                self.leave(key, ticket)


class Locks(Queues):
    """A table of locks by key. Waiting calls get a key in order of arrival.

    Loops share locks if they get the same table as ``locks=``. It is thread-safe. A forked child has a
    separate table, which is empty.
    """

    def __init__(self) -> None:
        super().__init__()
