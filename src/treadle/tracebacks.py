"""Tracebacks of user-supplied code."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TypeVar, cast

from treadle.redaction import redacted

E = TypeVar("E", bound=BaseException)

MAX_FRAMES = 1_000
"""The number of frames of one exception that are formatted, from the last. Python's recursion limit is 1,000."""
MAX_LENGTH = 20_000
"""The maximum length of a formatted traceback, in characters."""
MAX_LINE = 1_000
"""The maximum length of one of its lines, in characters."""

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
    for one in causes_of(error):
        trace = _first_of_user(traceback_of(one))
        if trace is not None:
            BaseException.with_traceback(one, trace)
    return error


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those that led to it, each once."""
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


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


def leaves_of(error: BaseException) -> list[BaseException]:
    """The exceptions in a group and in the groups within it, in order; of another exception, itself alone.

    A loop and not a recursion: groups may be nested more deeply than calls. Each group counts once.
    """
    leaves: list[BaseException] = []
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, BaseExceptionGroup):
            leaves.append(one)
            continue
        group = cast("BaseExceptionGroup[BaseException]", one)
        if id(group) not in seen:
            seen.add(id(group))
            waiting.extend(reversed(group.exceptions))
    return leaves


def format_traceback(error: BaseException) -> str:
    """Format an exception with its causes and their tracebacks, as Python does, as a text of at most `MAX_LENGTH`.

    Credentials that can be recognized are removed, see `redacted`. The start and the end are kept: where the
    user's code was entered, and where it failed.
    """
    import traceback  # noqa: PLC0415 - only failures need it

    try:
        lines = "".join(traceback.format_exception(error, limit=-MAX_FRAMES)).splitlines()
    except Exception:  # noqa: BLE001 - an attribute of a user-supplied exception may raise
        return f"{type(error).__name__}: its traceback cannot be formatted"
    lines = [redacted(shortened(line)) for line in lines]
    if sum(map(len, lines)) + len(lines) <= MAX_LENGTH:
        return "\n".join(lines)
    start = _fitting(lines, MAX_LENGTH // 4)
    end = _fitting(lines[start:][::-1], MAX_LENGTH - MAX_LENGTH // 4 - MAX_LINE)
    left_out = f"  [{len(lines) - start - end:,} lines left out]"
    return "\n".join((*lines[:start], left_out, *lines[len(lines) - end :]))


def shortened(line: str) -> str:
    """A line of at most `MAX_LINE` characters, and a note if it was longer."""
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} [cut]"


def _fitting(lines: Sequence[str], length: int) -> int:
    """The number of lines at the start that fit into a length."""
    ends = itertools.accumulate(len(line) + 1 for line in lines)
    return sum(1 for _ in itertools.takewhile(lambda end: end <= length, ends))


# The accessor of the base class, since that of a subclass may raise.
traceback_of = vars(BaseException)["__traceback__"].__get__
