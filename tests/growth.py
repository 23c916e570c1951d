"""How fast the time of a function grows with the size of its input."""

import gc
import time

FACTOR = 8
"""How much larger the second size is."""


def growth(make, size):
    """How many times longer a function takes for an input that is `FACTOR` times larger.

    The CPU time of this thread counts, and the best of several runs, so that a busy machine does not matter.

    Args:
        make: takes a size, returns a function without arguments.
        size: the smaller size.
    """
    small, large = _seconds(make(size)), _seconds(make(FACTOR * size))
    return large / max(small, 1e-4)  # below that, times are noise


def is_linear(make, size):
    """Whether the time grows in proportion to the size: it would be 64 times longer if quadratic."""
    return growth(make, size) < 3.5 * FACTOR


def _seconds(act, runs=3):
    times = []
    for _ in range(runs):
        gc.disable()  # its time depends on everything else that is in memory
        try:
            start = time.thread_time()
            act()
            times.append(time.thread_time() - start)
        finally:
            gc.enable()
    return min(times)
