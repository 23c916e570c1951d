"""Ctrl-C during a run: the first cancels the run, the second ends the command."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator

from treadle.loop import RunHandle


class InterruptedTwiceError(KeyboardInterrupt):
    """The second Ctrl-C during a run."""


@contextlib.contextmanager
def interrupts_end(handle: RunHandle) -> Generator[None]:
    """Cancel the run on the first Ctrl-C, and raise InterruptedTwiceError on the second."""

    def interrupted(_number: int, _frame: object) -> None:
        if handle.ended.is_set:
            raise InterruptedTwiceError
        handle.cancel()

    is_main = threading.current_thread() is threading.main_thread()
    # A process that was started in the background ignores interrupts. Keep it so.
    if not is_main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
