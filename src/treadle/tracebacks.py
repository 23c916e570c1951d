"""Tracebacks of user-supplied code."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

E = TypeVar("E", bound=BaseException)

_INTERNAL = frozenset(
    {"treadle", "anyio", "asyncio", "collections", "concurrent", "threading", "trio"}
)
"""The packages whose frames may lead to user-supplied code: treadle, and what its drivers call it through."""


def from_user_code(error: E) -> E:
    """Let the traceback of an exception, and those of its causes, start at the first frame of user-supplied code.

    The frames before it are treadle's. They refer to the run, so an exception that is kept would keep the run.

    Returns:
        The exception. One that no user-supplied code raised is unchanged.
    """
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        trace = _first_of_user(traceback_of(one))
        if trace is not None:
            BaseException.with_traceback(one, trace)
        one = one.__cause__ or one.__context__
    return error


def _first_of_user(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _INTERNAL:
            return trace
        trace = trace.tb_next
    return None


def has_traceback(error: BaseException) -> bool:
    """Whether an exception, or its cause, was raised; one that was only made has no traceback to show."""
    return traceback_of(error) is not None or error.__cause__ is not None


# The accessor of the base class, since that of a subclass may raise.
traceback_of = vars(BaseException)["__traceback__"].__get__
