"""Locks by key: calls that share a key never overlap, in a run, its children, and runs that share a table."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import TypeVar

from treadle import labels
from treadle.effects import Call, Signal, Steps, Wait
from treadle.errors import TreadleError

R = TypeVar("R")


class LockedError(TreadleError, RuntimeError):
    """A key is taken, and whoever wants it may not wait, since it holds others."""


class Locks:
    """Who holds which key, and who waits for it, first come, first served.

    Give one to several loops, as ``locks=``, to have their runs share it; threads may share it too.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[Signal]] = {}
        self._mutex = threading.Lock()

    def enter(self, key: str) -> Signal:
        """Line up for a key.

        Returns:
            A ticket, which is set as soon as the key is held.
        """
        ticket = Signal()
        with self._mutex:
            queue = self._queues.setdefault(key, deque())
            queue.append(ticket)
            is_first = queue[0] is ticket
        if is_first:
            ticket.set()
        return ticket

    def leave(self, key: str, ticket: Signal) -> None:
        """Give a key back, or leave the line for it."""
        with self._mutex:
            queue = self._queues[key]
            queue.remove(ticket)
            following = queue[0] if queue else None
            if following is None:
                del self._queues[key]
        if following is not None:
            following.set()

    def holding(
        self,
        keys: Mapping[str, bool],
        steps: Steps[R],
    ) -> Steps[R]:
        """Run steps while holding some keys.

        Args:
            keys: in an order that is the same for all who take several of them; each with whether to wait where
                it is taken.
            steps: have not been started.

        Raises:
            LockedError: a key is taken, and it may not wait.
        """
        held: list[tuple[str, Signal]] = []
        try:
            for key, may_wait in keys.items():
                ticket = self.enter(key)
                held.append((key, ticket))
                # What other runs hold comes from outside, and is an effect therefore.
                is_free = yield Call(_is_set, ticket, label=labels.LOCK, key=key)
                if not is_free:
                    if not may_wait:
                        raise LockedError(f"{key!r} is in use by another call; try again later")
                    yield Wait(ticket)
            return (yield from steps)
        finally:
            for key, ticket in reversed(held):
                self.leave(key, ticket)


def _is_set(ticket: Signal) -> bool:
    return ticket.is_set
