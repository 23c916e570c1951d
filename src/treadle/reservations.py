"""Reservations: requests to models that run at the same time keep a limit of tokens or cost together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from treadle import labels
from treadle.effects import Call, Signal, Steps, Wait
from treadle.messages import CHARACTERS_PER_TOKEN, Usage
from treadle.queues import Queues


class Reservation(NamedTuple):
    """One request of a subagent, with the names of its model and loop, and estimated or maximum tokens."""

    model: str | None
    loop: str
    prompt: int
    max_tokens: int | None


class _Largest(NamedTuple):
    """The largest numbers in the responses of a model so far, and the largest estimate of their prompts."""

    estimate: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0
    price: float = 0.0


class Reservations:
    """The requests of subagents that are under way, and draw on one budget.

    A request waits, in order of arrival, until it is admitted; then it is held until its response is counted.
    """

    def __init__(self, key: str) -> None:
        self.held: list[Reservation] = []
        self._key = key
        self._turns = Queues()
        self._released = Signal()
        self._largest: dict[tuple[str | None, str | None], _Largest] = {}

    def hold(self, wanted: Reservation, admits: Callable[[Reservation], bool]) -> Steps[None]:
        """Wait until a request may be sent, and hold it until `release`; effects ask ``admits``, for replays."""
        return self._turns.holding({self._key: True}, self._admitted(wanted, admits), labels.BUDGET)

    def _admitted(self, wanted: Reservation, admits: Callable[[Reservation], bool]) -> Steps[None]:
        while True:
            released = self._released  # read first, so that no release in between is missed
            if (yield Call(admits, wanted, label=labels.BUDGET, key=self._key)):
                break
            yield Wait(released)
        self.held.append(wanted)

    def release(self, wanted: Reservation) -> None:
        """End the reservation of a request, answered or failed; the waiting request checks again."""
        self.held.remove(wanted)
        released, self._released = self._released, Signal()
        released.set()

    def measured(self, request: Reservation, usage: Usage) -> None:
        """Update the expected usage of later responses from the complete usage of a response."""
        output, cost = usage.total_tokens - usage.input_tokens, usage.cost or 0.0
        price = cost / max(1, usage.total_tokens)
        seen = _Largest(request.prompt, usage.input_tokens, output, cost, price)
        for loop in (request.loop, None):
            known = self._largest.get((request.model, loop), seen)
            largest: Any = map(max, known, seen)
            self._largest[request.model, loop] = _Largest(*largest)

    def usage_of(self, request: Reservation) -> Usage | None:
        """What a request may use: as the largest response of its model in its loop, else in any; None before one.

        A prompt that is longer than those before may have a token for each further character.
        """
        known = self._largest.get((request.model, request.loop))
        known = known or self._largest.get((request.model, None))
        if known is None:
            return None
        more = CHARACTERS_PER_TOKEN * max(0, request.prompt - known.estimate)
        prompt = known.input + more
        cost = known.cost + known.price * more
        if request.max_tokens is None:
            return Usage(prompt, known.output, cost=cost)
        total = prompt + request.max_tokens
        return Usage(prompt, request.max_tokens, cost=max(cost, known.price * total))
