"""Locks by key: calls that share a key never overlap, in a run, its subagents, and runs that share a `Locks`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import TypeVar

from treadle import labels
from treadle.effects import Call, Signal, Steps, Wait
from treadle.errors import TreadleError
from treadle.forks import renew_after_fork

R = TypeVar("R")


class LockedError(TreadleError, RuntimeError):
    """A key is in use, and the call must not wait for it, since it holds other keys."""


class Locks:
    """A table of locks by key. Waiting calls get a key in order of arrival.

    Loops share locks if they get the same table as ``locks=``. It is thread-safe. A forked child has a
    separate table, which is empty.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[Signal]] = {}
        self._mutex = threading.Lock()
        self._is_used = False

    def _renew(self) -> None:
        """Forget all keys: the calls that hold them, or wait for them, are those of the parent process."""
        self._queues, self._mutex = {}, threading.Lock()

    def enter(self, key: str) -> Signal:
        """Queue for a key.

        Returns:
            A ticket, which is set when the caller holds the key.
        """
        if not self._is_used:  # most runs have a table that is never used
            self._is_used = True
            renew_after_fork(self, Locks._renew)
        ticket = Signal()
        with self._mutex:
            queue = self._queues.setdefault(key, deque())
            queue.append(ticket)
            if len(queue) == 1:
                ticket.set()  # it has no subscribers yet
        return ticket

    def leave(self, key: str, ticket: Signal) -> None:
        """Release a key, or leave the queue for it."""
        with self._mutex:
            queue = self._queues.get(key, deque())
            if ticket not in queue:  # it was taken before a fork, and this is the child
                return
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
        """Run steps while holding keys.

        Args:
            keys: each key, with whether to wait if it is in use. The order must be the same for all calls that
                hold several of them.
            steps: the steps, not started.

        Raises:
            LockedError: a key is in use, and the call must not wait for it.
        """
        held: list[tuple[str, Signal]] = []
        try:
            for key, may_wait in keys.items():
                ticket = self.enter(key)
                held.append((key, ticket))
                # An effect, since other runs affect the answer.
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
