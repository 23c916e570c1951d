"""The log of a scenario: every run of a tool, logged by the tool and not by the loop."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class ToolRun:
    """One run of a tool.

    Args:
        log: where it is noted.
        number: counts the runs of the scenario, from 1.
        tool: the name of the tool.
        arguments: those it was handed, to do with as it likes.
        given: a copy of them, as they came.
        overlap: how many runs were under way when it began, itself included.
        started: `time.monotonic` when it began.
        ended: the same when it ended; None until then.
        result: what it returned.
        error: what it raised, a cancellation included; None where it returned.
    """

    log: Log
    number: int
    tool: str
    arguments: dict[str, Any]
    given: dict[str, Any]
    overlap: int
    started: float
    ended: float | None = None
    result: Any = None
    error: BaseException | None = None

    @property
    def mark(self) -> str:
        """A unique word; in a result, it shows where the result went."""
        return f"result-{self.number:04d}"

    @property
    def succeeded(self) -> bool:
        """Whether it returned."""
        return self.ended is not None and self.error is None

    @property
    def is_marked(self) -> bool:
        """Whether its result contains its mark, so that its loss can be detected."""
        if isinstance(self.result, str):
            return self.mark in self.result
        try:
            return self.mark in repr(self.result)
        except Exception:  # noqa: BLE001 - results may be anything
            return False


class Log:
    """The runs of one scenario's tools, and the signals between tools, suite and adapter.

    Attributes:
        runs: all runs, in the order of their beginning.
        cancel: is set by a tool where the caller is to cancel the run now.
        released: set when the scenario is over; tools that block wait for it, so that no thread blocks forever.
    """

    def __init__(self) -> None:
        self.runs: list[ToolRun] = []
        self.cancel = threading.Event()
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._under_way = 0

    def begin(self, tool: str, arguments: Mapping[str, Any]) -> ToolRun:
        """Log that a tool begins."""
        with self._lock:
            self._under_way += 1
            run = ToolRun(
                log=self,
                number=len(self.runs) + 1,
                tool=tool,
                arguments=dict(arguments),
                given=copied(dict(arguments)),
                overlap=self._under_way,
                started=time.monotonic(),
            )
            self.runs.append(run)
            return run

    def end(self, run: ToolRun, result: Any = None, error: BaseException | None = None) -> None:
        """Log how a tool ended; after the scenario is over, nothing is logged."""
        with self._lock:
            self._under_way -= 1
            if not self.released.is_set():
                run.result, run.error, run.ended = result, error, time.monotonic()

    def of(self, tool: str) -> list[ToolRun]:
        """The runs of one tool."""
        return [run for run in self.runs if run.tool == tool]


def copied(value: Any) -> Any:
    """A deep copy, or the value itself if it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - the value may be anything
        return value
