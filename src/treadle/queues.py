"""Queues by key, whose first members have their turn, in order of arrival; in threads and event loops alike."""

from __future__ import annotations

import threading
from collections import deque
from typing import TypeVar

from treadle.effects import Call, Signal, Steps, Wait
from treadle.forks import renew_after_fork

R = TypeVar("R")


class Queues:
    """A table of queues by key. It is thread-safe. A forked child has a separate table, which is empty.

    Args:
        most: how many members of each queue may have their turn at the same time.
    """

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._queues: dict[str, deque[Signal]] = {}
        self._mutex = threading.Lock()
        self._is_used = False

    def _renew(self) -> None:
        """Forget all queues: their members are in the parent process."""
        self._queues, self._mutex = {}, threading.Lock()

    def enter(self, key: str) -> Signal:
        """Join the queue of a key.

        Returns:
            A ticket, which is set when its holder has its turn.
        """
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

    def taking(self, key: str, steps: Steps[R], label: str) -> Steps[R]:
        """Wait for a turn, and run steps in it.

        Args:
            key: the key of the queue.
            steps: the steps, not started.
            label: that of the effect that looks whether the turn has come.
        """
        ticket = self.enter(key)
        try:
            if not (yield is_free(ticket, key, label)):
                yield Wait(ticket)
            return (yield from steps)
        finally:
            self.leave(key, ticket)


def is_free(ticket: Signal, key: str, label: str) -> Call:
    """Whether a ticket has its turn: an effect, since other runs affect the answer."""
    return Call(_is_set, ticket, label=label, key=key)


def _is_set(ticket: Signal) -> bool:
    return ticket.is_set
