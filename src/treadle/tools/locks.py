"""Locks by key: calls that share a key never overlap, in a run, its subagents, and runs that share a `Locks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from treadle import labels
from treadle.effects import Signal, Steps, Wait
from treadle.errors import TreadleError
from treadle.queues import Queues, is_free

R = TypeVar("R")


class LockedError(TreadleError, RuntimeError):
    """A key is in use, and the call must not wait for it, since it holds other keys."""


class Locks(Queues):
    """A table of locks by key. Waiting calls get a key in order of arrival.

    Loops share locks if they get the same table as ``locks=``. It is thread-safe. A forked child has a
    separate table, which is empty.
    """

    def __init__(self) -> None:
        super().__init__()

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
                if not (yield is_free(ticket, key, labels.LOCK)):
                    if not may_wait:
                        raise LockedError(f"{key!r} is in use by another call; try again later")
                    yield Wait(ticket)
            return (yield from steps)
        finally:
            for key, ticket in reversed(held):
                self.leave(key, ticket)
