"""The workflow of a run: the steps of the loop, performed with a history that any worker can continue."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from treadle.durable.temporal.calls import RunCalls
from treadle.durable.temporal.driver import WorkflowDriver
from treadle.durable.temporal.host import Host
from treadle.errors import OptionError, TreadleError
from treadle.loop.handle import RunHandle
from treadle.loop.journaled import outcome_of
from treadle.loop.loop import Loop
from treadle.loop.pause import Resumption
from treadle.loop.run import Run, end_state
from treadle.loop.start import start_run
from treadle.messages import JSONDict
from treadle.results import Err, Paused, PendingCall, Result, RunCancelled
from treadle.tools import Approval

WORKFLOW = "treadle.run"
HOST = "treadle.host"
"""The name of the function by which a workflow gets what its worker has."""


class _Handle(RunHandle):
    """The handle of a part of the run; it passes the run on to what performs its calls."""

    def __init__(self, calls: RunCalls) -> None:
        super().__init__()
        self._calls = calls

    def bind(self, run: Run) -> None:
        super().bind(run)
        self._calls.run = run


@workflow.defn(name=WORKFLOW)
class RunWorkflow:
    """A run of a loop. A call that needs approval is decided by an update, which may come days later."""

    @workflow.init
    def __init__(self, given: Mapping[str, Any]) -> None:
        host: Host = workflow.extern_functions()[HOST]()
        self._host = host
        self._path: str = given["loop"]
        self._handle: RunHandle | None = None
        self._messages: list[Any] = []
        self._is_cancelled = False
        self._paused: Paused | None = None
        self._decisions: dict[str, Approval] = {}
        self._base = self._loop()

    def _loop(self) -> Loop[Any]:
        try:
            return self._host.loop(self._path)
        except OptionError as error:
            if workflow.unsafe.is_replaying():  # another worker had it: let one of those continue
                raise
            raise _failure(error) from error

    @workflow.run
    async def run(self, given: Mapping[str, Any]) -> JSONDict:
        """Perform the run, from its first iteration to its result.

        Args:
            given: ``loop``, the name of the loop; ``messages``; ``options`` of this run.
        """
        start: Any = given["messages"]
        while True:
            try:
                result = await self._part(start)
            except OptionError as error:
                raise _failure(error) from error
            if not isinstance(result, Paused):
                return _outcome(result)
            self._paused, self._decisions = result, {}
            await workflow.wait_condition(lambda: self._is_cancelled or not self._undecided())
            self._paused = None
            if self._is_cancelled:
                return _outcome(_cancelled(result))
            start = Resumption(self._base, result.state, self._decisions, None)

    async def _part(self, start: Any) -> Result:
        """Perform the run up to its result or its next pause."""
        run_id = workflow.info().workflow_id
        calls = RunCalls(self._host, self._path, self._base)
        handle = _Handle(calls)
        options: dict[str, Any] = {"handle": handle}
        if not isinstance(start, Resumption):
            options["run_id"] = run_id
        loop = self._base.with_options(**options)
        steps, deliver = start_run(loop, start, None)
        relay = None if deliver is None else self._host.open_relay(run_id, deliver)
        calls.begin(loop, relay)
        self._take_over(handle)
        try:
            return await WorkflowDriver(calls).drive(steps)
        finally:
            self._handle = None
            if relay is not None:
                self._host.close_relay(run_id, relay)

    def _take_over(self, handle: RunHandle) -> None:
        """Give the handle what was sent to the run when it had none."""
        self._handle = handle
        for message in self._messages:
            handle.steer(message)
        self._messages.clear()
        if self._is_cancelled:
            handle.cancel()

    # From outside

    def _undecided(self) -> list[PendingCall]:
        if self._paused is None:
            return []
        return [call for call in self._paused.pending if call.id not in self._decisions]

    @workflow.update
    def decide(self, decisions: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Decide on calls that wait; the run continues when it has a decision on each.

        Args:
            decisions: the fields of an `Approval`, by the id of the pending call.

        Returns:
            The ids of the calls that still wait.
        """
        self._decisions |= {key: Approval(**given) for key, given in decisions.items()}
        return [call.id for call in self._undecided()]

    @decide.validator
    def _check_decisions(self, decisions: Mapping[str, Mapping[str, Any]]) -> None:
        if self._paused is None:
            raise OptionError("decisions: no call of the run waits for one")
        given = {key: Approval(**one) for key, one in decisions.items()}
        Resumption(self._base, self._paused.state, given, None)

    @workflow.signal
    def steer(self, message: Any) -> None:
        """Add a user message before the next request to the model."""
        if self._handle is None:
            self._messages.append(message)
        else:
            self._handle.steer(message)

    @workflow.signal
    def cancel(self) -> None:
        """End the run with `RunCancelled`; running calls are cancelled and answered."""
        self._is_cancelled = True
        if self._handle is not None:
            self._handle.cancel()

    @workflow.query
    def state(self) -> JSONDict:
        """The status of the run: what has happened, what runs, and what waits for a decision."""
        handle = self._handle
        state = None if handle is None else handle.state
        state = self._paused.run if self._paused is not None else state
        return {
            "run": None if state is None else state.as_json(),
            "in_flight": [] if handle is None else [call.id for call in handle.in_flight],
            "pending": [dataclasses.asdict(call) for call in self._undecided()],
        }


def _outcome(result: Result) -> JSONDict:
    """The result as data; its messages are in its run state."""
    return outcome_of(dataclasses.replace(result, messages=[]))


def _failure(error: TreadleError) -> ApplicationError:
    return ApplicationError(str(error), type=type(error).__name__, non_retryable=True)


def _cancelled(paused: Paused) -> Err:
    """The result of a run that was cancelled while it waited for a decision."""
    reason, state = RunCancelled(), paused.run
    end_state(state, reason, workflow.time())
    return Err(
        reason,
        messages=paused.messages,
        usage=paused.usage,
        iterations=paused.iterations,
        tool_calls_count=paused.tool_calls_count,
        stop_reason=reason.stop_reason,
        run=state,
    )
