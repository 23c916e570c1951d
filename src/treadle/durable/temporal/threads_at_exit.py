"""The exit of a program that has used Temporal's SDK, whose threads may still hold the interpreter then.

A thread of the SDK that hands over a result executes code of Python. If the program ends at that moment, the
interpreter aborts: https://github.com/temporalio/sdk-python/issues/300.
"""

from __future__ import annotations

import sys
import threading
import time

MAX_SECONDS = 2.0
"""The longest wait for these threads, in seconds. Each needs a few microseconds."""


def wait_for_threads() -> None:
    """Wait until no thread that Python did not start executes code of Python; called at the exit."""
    deadline = time.monotonic() + MAX_SECONDS
    is_busy = True
    while is_busy and time.monotonic() < deadline:
        time.sleep(0.01)  # at least once: a thread that waits for the interpreter has no frame yet
        # `sys._current_frames` is documented, and the only function that has them.
        known = {thread.ident for thread in threading.enumerate()}
        is_busy = not known.issuperset(sys._current_frames())  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
