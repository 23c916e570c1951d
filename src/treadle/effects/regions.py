"""Bounded steps inside a carrier: on asyncio, they run in the task of the carrier.

When a bound strikes, it cancels that task. The cancellation is raised in the running callable, then
in the steps, and becomes the outcome of the `Bounded` when it leaves the region. If the callable
ignores it for the grace period, the task is abandoned, and another carrier ends the steps of the
region and continues the steps around it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from treadle.effects import cleanup
from treadle.effects.carriers import AsyncioCarrier, CallersTask
from treadle.effects.effects import Bounded, Cancelled, Effect, Stopped, TimeLimitReached
from treadle.effects.signal_bridge import call_on_loop

if TYPE_CHECKING:
    from treadle.effects.async_driver import AsyncDriver

TURNS = 2
"""The number of passes of the event loop that a task gets after its time limit, and after its grace period:
if the loop was paused, the task may not have run before."""


class Region:
    """The steps of a `Bounded` that run in the task of a carrier.

    Args:
        effect: the effect.
        driver: drives the steps.
        carrier: the carrier of that driver.
    """

    __slots__ = (
        "_carrier", "_driver", "_has_limit", "_is_over", "_ticket", "_timer", "reason", "until",
    )  # fmt: skip

    def __init__(self, effect: Bounded, driver: AsyncDriver, carrier: AsyncioCarrier) -> None:
        self.until = effect.until
        self._has_limit = effect.seconds is not None
        self._driver = driver
        self._carrier = carrier
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._ticket: object = None
        self.reason: Exception | None = None
        if effect.seconds is not None:
            over = TimeLimitReached(f"it took longer than {effect.seconds:g} s")
            left = max(0.0, effect.seconds)
            self._timer = carrier.loop.call_later(left, self._time_is_up, over)
        if effect.until is not None:
            self._ticket = effect.until.subscribe(self._stop)

    @classmethod
    def enter(cls, effect: Bounded, driver: AsyncDriver, carrier: AsyncioCarrier) -> Region:
        """Bound the steps of an effect, which run in the task of a carrier from here on."""
        region = carrier.idle_region
        if region is None or region.until is not effect.until or effect.seconds is not None:
            region = cls(effect, driver, carrier)
        else:
            carrier.idle_region = None
            region._is_over = False
        carrier.regions.append(region)
        return region

    def disarm(self) -> None:
        """Cancel the timer and the subscription, so that the bound no longer strikes."""
        if self._timer is not None:
            self._timer.cancel()
        if self.until is not None:
            self.until.unsubscribe(self._ticket)

    def _stop(self) -> None:
        """Strike; called in the thread that sets the signal."""
        call_on_loop(
            lambda: self._strike(Stopped()),
            self._carrier.home,
            self._carrier.loop.call_soon_threadsafe,
            asyncio.current_task,
        )

    def leave(self, task: CallersTask) -> None:
        """Leave the region: its steps have ended in a task."""
        if self._carrier is task:  # else another task continues
            self._is_over = True
            carrier = self._carrier
            carrier.regions.remove(self)
            if self._has_limit:
                self.disarm()
            else:  # kept, since the same signal bounds one batch of calls after another
                idle, carrier.idle_region = carrier.idle_region, self
                if idle is not None:
                    idle.disarm()

    def ends_here(self) -> bool:
        """Whether this bound ends the steps, and neither an outer bound nor the end of the carrier does."""
        carrier = self._carrier
        if self.reason is None or carrier.is_ending or carrier.is_abandoned:
            return False
        return next(region for region in carrier.regions if region.reason is not None) is self

    def _strike(self, reason: Exception) -> None:
        # Another thread may have set the signal while the steps ended.
        if self.reason is None and not self._is_over and not self._carrier.is_abandoned:
            self.reason = reason
            self._carrier.interrupt()
            self._carrier.loop.call_later(cleanup.GRACE_SECONDS, self._check_grace)

    def _time_is_up(self, reason: Exception, turns: int = TURNS) -> None:
        if self._is_over:
            return
        if turns:
            self._timer = None  # it has fired
            self._carrier.loop.call_soon(self._time_is_up, reason, turns - 1)
        else:
            self._strike(reason)

    def _check_grace(self, turns: int = TURNS) -> None:
        """Replace the carrier if its task is still in the region after the grace period."""
        carrier = self._carrier
        if self._is_over or carrier.is_abandoned or carrier.is_ending:
            return
        left = carrier.deadline - time.monotonic()
        if left > 0:
            self._carrier.loop.call_later(left, self._check_grace)
        elif turns:
            self._carrier.loop.call_soon(self._check_grace, turns - 1)
        else:
            struck = next(region for region in carrier.regions if region.reason is not None)
            struck.replace_carrier()

    def move(self, driver: AsyncDriver, carrier: AsyncioCarrier) -> None:
        """Continue in another carrier."""
        self._driver, self._carrier = driver, carrier

    def replace_carrier(self) -> None:
        """Abandon the carrier, whose callable ignores its cancellation, and continue in another one."""
        carrier = self._carrier
        place = carrier.regions.index(self)
        outer, carrier.regions = carrier.regions[:place], carrier.regions[place:]
        # The steps of the carrier, and those of each region around this one.
        generators, ended = carrier.generators[: place + 1], carrier.generators[place + 1 :]
        following = cast("AsyncioCarrier", carrier.group.replaced(carrier))
        driver = self._driver.in_task(following)

        async def end() -> None:
            following.is_unwinding = True
            await driver.clean_up_all(ended)
            following.is_unwinding = False
            raise Cancelled() if following.is_ending else self.reason or Stopped()

        def continued() -> Coroutine[Any, Any, Any]:
            """The outcome of the outermost generator; each generator waits for the next inner one."""
            outcome = end()
            for steps, bound in zip(reversed(generators), (*reversed(outer), None), strict=True):
                if bound is not None:
                    bound.move(driver, following)
                outcome = driver.drive(steps, Outcome(outcome), bound)
            following.regions = outer
            return outcome

        following.start(continued)


class Outcome(Effect):
    """Await the outcome of an effect that another task began to perform."""

    __slots__ = ("outcome",)

    def __init__(self, outcome: Coroutine[Any, Any, Any]) -> None:
        self.outcome = outcome
