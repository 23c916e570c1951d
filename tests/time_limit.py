"""Time limits that are reached when a test says so, instead of after some time."""

from treadle.effects import Bounded, Signal, Stopped, TimeLimitReached, map_effects


class TimeLimit:
    """A middleware that makes the time limits of a run independent of the clock."""

    def middleware(self, steps):
        return map_effects(steps, self._see)

    def strike(self):
        """End the steps that were bounded last: their time is up."""
        self._up.set()

    def _see(self, effect):
        is_limited = isinstance(effect, Bounded) and effect.seconds is not None
        return self.bounded(effect) if is_limited else effect

    def bounded(self, effect):
        """Run the steps of a `Bounded` until `strike`, instead of its time limit."""
        up = self._up = Signal()

        def within():
            return (yield Bounded(effect.steps, until=effect.until))

        try:
            return (yield Bounded(within(), until=up))
        except Stopped:
            if up.is_set:
                raise TimeLimitReached from None
            raise
