"""Clocks that only a test advances."""

from treadle.effects import Call, Now, Sleep, map_effects


class SetClock:
    """Tells the time that it is set to."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


class SleepClock:
    """The clock of a run, that sleeping advances; no time passes."""

    def __init__(self, now=1000.0):
        self.now, self.slept = now, []

    def middleware(self, steps):
        return map_effects(steps, self._see)

    def _see(self, effect):
        if isinstance(effect, Now):
            return Call(lambda: self.now, label="now")
        if isinstance(effect, Sleep):
            return Call(self._advance, effect.seconds, label="now")
        return effect

    def _advance(self, seconds):
        self.slept.append(round(seconds, 3))
        self.now += seconds
