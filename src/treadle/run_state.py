"""The state of a run: a node for each iteration, with a node for each of its tool calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

from treadle.codec import plain_data, restore
from treadle.errors import TreadleError
from treadle.messages import History, Measured, ModelCall, Usage, safe_str


class RunNodeStatus(StrEnum):
    """The status of a run, an iteration or a call."""

    INIT = "init"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    TIMEOUT = "timeout"


# A global name is quicker than a member of an enumeration; each iteration changes the status four times.
_INIT, _RUNNING, _SUCCESS = RunNodeStatus.INIT, RunNodeStatus.RUNNING, RunNodeStatus.SUCCESS


class IllegalMoveError(TreadleError, RuntimeError):
    """A change of status that is illegal in the current status of a run or a node."""


def _illegal(made: RunNode | RunState, event: str) -> IllegalMoveError:
    what = f"node {made.step_index}" if isinstance(made, RunNode) else "the run"
    return IllegalMoveError(f"{what} is {made.status.value}: it cannot {event}")


@dataclass(slots=True)
class RunNode:
    """One iteration of a run, or one tool call in it.

    Args:
        agent_name: the name of the loop.
        step_index: the index of the iteration in its run, from 0.
        kind: ``iteration`` or ``tool``.
        name: the tool's name; empty for an iteration.
        group_id: an id that groups nodes.
        status: the status.
        created_at: seconds since the epoch.
        started_at: seconds since the epoch; None before it started.
        ended_at: seconds since the epoch; None before it ended.
        tool_calls: the nodes of the calls of an iteration, in the order of the response.
        usage: the tokens of its model call; None if the provider reported none.
        error: why it failed.
        metadata: further data, such as ``tool_signature``.
        run: the state of the subagent's run, if the call is one of a subagent.
        asked: the requests of an iteration to the model; `model_calls` reads it.
    """

    agent_name: str = ""
    step_index: int = 0
    kind: str = "iteration"
    name: str = ""
    group_id: str | None = None
    status: RunNodeStatus = RunNodeStatus.INIT
    created_at: float = field(default_factory=time.time)
    started_at: float | None = None
    ended_at: float | None = None
    tool_calls: list[RunNode] = field(default_factory=cast("type[list[RunNode]]", list))
    usage: Usage | None = None
    error: str | None = None
    metadata: dict[str, Any] = field(default_factory=cast("Callable[[], dict[str, Any]]", dict))
    run: RunState | None = None
    asked: tuple[Measured | ModelCall, ...] = field(
        default=(), repr=False, compare=False, metadata={"json": "model_calls"}
    )

    @property
    def model_calls(self) -> tuple[ModelCall, ...]:
        """The requests of an iteration to the model, with the failed ones, in order of their end."""
        return tuple(
            one if isinstance(one, ModelCall) else ModelCall.answered(one) for one in self.asked
        )

    @property
    def duration(self) -> float | None:
        """Seconds from start to end; None until it has ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended."""
        return self.status is RunNodeStatus.RUNNING

    def start(self, at: float | None = None) -> None:
        """Start. ``at`` is in seconds since the epoch; None means now."""
        if self.status is not _INIT:
            raise _illegal(self, "start")
        self.status = _RUNNING
        self.started_at = time.time() if at is None else at

    def succeed(self, usage: Usage | None = None, at: float | None = None) -> None:
        """End with success, and the tokens used."""
        self._end("succeed", _SUCCESS, at)
        self.usage = usage if usage is not None else self.usage

    def fail(self, error: object, at: float | None = None) -> None:
        """End with an error."""
        self._end("fail", RunNodeStatus.FAILED, at)
        self.error = safe_str(error)

    def timeout(self, at: float | None = None) -> None:
        """End at a time limit."""
        self._end("timeout", RunNodeStatus.TIMEOUT, at)

    def _end(self, event: str, status: RunNodeStatus, at: float | None) -> None:
        if self.status is not _RUNNING:
            raise _illegal(self, event)
        self.status = status
        self.ended_at = time.time() if at is None else at


@dataclass(eq=False, repr=False)
class RunState:
    """The state of a run, updated while it runs; a later run can continue it.

    Args:
        agent_name: the name of the loop.
        run_id: the id of the run; a random one by default.
        status: the status.
        history: the messages.
        nodes: the iterations.
        total_usage: the tokens of all model calls.
        error: why it failed.
        repairs: one line for each repair of the messages.
        traceparent: the span of its latest run, in the form of W3C's Trace Context; None without tracing.
    """

    agent_name: str = ""
    run_id: str = field(default_factory=lambda: os.urandom(16).hex())
    status: RunNodeStatus = RunNodeStatus.INIT
    history: History = field(default_factory=History)
    nodes: list[RunNode] = field(default_factory=list[RunNode])
    total_usage: Usage = field(default_factory=Usage)
    error: str | None = None
    repairs: tuple[str, ...] = ()
    traceparent: str | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """A copy of the history."""
        return self.history.to_list()

    @property
    def iterations(self) -> int:
        """The number of iterations that were started."""
        return len(self.nodes)

    @property
    def current_node(self) -> RunNode | None:
        """The latest iteration; None before the first."""
        return self.nodes[-1] if self.nodes else None

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended."""
        return self.status is RunNodeStatus.RUNNING

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.status not in {RunNodeStatus.INIT, RunNodeStatus.RUNNING}

    def start(self) -> None:
        """Start, or start again after the end."""
        if self.status is _RUNNING:
            raise _illegal(self, "start")
        self.status = _RUNNING
        self.error = None

    def add_message(self, message: Mapping[str, Any]) -> None:
        """Append a message to the history."""
        self.history = self.history.append(dict(message))

    def add_messages(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Append messages to the history."""
        self.history = self.history.append(*(dict(message) for message in messages))

    def new_node(
        self, agent_name: str | None = None, group_id: str | None = None, *, at: float | None = None
    ) -> RunNode:
        """Add the node of another iteration.

        Args:
            agent_name: the name of the loop; None means that of the run.
            group_id: an id that groups nodes.
            at: the time of its creation, in seconds since the epoch; None means now.
        """
        node = RunNode(
            self.agent_name if agent_name is None else agent_name,
            len(self.nodes),
            group_id=group_id,
            created_at=time.time() if at is None else at,
        )
        self.nodes.append(node)
        return node

    def record_usage(self, usage: Usage | None) -> None:
        """Add the usage of a model call; None means unknown and makes the total a lower bound."""
        self.total_usage = self.total_usage.plus(usage)

    def succeed(self) -> None:
        """End with success."""
        self._end("succeed", _SUCCESS)

    def fail(self, error: object = None) -> None:
        """End with an error."""
        self._end("fail", RunNodeStatus.FAILED)
        self.error = None if error is None else safe_str(error)

    def timeout(self) -> None:
        """End at a time limit."""
        self._end("timeout", RunNodeStatus.TIMEOUT)

    def as_json(self, *, with_messages: bool = False) -> dict[str, Any]:
        """All attributes, as JSON data, with or without the history."""
        names = [name for name in self.__dataclass_fields__ if with_messages or name != "history"]
        return plain_data({name: getattr(self, name) for name in names})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunState:
        """The state that `as_json` returned.

        Raises:
            JSONFormatError: it is none.
        """
        return restore(cls, data)

    def _end(self, event: str, status: RunNodeStatus) -> None:
        if self.status is not _RUNNING:
            raise _illegal(self, event)
        self.status = status

    def __repr__(self) -> str:
        return f"RunState({self.run_id!r}, {self.status.value}, iterations={self.iterations})"
