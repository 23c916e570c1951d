"""SystemExit: that of a callable is the failure of the callable, that of a signal handler ends the program."""

from __future__ import annotations

import functools
from types import CodeType
from typing import Any


def is_exit(error: BaseException) -> bool:
    """Whether a callable raised SystemExit, as ``sys.exit()`` does.

    A handler of a process signal may raise it as well, to end the program. Python calls such a handler between
    two instructions of the main thread, so its exception appears to come from the callable that was interrupted;
    but the traceback has the frame of the handler.
    """
    return isinstance(error, SystemExit) and not _is_of_signal_handler(error)


def _is_of_signal_handler(error: BaseException) -> bool:
    import signal  # noqa: PLC0415 - hardly ever needed

    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    """The code of a signal handler; None for one that is not written in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    made: Any = handler
    for candidate in (made, getattr(made.__class__, "__call__", None)):  # noqa: B004 - inspected, not called
        code = getattr(getattr(candidate, "__func__", candidate), "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None
