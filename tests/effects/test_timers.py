"""The timers of the driver without an event loop."""

import time

from treadle.effects.sync_driver import SWEEP_AT, Timers


class TestTimers:
    def test_fire_in_the_order_they_are_due(self):
        timers, seen, started = Timers(), [], time.monotonic()
        for seconds in (0.002, 0.001, -1, 30):
            timers.add(seconds, lambda seconds=seconds: seen.append(seconds), lambda: True)
        time.sleep(0.003)
        timers.fire()
        assert seen == [-1, 0.001, 0.002]
        left = timers.wait(60)
        assert started + 30 - time.monotonic() <= left <= 30

    def test_do_not_fire_once_they_are_cancelled(self):
        timers, seen = Timers(), []
        timers.add(0, lambda: seen.append(1), lambda: False)
        timers.fire()
        timers.add(30, lambda: seen.append(1), lambda: False)
        assert timers.wait(60) == 60
        assert seen == []

    def test_keep_few_cancelled_entries(self):
        """A long stream with a time limit for each item leaves an entry for each."""
        timers = Timers()
        timers.add(30, list, lambda: True)
        for _ in range(10_000):
            timers.add(3600, list, lambda: False)
        assert len(timers._heap) <= SWEEP_AT + 1
        assert timers.wait(60) < 31
