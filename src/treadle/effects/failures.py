"""The exceptions of callables, and those that the steps see in their place."""

from __future__ import annotations

import gc
import itertools
from types import BuiltinMethodType, GeneratorType
from typing import Any

from treadle.effects.effects import Cancelled, Steps, called_by


class CallCancelled(Exception):  # noqa: N818 - named after what happened to the call
    """A callable raised a cancellation, though the call had not been cancelled."""


class CallExited(Exception):  # noqa: N818 - as above
    """A callable raised SystemExit, as ``sys.exit()`` does.

    Args:
        code: the exit code, or the text that the interpreter would have written.
    """

    def __init__(self, code: Any = None) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return f"the callable called sys.exit({'' if self.code is None else repr(self.code)})"


def failure_of(error: BaseException) -> Exception | None:
    """Return the exception, caused by this one, to raise in its place if steps must not see it; else None.

    A cancellation that was not requested would end a task silently, and a StopIteration or GeneratorExit would
    end the steps. ``sys.exit()`` in a callable ends the callable, as in a thread, and not the program; in a
    handler of a process signal it ends the program, as a KeyboardInterrupt does.
    """
    import asyncio  # noqa: PLC0415 - slow to import, and drivers have done so
    from concurrent.futures import CancelledError  # noqa: PLC0415 - as above

    failure: Exception
    if isinstance(error, (asyncio.CancelledError, CancelledError)):
        failure = CallCancelled("the callable raised CancelledError, but was not cancelled")
    elif isinstance(error, (StopIteration, GeneratorExit)):
        failure = RuntimeError(f"the callable raised {type(error).__name__}")
    elif is_exit(error):
        failure = CallExited(getattr(error, "code", None))
    else:
        return None
    failure.__cause__ = error
    return failure


def is_exit(error: BaseException) -> bool:
    """Whether a callable raised SystemExit, as ``sys.exit()`` does.

    A handler of a process signal may raise it as well, to end the program. Python calls such a handler between
    two instructions of the main thread, so its exception appears to come from the callable that was interrupted;
    but the traceback has the frame of the handler.
    """
    if not isinstance(error, SystemExit):
        return False
    import signal  # noqa: PLC0415 - hardly ever needed, as the next one
    import traceback  # noqa: PLC0415

    handlers: list[Any] = [signal.getsignal(number) for number in signal.valid_signals()]
    called = itertools.chain.from_iterable(map(called_by, handlers))
    codes = {getattr(getattr(one, "__func__", one), "__code__", None) for one in called}
    return all(frame.f_code not in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def interruption_of(steps: Steps[Any]) -> BaseException | None:
    """The interruption that suspended steps handle; None if there is none.

    A KeyboardInterrupt, or the SystemExit of a signal handler, may be raised at any instruction of the steps. The
    steps around it may have a ``finally`` that yields effects, which look like any others. Only the generator that
    is suspended there knows the exception, and only the garbage collector can ask it. No interruption are an
    `Exception`, a cancellation, and ``sys.exit()``.
    """
    waiting: list[Any] = [steps]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for held in gc.get_referents(one):
            kind: Any = held.__class__
            if kind is GeneratorType or kind is BuiltinMethodType:  # the latter is its ``send``
                waiting.append(held)
            elif isinstance(held, BaseException) and not isinstance(held, (Exception, Cancelled)):
                trace = held.__traceback__  # it begins where the exception was caught
                is_handled = trace is not None and trace.tb_frame is getattr(one, "gi_frame", None)
                if is_handled and failure_of(held) is None:
                    return held
    return None
