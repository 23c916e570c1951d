"""Where items of a stream wait: at a stage with few places, and for their turn at a composer."""

from __future__ import annotations

from collections import deque

from treadle.pipeline.effects import Signal, Steps, Wait


class Gate:
    """Lets a few pass at a time; the others wait in line.

    Args:
        places: how many may be inside at once.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._line: deque[Signal] = deque()

    def enter(self) -> Steps[None]:
        """Wait for a place and take it."""
        if self._free:
            self._free -= 1
            return
        turn = Signal()
        self._line.append(turn)
        try:
            yield Wait(turn)
        except BaseException:
            if turn.is_set:  # the place was given to one that is cancelled: it goes to the next
                self.leave()
            else:
                self._line.remove(turn)
            raise

    def leave(self) -> None:
        """Give the place to the next in line, or back."""
        if self._line:
            self._line.popleft().set()
        else:
            self._free += 1


class Turnstile:
    """Lets items pass in the order of their numbers, for a composer whose memo depends on it.

    Args:
        once: no item comes here twice. Else each has it to itself until it is through the pipeline.
    """

    def __init__(self, *, once: bool) -> None:
        self._once = once
        self._passed: set[int] = set()
        self._next = 0
        self._line: dict[int, Signal] = {}

    def take(self, number: int) -> Steps[None]:
        """Wait until every earlier item has passed, and pass."""
        if self._next < number:
            self._line[number] = Signal()
            yield Wait(self._line[number])
        if self._once:
            self.passed(number)

    def passed(self, number: int) -> None:
        """Note that an item is through, or will never come."""
        if number < self._next:
            return
        self._passed.add(number)
        while self._next in self._passed:
            self._passed.remove(self._next)
            self._next += 1
        turn = self._line.pop(self._next, None)
        if turn is not None:
            turn.set()
