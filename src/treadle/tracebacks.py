"""Tracebacks of user-supplied code."""

from __future__ import annotations

from typing import TypeVar, cast

from treadle.errors import TreadleError, causes_of
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
    """Let the tracebacks of an exception and of its causes start at the first frame of user-supplied code, if any.

    The frames before it are treadle's. They refer to the run, so an exception that is kept would keep the run. An
    exception of treadle without such a frame has no traceback: its text names the fault.
    """
    for one in causes_of(error):
        trace = traceback_of(one)
        while trace is not None:
            if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] not in _INTERNAL:
                break
            trace = trace.tb_next
        if trace is not None or isinstance(one, TreadleError):
            BaseException.with_traceback(one, trace)
    return error


def was_raised(error: BaseException) -> bool:
    """Whether an exception, or its cause, was raised. A tool may also return one that it never raised."""
    if isinstance(error, TreadleError):  # `from_user_code` may have left it without a traceback
        return True
    return traceback_of(error) is not None or error.__cause__ is not None


def leaves_of(error: BaseException) -> list[BaseException]:
    """The exceptions in a group and in those within it, in order, each group once; else the exception itself."""
    leaves: list[BaseException] = []
    waiting, seen = [error], set[int]()
    while waiting:  # no recursion: groups may be nested more deeply than calls
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
    """Format an exception with its causes, without credentials; of a long text, the start and the end."""
    import traceback  # noqa: PLC0415 - only failures need it

    try:
        lines = "".join(traceback.format_exception(error, limit=-MAX_FRAMES)).splitlines()
    except Exception:  # noqa: BLE001 - an attribute of a user-supplied exception may raise
        return f"{type(error).__name__}: its traceback cannot be formatted"
    text = "\n".join(redacted(shortened(line)) for line in lines)
    if len(text) < MAX_LENGTH:
        return text
    start = text[: MAX_LENGTH // 4].rpartition("\n")[0]
    end = text[MAX_LINE + MAX_LENGTH // 4 - MAX_LENGTH :].partition("\n")[2]
    left_out = text.count("\n") - start.count("\n") - end.count("\n") - 1
    return f"{start}\n  [{left_out:,} lines left out]\n{end}"


def shortened(line: str) -> str:
    """A line of at most `MAX_LINE` characters, and a note if it was longer."""
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} [cut]"


# The accessor of the base class, since that of a subclass may raise.
traceback_of = vars(BaseException)["__traceback__"].__get__
