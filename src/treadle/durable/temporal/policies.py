"""The time limits and the retries of activities."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType

HEARTBEAT_SECONDS = 2.0
"""How often an activity tells the server that it runs. The answer says whether it is cancelled."""
LOST_SECONDS = 20.0
"""The time without a heartbeat after which the server takes an activity as lost with its worker."""
MARGIN_SECONDS = 30.0
"""What an activity may take in addition to the time limit of its tool, which it keeps itself."""
LONGEST_SECONDS = 24 * 3600.0
"""The time limit of a call that has none."""
MAX_ATTEMPTS = 20
"""How often an activity is started whose worker is lost, or whose outcome cannot be stored. The pauses between
them take seven minutes."""
CANCEL_SECONDS = 10.0
"""The time that a cancelled activity has to end, with which it learns of it by its next heartbeat."""

_WAIT = ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
_REPEATED = RetryPolicy(
    initial_interval=timedelta(seconds=0.5),
    maximum_interval=timedelta(seconds=30),
    maximum_attempts=MAX_ATTEMPTS,
)
_ONCE = RetryPolicy(maximum_attempts=1)


def options_of(*, seconds: float | None, once: bool) -> Mapping[str, Any]:
    """The options of the activity of a call.

    An exception of a tool or a model is an outcome, and the steps of the run decide whether to try again. The
    server starts an activity again only if its worker was lost.

    Args:
        seconds: the time limit of the call; None means that it has none.
        once: whether it must not be made again if it is lost, since it may have taken effect.
    """
    limit = LONGEST_SECONDS if seconds is None else seconds + MARGIN_SECONDS
    return {
        "start_to_close_timeout": timedelta(seconds=limit),
        "heartbeat_timeout": timedelta(seconds=LOST_SECONDS),
        "retry_policy": _ONCE if once else _REPEATED,
        "cancellation_type": _WAIT,
    }


def local_options() -> Mapping[str, Any]:
    """The options of a call that the process of the workflow performs itself."""
    return {
        "start_to_close_timeout": timedelta(seconds=LONGEST_SECONDS),
        "retry_policy": _ONCE,
        "cancellation_type": _WAIT,
    }
