"""Queues by key, whose first members have their turn, in order of arrival."""

from __future__ import annotations

import threading
from collections import deque
from typing import TypeVar

from treadle import labels
from treadle.effects import Call, Signal, Steps, Wait
from treadle.forks import renew_after_fork

R = TypeVar("R")


class Turns:
    """A table of queues. It is thread-safe; a forked child has a separate table, which is empty.

    Args:
        most: how many of each queue may have their turn at the same time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._queues: dict[str, deque[Signal]] = {}
        self._mutex = threading.Lock()
        renew_after_fork(self, Turns._renew)

    def _renew(self) -> None:
        """Forget all queues: those who wait in them are in the parent process."""
        self._queues, self._mutex = {}, threading.Lock()

    def taking(self, key: str, steps: Steps[R]) -> Steps[R]:
        """Wait for a turn, and run steps in it.

        Args:
            key: the key of the queue.
            steps: the steps, not started.
        """
        ticket = self._enter(key)
        try:
            # An effect, since other runs affect the answer.
            if not (yield Call(_is_set, ticket, label=labels.LIMIT, key=key)):
                yield Wait(ticket)
            return (yield from steps)
        finally:
            self._leave(key, ticket)

    def _enter(self, key: str) -> Signal:
        ticket = Signal()
        with self._mutex:
            queue = self._queues.setdefault(key, deque())
            queue.append(ticket)
            if len(queue) <= self._most:
                ticket.set()  # it has no subscribers yet
        return ticket

    def _leave(self, key: str, ticket: Signal) -> None:
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


def _is_set(ticket: Signal) -> bool:
    return ticket.is_set
