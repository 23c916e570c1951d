"""The workflow of a run: the steps of the loop, performed with a history that any worker can continue."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from treadle.codec import encode
from treadle.durable.temporal.calls import RunCalls
from treadle.durable.temporal.driver import WorkflowDriver
from treadle.durable.temporal.host import HAND_OVER, Host
from treadle.durable.temporal.payloads import ValueTooLargeError
from treadle.durable.temporal.received import check_decisions, check_signal
from treadle.durable.temporal.subagents import outer_context
from treadle.effects import Steps
from treadle.errors import OptionError, PausedStateError, TreadleError
from treadle.loop.handle import RunHandle
from treadle.loop.loop import Loop
from treadle.loop.pause import PausedRun, kept_as_data
from treadle.loop.run import Run, end_state
from treadle.loop.start import start_run, start_subagent
from treadle.messages import JSONDict
from treadle.recording.journaled import outcome_of
from treadle.results import Err, Paused, PendingCall, Result, RunCancelled
from treadle.run_state import RunState
from treadle.telemetry import active_telemetry
from treadle.tools import Approval

log = logging.getLogger("treadle.durable")

WORKFLOW = "treadle.run"
HOST = "treadle.host"
"""The name of the function by which a workflow gets what its worker has."""


class _Handle(RunHandle):
    """The handle of a part of the run; it passes the run on to what performs its calls."""

    check_kept = staticmethod(kept_as_data)

    def __init__(self, calls: RunCalls) -> None:
        super().__init__()
        self._calls = calls

    def bind(self, run: Run) -> None:
        super().bind(run)
        self._calls.run = run


@workflow.defn(name=WORKFLOW)
class RunWorkflow:
    """A run of a loop. A call that needs approval is decided by an update, which may come days later.

    Its input has ``loop``, the name of the loop; and either
    ``messages``, or ``paused`` and ``decisions``. That of a subagent has ``outer``, what it knows of the run that
    has started it, and ``name``, the name of its agent.
    """

    def __init__(self) -> None:
        functions = cast("Any", workflow.extern_functions())  # pyright: ignore[reportUnknownMemberType]
        host: Host = functions[HOST]()
        self._host: Host = host
        self._given: JSONDict = {}
        self._handle: RunHandle | None = None
        self._messages: list[Any] = []
        self._is_cancelled = False
        self._paused: Paused | None = None
        self._parts = 0
        self._decisions: dict[str, Approval] = {}

    @workflow.run
    async def run(self, given: JSONDict) -> JSONDict:
        """Perform the run, from its first iteration to its result; that of a subagent also ends when it pauses.

        Args:
            given: see the class.

        Returns:
            The result, in ``outcome``; what was used, in ``used``; and the number of ``events``.
        """
        self._given = given
        self._path: str = given["loop"]
        self._outer: JSONDict | None = given.get("outer")
        self._messages[:0] = given.get("steering", ())
        self._is_cancelled |= given.get("is_cancelled", False)
        self._loop = self._loop_of_worker()
        self._calls = RunCalls(self._host, self._path, self._loop)
        try:
            made = await self._performed()
            await self._calls.admit(made, "the result of the run")
        except (OptionError, PausedStateError, ValueTooLargeError) as error:
            raise _failure(error) from error
        return made

    def _loop_of_worker(self) -> Loop[Any]:
        try:
            return self._host.loop_of_workflows(self._path)
        except OptionError as error:
            if workflow.unsafe.is_replaying():  # another worker had it: let one of those continue
                raise
            raise _failure(error) from error

    async def _performed(self) -> JSONDict:
        given = self._given
        start: Any = given.get("messages")
        if "paused" in given:
            decisions = {key: Approval(**one) for key, one in given["decisions"].items()}
            start = self._resumption(given["paused"], decisions)
        while True:
            result = await self._part(start)
            if not isinstance(result, Paused):
                return self._ended(result)
            if not result.pending and result.state["stage"] == HAND_OVER:
                await self._go_on_in_new_history(result)
            if self._outer is not None:
                return self._ended(result)
            self._paused, self._decisions = result, {}
            await self._decided()
            self._paused = None
            if self._is_cancelled:
                return self._ended(_cancelled(result))
            start = self._resumption(result.state, self._decisions)

    def _resumption(self, state: JSONDict, decisions: Mapping[str, Approval]) -> PausedRun:
        return PausedRun(self._loop, state, decisions, None)

    def _ended(self, result: Result) -> JSONDict:
        budget = None if self._calls.run is None else encode(self._calls.run.services.budget.used())
        # The messages are in the run state.
        return {
            "outcome": outcome_of(dataclasses.replace(result, messages=[])),
            "used": budget,
            "events": self._calls.reported,
        }

    async def _decided(self) -> None:
        """Wait until there is a decision on each call that waits, or the run is cancelled."""
        try:
            await workflow.wait_condition(lambda: self._is_cancelled or not self._undecided())
        except asyncio.CancelledError:
            if workflow.cancellation_reason() is None:
                raise  # as in `_driven`
            self._is_cancelled = True

    async def _go_on_in_new_history(self, paused: Paused) -> NoReturn:
        await workflow.wait_condition(workflow.all_handlers_finished)
        given: JSONDict = {
            **{key: self._given[key] for key in ("loop", "outer", "name") if key in self._given},
            "paused": paused.state,
            "decisions": {},
            "steering": self._messages,
            "is_cancelled": self._is_cancelled,
        }
        await self._calls.admit(given, "the state of the run")
        workflow.continue_as_new(given)

    async def _part(self, start: Any) -> Result:
        """Perform the run up to its result or its next pause."""
        run_id, calls, loop = workflow.info().workflow_id, self._calls, self._loop
        if self._outer is not None:
            run_id = f"{self._outer['run_id']}/{self._outer['call_id']}"
        handle = _Handle(calls)
        telemetry = self._telemetry()
        if telemetry is not None:
            given = loop.settings.on_event or ()
            listeners = (given,) if callable(given) else given
            loop = loop.with_options(on_event=(telemetry, *listeners))
        if self._outer is None:
            loop = loop.with_options(handle=handle)
            if not isinstance(start, PausedRun):
                loop = loop.with_options(run_id=run_id)
            steps, deliver = start_run(loop, start, None)
        else:
            is_resumed = isinstance(start, PausedRun)
            state = start.run_state if is_resumed else RunState(self._given["name"], run_id)
            outer = outer_context(self._outer, self._host.outer_loops(self._path))
            call_id = self._outer["call_id"]
            steps, deliver = start_subagent(
                loop, start, state, parent=outer, call_id=call_id, handle=handle
            )
        self._parts += 1
        part = f"{workflow.info().run_id}#{self._parts}"
        relay = self._host.open_relay(part, deliver, self._outer)
        calls.begin(loop, part, relay, has_own_listeners=deliver is not None)
        self._take_over(handle)
        result = await self._driven(steps)
        self._handle = None
        self._host.close_relay(part)
        return result

    async def _driven(self, steps: Steps[Result]) -> Result:
        try:
            return await WorkflowDriver(self._calls).drive(steps)
        except asyncio.CancelledError:
            result = None if self._calls.run is None else self._calls.run.result
            if workflow.cancellation_reason() is None or result is None:
                raise  # it only leaves the memory of this worker
            return result  # the workflow was cancelled: its result says so

    def _telemetry(self) -> Callable[[Any], None] | None:
        """What reports the run to OpenTelemetry by its events; None for a subagent: the outer run reports it."""
        settings = self._host.loop(self._path).settings
        if self._outer is not None:
            return None
        telemetry = active_telemetry(settings.telemetry)
        return None if telemetry is None else telemetry.observer()

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
    def decide(self, *given: Any) -> list[str]:
        """Decide on calls that wait; the run continues when it has a decision on each.

        Args:
            *given: one mapping: the fields of an `Approval`, by the id of the pending call.

        Returns:
            The ids of the calls that still wait.
        """
        self._decisions |= check_decisions(given)
        return [call.id for call in self._undecided()]

    @decide.validator
    def _check_decisions(self, *given: Any) -> None:
        decisions = check_decisions(given)
        if self._paused is None:
            raise OptionError("decisions: no call of the run waits for one")
        self._resumption(self._paused.state, decisions)

    @workflow.signal(dynamic=True)
    def receive(self, name: str, given: Sequence[RawValue]) -> None:
        """Receive ``steer`` or ``cancel``; a signal that is malformed is dropped, since the run has to go on."""
        try:
            argument = check_signal(name, given)
        except OptionError as error:
            if not workflow.unsafe.is_replaying():
                log.warning("run %s: dropped a %s", workflow.info().workflow_id, error)
            return
        if name == "cancel":
            self._cancel()
        else:
            self._steer(argument)

    def _steer(self, message: JSONDict) -> None:
        """Add a user message before the next request to the model."""
        if self._handle is None:
            self._messages.append(message)
        else:
            self._handle.steer(message)

    def _cancel(self) -> None:
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
