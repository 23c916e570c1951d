"""The handle: observes, steers and cancels a run from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from treadle.checks import instance
from treadle.context import Context, RunServices
from treadle.effects import Signal
from treadle.errors import OptionError
from treadle.messages import JSONDict, ToolCall, copy_json, problems_of
from treadle.results import Result
from treadle.run_state import RunState


class BoundRun(Protocol):
    """The part of a run that a handle reads."""

    state: RunState
    context: Context
    services: RunServices
    result: Result | None


def as_user_message(message: str | Mapping[str, Any]) -> JSONDict:
    """Make a user message of a text, or copy one; raises `OptionError` if it is not a user message."""
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    instance(Mapping, "text or a user message").check("steer", message)
    given = dict(message)
    problems = [*problems_of([given])]
    content = given.get("content")
    if not content or (isinstance(content, str) and not content.strip()):
        problems.append("content: expected a text that is not empty")
    if given.get("role") != "user" or problems:
        problem = "; ".join(problems) or f"role: expected 'user', got {given.get('role')!r}"
        raise OptionError(f"steer: expected text or a user message: {problem}")
    return copy_json(given)


class RunHandle:
    """Observes, steers and cancels one run: pass it as ``handle=``, or get it from ``stream``.

    Its methods may be called from any thread, and from the handler of a process signal: they take no lock. Its
    properties are valid at any time, even after a cancellation.
    """

    check_kept: Callable[[str, Any], object] | None = None
    """Checks what stages keep with `Context.remember`, by its name, where a run goes on in other processes."""

    def __init__(self) -> None:
        self.ended = Signal()
        self._run: BoundRun | None = None
        self._result: Result | None = None
        self._messages: list[JSONDict] = []
        # Those that `take` returned, until the run has received them: a cancellation may discard the outcome.
        self.taken: tuple[JSONDict, ...] = ()
        self._is_closed = False

    def bind(self, run: BoundRun) -> None:
        """Attach it to a run that is about to start.

        Raises:
            OptionError: it is already attached to a run.
        """
        if self._run is not None:
            raise OptionError(
                "handle: a RunHandle belongs to one run, and this one had one; make another for the next"
            )
        self._run = run

    def bind_result(self, result: Result) -> None:
        """Attach it to a run that had ended, whose result was stored in a journal."""
        self._result = result

    @property
    def state(self) -> RunState | None:
        """The status of the run; None before it started."""
        if self._run is None:
            return None if self._result is None else self._result.run
        return self._run.state

    @property
    def result(self) -> Result | None:
        """The result of the run, also if its task was cancelled; None until it ended."""
        return self._result if self._run is None else self._run.result

    @property
    def messages(self) -> list[JSONDict]:
        """The history up to the last finished iteration; always valid."""
        if self._run is None:
            return [] if self._result is None else copy_json(self._result.messages)
        return self._run.context.messages.to_list()

    @property
    def in_flight(self) -> tuple[ToolCall, ...]:
        """The tool calls that are running."""
        return tuple(self._run.services.in_flight.running.values()) if self._run is not None else ()

    def steer(self, message: str | Mapping[str, Any]) -> bool:
        """Add a user message before the next model call.

        If the model has just answered, the run continues with the message.

        Args:
            message: a text, or a message with the role ``user``.

        Returns:
            Whether the run will receive it; False if the run is over.

        Raises:
            OptionError: it is not a user message.
        """
        added = as_user_message(message)
        self._messages.append(added)
        if self._is_closed:
            try:  # either the run took the message before it ended, or it is still here
                self._messages.remove(added)
            except ValueError:
                return True
            return False
        return True

    def take(self, is_over: bool) -> tuple[JSONDict, ...]:
        """Take the messages that the run has not received; with none, a run that is over accepts no more."""
        given = self._taken_messages() if self._messages else self.taken
        if is_over and not given:
            given = self.close()
            self._is_closed = not given
        return given

    def close(self) -> tuple[JSONDict, ...]:
        """Take the messages that the run has not received, and accept no more."""
        self._is_closed = True
        return self._taken_messages()

    def _taken_messages(self) -> tuple[JSONDict, ...]:
        while self._messages:
            with contextlib.suppress(IndexError):  # `steer` has removed it
                self.taken = (*self.taken, self._messages.pop(0))
        return self.taken

    def cancel(self) -> None:
        """End the run with ``Err(RunCancelled)``; running calls are cancelled and answered."""
        self.ended.set()

    def cancel_all(self) -> tuple[ToolCall, ...]:
        """Cancel the running tools; the run continues with "cancelled" as their results.

        Returns:
            The calls that were cancelled.
        """
        return self._run.services.in_flight.cancel_all() if self._run is not None else ()
