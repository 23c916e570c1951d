"""How cancelled steps end: what both drivers hold to."""

from __future__ import annotations

import contextlib
import logging

from treadle.effects.effects import Effect, Steps

log = logging.getLogger("treadle.pipeline")

CLEANUP_SECONDS = 5.0
"""How long cancelled steps may take to leave things in order. It is a bound on misbehaviour:
closing a stream takes milliseconds."""

GRACE_SECONDS = 1.0
"""How long a `Mode.DETACHED` call that was cancelled may take to end before it is left behind: time
to close a connection. A run may take so much longer than its time limit."""

CLOSINGS = 16
"""How many effects steps may yield while they are closed."""


def shut(steps: Steps[object]) -> None:
    """Close steps whose effects nobody performs any more; those that they still yield are lost."""
    for _ in range(CLOSINGS):
        with contextlib.suppress(RuntimeError):  # they yielded
            steps.close()
            return


def going_on(steps: Steps[object], effect: Effect, end: BaseException) -> Steps[Exception | None]:
    """What cancelled steps still do, as steps of their own.

    Args:
        steps: they were told of the cancellation, and yielded.
        effect: what they yielded.
        end: the cancellation, which they raise again when they are through.

    Returns:
        What they raised in place of the cancellation, if anything.
    """
    try:
        while True:
            try:
                outcome = yield effect
            except Exception as error:  # noqa: BLE001 - a failure is the steps' to deal with
                effect = steps.throw(error)
            else:
                effect = steps.send(outcome)
    except StopIteration:
        return None
    except Exception as error:  # noqa: BLE001 - handed on as a value
        return error
    except BaseException as raised:
        if raised is end:
            return None
        shut(steps)
        raise


def report(error: Exception) -> None:
    """Log what went wrong where it must not change what happens."""
    log.error("%s was raised where it changes nothing", type(error).__name__, exc_info=error)
