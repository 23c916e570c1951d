"""The log of a run in a list, and its replay as a function."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from treadle.effects import Steps
from treadle.recording.log import Entry
from treadle.recording.middleware import LogMiddleware
from treadle.recording.replay import Replay


class Recorder:
    """Middleware that keeps the log of a run."""

    def __init__(self) -> None:
        self.log: list[Entry] = []

    def __call__(self, steps: Steps[Any]) -> Steps[Any]:
        return LogMiddleware(self.log.append)(steps)


class NotOverError(Exception):
    """The log of a run that has not ended."""


def as_written(log: Iterable[Entry]) -> list[Entry]:
    """A log that was written as JSON and read again."""
    return [Entry.from_json(json.loads(json.dumps(entry.as_json()))) for entry in log]


def replay(steps: Steps[Any], log: Iterable[Entry], emit: Callable[[Any], Any]) -> Any:
    """Run steps from a log, without a driver and without the world.

    Returns:
        What the steps return; or raises what they raise.
    """
    replayed: Replay[Any] = Replay(steps, emit)
    replayed.replay(log)
    if not replayed.is_over:
        raise NotOverError
    return replayed.result
