"""The signals that end the command: Ctrl-C, SIGTERM and SIGHUP.

During a run, the first Ctrl-C cancels the run, and the second ends the command. SIGTERM and SIGHUP do what Ctrl-C
would do at that moment, once: a terminal that is closed may send several, which should not interrupt the end.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType

from treadle.cli.exits import Exit
from treadle.loop import RunHandle

ENDING = "SIGINT", "SIGTERM", "SIGHUP"
received: list[int] = []
"""The numbers of the signals SIGTERM and SIGHUP that this command has received, the first one first."""


class InterruptedTwiceError(KeyboardInterrupt):
    """The second Ctrl-C during a run."""


@contextlib.contextmanager
def signals_interrupt() -> Generator[None]:
    """Make SIGTERM and SIGHUP act as Ctrl-C does, unless they are ignored, as by ``nohup``."""

    def ended(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            return
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # Ctrl-C is ignored
            handler = _ending[-1]
        handler(number, frame)

    received.clear()
    with handled(ended, "SIGTERM", "SIGHUP"):
        yield


@contextlib.contextmanager
def interrupts_end(handle: RunHandle) -> Generator[None]:
    """Cancel the run on the first Ctrl-C, and raise InterruptedTwiceError on the second."""

    def interrupted(_number: int, _frame: object) -> None:
        if handle.ended.is_set:
            raise InterruptedTwiceError
        handle.cancel()

    _ending.append(interrupted)
    try:
        with handled(interrupted, "SIGINT"):
            yield
    finally:
        _ending.remove(interrupted)


@contextlib.contextmanager
def closed_in_order() -> Generator[contextlib.ExitStack]:
    """What is open during a command, closed at its end in any case: no signal leaves a process that it started."""
    stack = contextlib.ExitStack()
    try:
        yield stack
    finally:
        with handled(signal.SIG_IGN, *ENDING):  # closing is bounded
            stack.close()


def exit_code(code: int) -> int:
    """The exit code of the command: if a signal has ended it, 128 plus its number, as in shells."""
    return 128 + received[0] if received and code == Exit.INTERRUPTED else code


def stopped_by(number: int) -> int:
    """The exit code of a worker that a signal has stopped: 0 for SIGTERM, with which services are stopped."""
    return Exit.OK if number == signal.SIGTERM else 128 + number


def not_ignored(*names: str) -> list[int]:
    """The numbers of signals that this system has, and that are not ignored.

    A process that was started in the background ignores interrupts, and one of ``nohup`` SIGHUP. They keep it so.
    """
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN]


Handler = Callable[[int, FrameType | None], object]

_ending: list[Handler] = [signal.default_int_handler]
"""What ends the command, the last one of them at the moment."""


@contextlib.contextmanager
def handled(handler: Handler | signal.Handlers, *names: str) -> Generator[None]:
    """Handle signals, by their names, that are not ignored. Only the main thread can do so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in not_ignored(*names)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)
