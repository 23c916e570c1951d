"""What the progress of a run is made of: what it is at, what is in flight, how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from treadle.messages import ToolCall


class Phase(Enum):
    """What a run is at."""

    STARTING = "starting"
    ASKING = "asking the model"
    ANSWERING = "the model answers"
    RETRYING = "waiting to ask again"
    WORKING = "working"


@dataclass(slots=True)
class Retry:
    """A wait before another try.

    Args:
        attempt: the number of the try that comes, from 2.
        error_type: the class of what was raised.
        until: the clock's time at which it comes.
    """

    attempt: int
    error_type: str
    until: float


@dataclass(slots=True)
class Flight:
    """A call that runs.

    Args:
        call: the call.
        since: the clock's time at which it began.
        within: the id of the call that it is a step of; None of one that the model made.
        retry: what it waits for; None where it is at work.
    """

    call: ToolCall
    since: float
    within: str | None = None
    retry: Retry | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended.

    Args:
        stop_reason: why, in one word.
        is_error: there is no answer, and none is waited for.
        seconds: from its start, or from where it was gone on with.
    """

    stop_reason: str
    is_error: bool
    seconds: float
