"""How cancelled steps end: the rules that both drivers share."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from treadle.effects.effects import Steps

E = TypeVar("E", bound=BaseException)

log = logging.getLogger("treadle.pipeline")

CLEANUP_SECONDS = 5.0
"""The maximum duration of the cleanup of cancelled steps, in seconds. Closing a stream takes milliseconds."""

GRACE_SECONDS = 1.0
"""The time in which a cancelled call has to end before it is abandoned, in seconds: enough to close a
connection. A run may exceed its time limit by this much."""


def close_steps(steps: Steps[object]) -> None:
    """Close a generator of effects that are no longer performed; effects it still yields are lost."""
    for _ in range(16):  # the number of effects that they may yield
        try:
            steps.close()
        except Exception as error:  # noqa: BLE001 - there is no caller to raise it to
            if isinstance(error, RuntimeError) and "ignored GeneratorExit" in str(error):
                continue
            log_suppressed(error)
        return


def remaining_steps(steps: Steps[object], end: BaseException) -> Steps[Exception | None]:
    """Raise a cancellation in steps, and yield the effects of their cleanup; return another exception, if any."""
    trace = _traceback_of(end)
    try:
        effect = steps.throw(end)
        while True:
            try:
                outcome = yield effect
            except Exception as error:  # noqa: BLE001 - raised in the steps
                effect = steps.throw(error)
            else:
                effect = steps.send(outcome)
    except StopIteration:
        return None
    except Exception as error:  # noqa: BLE001 - returned
        return error
    except BaseException as raised:
        if raised is end:
            return None
        close_steps(steps)
        raise
    finally:
        # The frames of the steps refer to the whole run, and to those of the driver, which hold the cancellation.
        BaseException.with_traceback(end, trace)
        del end, trace


def log_suppressed(error: BaseException) -> None:
    """Log an exception that must not affect the run."""
    log.error("exception ignored: %s", type(error).__name__, exc_info=error)


def log_abandoned(work: object, seconds: float) -> None:
    """Log that an effect or the function of a task still runs some seconds after it was cancelled."""
    log.warning("%r still runs %g s after it was cancelled: it is abandoned", work, seconds)


Outcome: TypeAlias = tuple[Any, BaseException | None]
"""The value that a function has returned and None, or None and the exception that it has raised."""


def call_into(outcome: list[Outcome], fn: Callable[..., Any], *args: Any) -> None:
    """Call a function, and append its outcome to a list, from which `settle` or `discard` takes it elsewhere.

    The outcome is not returned: since Python 3.12 an exception keeps the frames of the callers, and one that
    keeps a returned outcome, such as that of a thread of trio, would form a reference cycle with the exception.
    """
    try:
        outcome.append((fn(*args), None))
    except BaseException as error:  # noqa: BLE001 - raised elsewhere
        outcome.append((None, without_frame(error)))


def settle(outcome: list[Outcome]) -> Any:
    """Take an outcome; return its value, or raise its exception without keeping it in a local variable."""
    value, error = outcome.pop()
    try:
        if error is not None:
            raise error
        return value
    finally:
        del error  # its traceback refers to this frame


def discard(outcome: list[Outcome]) -> None:
    """Drop the outcome of an abandoned call, whichever thread finds it first; a coroutine has to be closed."""
    with contextlib.suppress(IndexError):  # the other thread has taken it
        value, _ = outcome.pop()
        if isinstance(value, Coroutine):
            value.close()


def without_frame(error: E) -> E:
    """Remove the frame that caught an exception from its traceback.

    The frame of a driver refers to the listeners, and so to the whole run, and the result of the run may hold the
    exception. This reference cycle would keep the run in memory until the next garbage collection.
    """
    # The accessors of the base class, since those of a subclass may raise.
    trace = _traceback_of(error)
    BaseException.with_traceback(error, trace and trace.tb_next)
    return error


def is_thrown_here(error: BaseException) -> bool:
    """Whether a caught exception was thrown into the frame that caught it, and not raised by what it called."""
    trace = _traceback_of(error)
    return trace is None or trace.tb_next is None


_traceback_of = vars(BaseException)["__traceback__"].__get__
