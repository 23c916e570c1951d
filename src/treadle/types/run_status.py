"""Where a run, an iteration or a call stands, and what may happen to it there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

from treadle.types.errors import TreadleError


class RunNodeStatus(StrEnum):
    """Where a run, an iteration or a call stands."""

    INIT = "init"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    TIMEOUT = "timeout"


_INIT, _RUNNING = RunNodeStatus.INIT, RunNodeStatus.RUNNING
_ENDS = {
    "succeed": RunNodeStatus.SUCCESS,
    "fail": RunNodeStatus.FAILED,
    "timeout": RunNodeStatus.TIMEOUT,
}
Moves: TypeAlias = Mapping[RunNodeStatus, Mapping[str, RunNodeStatus]]

NODE_MOVES: Moves = {
    _INIT: {"start": _RUNNING},
    _RUNNING: _ENDS,
    RunNodeStatus.SUCCESS: {},
    RunNodeStatus.FAILED: {},
    RunNodeStatus.TIMEOUT: {},
}
"""What may happen to a node in each status, and where it leads."""

STATE_MOVES: Moves = {
    **{status: {**moves, "start": _RUNNING} for status, moves in NODE_MOVES.items()},
    _RUNNING: _ENDS,
}
"""As for a node, but that a run which has ended may be started again, to go on."""


class IllegalMoveError(TreadleError, RuntimeError):
    """Something happened to a run or a node that cannot happen in its status."""


def illegal(what: str, status: RunNodeStatus, event: str, moves: Moves) -> IllegalMoveError:
    """The error of an event that cannot happen.

    Args:
        what: what it happened to.
        status: where that stands.
        event: what happened.
        moves: what may happen.
    """
    legal = ", ".join(moves[status]) or "nothing"
    return IllegalMoveError(f"{what} is {status.value}: it cannot {event}; legal are {legal}")
