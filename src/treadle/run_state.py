"""The record of a run: a node for each iteration, and in it one for each tool call (Orbiter's run state)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from treadle.errors import TreadleError
from treadle.messages import History, Usage, safe_str


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


def _no_nodes() -> list[RunNode]:
    return []


def _no_facts() -> dict[str, Any]:
    return {}


@dataclass(slots=True)
class RunNode:
    """One iteration of a run, or one tool call in it.

    Args:
        agent_name: whose run it is.
        step_index: the number of the iteration in its run, from 0.
        kind: ``iteration`` or ``tool``.
        name: the tool's name; empty for an iteration.
        group_id: what groups nodes that belong together.
        created_at: seconds since the epoch.
        started_at: seconds since the epoch; None before it started.
        ended_at: seconds since the epoch; None before it ended.
        tool_calls: the nodes of the calls of an iteration, in the order of the request.
        usage: the tokens of its model call; None where the provider did not say.
        error: why it failed.
        metadata: whatever else is worth noting, such as ``tool_signature``.
        run: the record of the run that a call is made of; None of other calls.
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
    tool_calls: list[RunNode] = field(default_factory=_no_nodes)
    usage: Usage | None = None
    error: str | None = None
    metadata: dict[str, Any] = field(default_factory=_no_facts)
    run: RunState | None = None

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
        """Begin. ``at`` is in seconds since the epoch; None is now."""
        self._move("start")
        self.started_at = time.time() if at is None else at

    def succeed(self, usage: Usage | None = None, at: float | None = None) -> None:
        """End well, with the tokens it took."""
        self._move("succeed")
        self.ended_at = time.time() if at is None else at
        self.usage = usage if usage is not None else self.usage

    def fail(self, error: object, at: float | None = None) -> None:
        """End badly, with the reason."""
        self._move("fail")
        self.ended_at = time.time() if at is None else at
        self.error = safe_str(error)

    def timeout(self, at: float | None = None) -> None:
        """End at a time limit."""
        self._move("timeout")
        self.ended_at = time.time() if at is None else at

    def as_json(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        return {
            "agent_name": self.agent_name,
            "step_index": self.step_index,
            "kind": self.kind,
            "name": self.name,
            "group_id": self.group_id,
            "status": self.status.value,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "tool_calls": [node.as_json() for node in self.tool_calls],
            "usage": None if self.usage is None else self.usage.as_json(),
            "error": self.error,
            "metadata": dict(self.metadata),
            "run": None if self.run is None else self.run.as_json(with_messages=True),
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> RunNode:
        """What `as_json` was made of."""
        facts = dict(told)
        facts["status"] = RunNodeStatus(told["status"])
        facts["tool_calls"] = [cls.from_json(node) for node in told["tool_calls"]]
        if told["usage"] is not None:
            facts["usage"] = Usage.from_json(told["usage"])
        if told["run"] is not None:
            facts["run"] = RunState.from_json(told["run"])
        return cls(**facts)

    def _move(self, event: str) -> None:
        try:
            self.status = NODE_MOVES[self.status][event]
        except KeyError:
            raise illegal(f"node {self.step_index}", self.status, event, NODE_MOVES) from None


class RunState:
    """The record of a run, kept while it runs; a later run may be given it and goes on in it.

    Args:
        agent_name: whose run it is.
        run_id: names the run; None makes a new id.

    Attributes:
        traceparent: the span of its latest run, as W3C's Progress Context writes it; None where there is none.
    """

    def __init__(self, agent_name: str = "", run_id: str | None = None) -> None:
        self.agent_name = agent_name
        self.run_id = run_id if run_id is not None else secrets.token_hex(16)
        self.status = RunNodeStatus.INIT
        self.history = History()
        self.nodes: list[RunNode] = []
        self.total_usage = Usage()
        self.error: str | None = None
        self.repairs: tuple[str, ...] = ()
        self.traceparent: str | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation so far, as copies."""
        return self.history.to_list()

    @property
    def iterations(self) -> int:
        """How many iterations were begun."""
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
        """Begin, or go on after an end."""
        self._move("start")
        self.error = None

    def add_message(self, message: Mapping[str, Any]) -> None:
        """Append a message to the conversation."""
        self.history = self.history.append(dict(message))

    def add_messages(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Append messages to the conversation."""
        self.history = self.history.append(*(dict(message) for message in messages))

    def new_node(
        self,
        agent_name: str | None = None,
        group_id: str | None = None,
        *,
        at: float | None = None,
    ) -> RunNode:
        """Begin another iteration's node.

        Args:
            agent_name: whose it is; None is the run's.
            group_id: what groups it with others.
            at: when it was created, in seconds since the epoch; None is now.
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
        """Add the tokens of a model call; None, which is unknown, makes the total a lower bound."""
        self.total_usage = self.total_usage.plus(usage)

    def succeed(self) -> None:
        """End well."""
        self._move("succeed")

    def fail(self, error: object = None) -> None:
        """End badly."""
        self._move("fail")
        self.error = None if error is None else safe_str(error)

    def timeout(self) -> None:
        """End at a time limit."""
        self._move("timeout")

    def as_json(self, *, with_messages: bool = False) -> dict[str, Any]:
        """All of it, as JSON takes it; with or without the conversation of the run itself."""
        conversation = {"messages": self.messages} if with_messages else {}
        return {
            **conversation,
            "agent_name": self.agent_name,
            "run_id": self.run_id,
            "status": self.status.value,
            "nodes": [node.as_json() for node in self.nodes],
            "total_usage": self.total_usage.as_json(),
            "error": self.error,
            "repairs": list(self.repairs),
            "traceparent": self.traceparent,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> RunState:
        """What `as_json` was made of."""
        state = cls(told["agent_name"], told["run_id"])
        state.status = RunNodeStatus(told["status"])
        state.nodes = [RunNode.from_json(node) for node in told["nodes"]]
        state.total_usage = Usage.from_json(told["total_usage"])
        state.error, state.repairs = told["error"], tuple(told["repairs"])
        state.traceparent = told.get("traceparent")
        state.history = History(told.get("messages", ()))
        return state

    def _move(self, event: str) -> None:
        try:
            self.status = STATE_MOVES[self.status][event]
        except KeyError:
            raise illegal("the run", self.status, event, STATE_MOVES) from None

    def __repr__(self) -> str:
        return f"RunState({self.run_id!r}, {self.status.value}, iterations={self.iterations})"
