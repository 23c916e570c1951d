"""What is due later, in the thread that asks."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

SWEEP_AT = 64
"""From how many timers on those that nobody wants any more are looked for."""


class _Timer(NamedTuple):
    due: float
    number: int
    act: Callable[[], None]
    wanted: Callable[[], bool]


class Timers:
    """Things to do at some time, unless nobody wants them any more by then."""

    def __init__(self) -> None:
        self._heap: list[_Timer] = []
        self._numbers = itertools.count()
        self._sweep_at = SWEEP_AT

    def add(self, seconds: float, act: Callable[[], None], wanted: Callable[[], bool]) -> None:
        """Have something done.

        Args:
            seconds: how long from now.
            act: does it.
            wanted: whether it is still to be done.
        """
        if len(self._heap) >= self._sweep_at:  # a long stream leaves many behind
            self._heap = [timer for timer in self._heap if timer.wanted()]
            heapq.heapify(self._heap)
            self._sweep_at = max(SWEEP_AT, 2 * len(self._heap))
        timer = _Timer(time.monotonic() + seconds, next(self._numbers), act, wanted)
        heapq.heappush(self._heap, timer)

    def fire(self) -> None:
        """Do what is due."""
        while self._heap and self._heap[0].due <= time.monotonic():
            timer = heapq.heappop(self._heap)
            if timer.wanted():
                timer.act()

    def wait(self, at_most: float) -> float:
        """How many seconds there are until something is due.

        Args:
            at_most: the answer where nothing is, or not so soon, in seconds.
        """
        while self._heap and not self._heap[0].wanted():
            heapq.heappop(self._heap)
        if not self._heap:
            return at_most
        return min(max(0.0, self._heap[0].due - time.monotonic()), at_most)
