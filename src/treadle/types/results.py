"""Results: how a run ended, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from treadle.types.approvals import PendingCall
from treadle.types.messages import JSONDict
from treadle.types.reasons import Reason
from treadle.types.response import Response, Usage
from treadle.types.run_state import RunState


def _no_messages() -> list[JSONDict]:
    return []


@dataclass(frozen=True, slots=True)
class Ok:
    """The model answered. A tool or a resolver may return one as well: ``Ok(value)``.

    Args:
        response: the answer; from a tool, its value.
        messages: the whole conversation, the answer in it. They are the record itself, which
            ``run.messages`` copies.
        output: the validated arguments of the terminal tool that ended the run; a pydantic model where the
            tool was made of one. None where plain text ended it.
        usage: the tokens of all model calls.
        iterations: the model calls that were made.
        tool_calls_count: the tool calls that ran.
        stop_reason: ``answered``, ``output``, or ``finished``: a limit was reached, and the model was asked
            for a last answer.
        run: the record of the run.
        limit: the limit that was reached, where the run was finished.
    """

    response: Any
    messages: list[JSONDict] = field(default_factory=_no_messages)
    output: Any = None
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls_count: int = 0
    stop_reason: str = "answered"
    run: RunState | None = field(default=None, compare=False, repr=False)
    limit: Reason | None = None

    def unwrap(self) -> Response:
        """The answer."""
        response: Response = self.response  # a run's Ok holds one
        return response


@dataclass(frozen=True, slots=True)
class Err:
    """The run ended without an answer. A tool or a resolver may return one as well: ``Err("text")``.

    Args:
        reason: why; from a tool, the text for the model.
        messages: everything done so far, valid, ready to go on from.
        output: always None; it is here so that both results can be read alike.
        usage: the tokens of all model calls.
        iterations: the model calls that were made.
        tool_calls_count: the tool calls that ran.
        stop_reason: the reason in one word.
        run: the record of the run.
    """

    reason: Any
    messages: list[JSONDict] = field(default_factory=_no_messages)
    output: Any = None
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls_count: int = 0
    stop_reason: str = "error"
    run: RunState | None = field(default=None, compare=False, repr=False)

    def unwrap(self) -> NoReturn:
        """Raise the reason."""
        if isinstance(self.reason, Reason):
            raise self.reason
        raise RuntimeError(str(self.reason))


class RunPausedError(RuntimeError):
    """`unwrap` was asked for the answer of a run that waits for somebody."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The run waits for a person. It is neither an answer nor an error; `Loop.resume` goes on from it.

    Args:
        pending: the calls that wait, in order.
        messages: everything done so far, valid; calls that have not run are answered as waiting.
        state: all that is needed to go on, as JSON takes it: put it wherever you like.
        output: always None; it is here so that all results can be read alike.
        usage: the tokens of all model calls so far.
        iterations: the model calls that were made so far.
        tool_calls_count: the tool calls that ran so far.
        stop_reason: ``paused``.
        run: the record of the run.
    """

    pending: tuple[PendingCall, ...]
    messages: list[JSONDict] = field(default_factory=_no_messages)
    state: JSONDict = field(default_factory=dict[str, Any], repr=False)
    output: Any = None
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls_count: int = 0
    stop_reason: str = "paused"
    run: RunState | None = field(default=None, compare=False, repr=False)

    def unwrap(self) -> NoReturn:
        """Raise: there is no answer yet."""
        waiting = ", ".join(f"{call.name} ({call.id})" for call in self.pending)
        raise RunPausedError(f"the run is paused and waits for approval of {waiting}")


Result: TypeAlias = Ok | Err | Paused
