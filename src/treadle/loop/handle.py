"""The handle: observes, steers and cancels a run from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from treadle.checks import instance
from treadle.effects import Signal
from treadle.errors import OptionError
from treadle.messages import JSONDict, ToolCall, copy_json, problems_of
from treadle.results import Result
from treadle.run_state import RunState
from treadle.tools import ToolCallTable


def as_user_message(message: str | Mapping[str, Any]) -> JSONDict:
    """Make a user message of a text, or copy one; raises `OptionError` if it is not a user message."""
    if isinstance(message, str):
        message = {"role": "user", "content": message}
    instance(Mapping, "text or a user message").check("steer", message)
    given = dict(message)
    problems = [*problems_of([given])]
    if not str(given.get("content") or "").strip():
        problems.append("content: expected a text that is not empty")
    if given.get("role") != "user":
        problems.append(f"role: expected 'user', got {given.get('role')!r}")
    if problems:
        raise OptionError(f"steer: expected text or a user message: {'; '.join(problems)}")
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
        self._state: RunState | None = None
        self._in_flight = ToolCallTable()
        self._result: Result | None = None
        self._messages: list[JSONDict] = []
        # Those that `take` returned, until the run has received them: a cancellation may discard the outcome.
        self.taken: tuple[JSONDict, ...] = ()
        self._is_closed = False

    def bind(self, run: Any) -> None:
        """Attach it to a run that is about to start; raises `OptionError` if it had one."""
        if self._state is not None:
            raise OptionError(
                "handle: a RunHandle belongs to one run, and this one had one; make another for the next"
            )
        self._state, self._in_flight = run.state, run.services.in_flight

    def bind_result(self, result: Result) -> None:
        """Attach it to the result of its run, which has ended."""
        self._state, self._result = result.run, result

    @property
    def state(self) -> RunState | None:
        """The status of the run; None before it started."""
        return self._state

    @property
    def result(self) -> Result | None:
        """The result of the run, also if its task was cancelled; None until it ended."""
        return self._result

    @property
    def messages(self) -> list[JSONDict]:
        """The history up to the last finished iteration; always valid."""
        return [] if self._state is None else self._state.messages

    @property
    def in_flight(self) -> tuple[ToolCall, ...]:
        """The tool calls that are running."""
        return tuple(self._in_flight.running.values())

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
        with contextlib.suppress(ValueError):  # the run took it before it ended
            if self._is_closed:
                self._messages.remove(added)
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
        return self._in_flight.cancel_all()
