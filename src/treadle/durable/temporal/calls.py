"""Where each call of a run is performed: in an activity on any worker, on this worker, or in the workflow itself."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, TimeoutError as ActivityTimeoutError

from treadle import labels
from treadle.durable.temporal.conversation import Conversation
from treadle.durable.temporal.driver import shielded
from treadle.durable.temporal.policies import (
    CANCEL_SECONDS,
    local_options,
    options_of,
)
from treadle.durable.temporal.requests import request_as_data, tool_call_as_data
from treadle.durable.temporal.subagents import Child
from treadle.effects import Call, Effect, Mode, failure_of, is_awaitable
from treadle.errors import OutcomeUnknownError, TreadleError
from treadle.events import RunStarted
from treadle.messages import JSONDict, ToolCall
from treadle.model import ModelRequest
from treadle.recording.data import from_data
from treadle.tools import InFlight, ToolContext

if TYPE_CHECKING:
    from treadle.durable.temporal.host import Host, Relay
    from treadle.loop.loop import Loop
    from treadle.loop.run import Run

log = logging.getLogger("treadle.durable")

CHAT = "treadle.chat"
EXECUTE_TOOL = "treadle.execute_tool"
HERE = "treadle.here"
"""The names of the activities."""

_IN_PLACE = frozenset(
    {
        labels.STEER,
        labels.VALIDATE,
        labels.LOCK,
        labels.CANCELLED,
        labels.RACE,
        labels.STREAMED,
        labels.LAST_SEQ,
        labels.STAGE,
        labels.OBSERVE,
    }
)
"""Calls whose outcome follows from what the workflow knows, so that a replay has the same."""


class NotInWorkflowError(TreadleError, RuntimeError):
    """A stage asks for something that a run on Temporal cannot do; the text says what, and what to do instead."""


class RunCalls:
    """Performs the calls of one run inside its workflow; see `treadle.durable.temporal.driver.Performer`.

    Args:
        host: what the worker has.
        path: the name of the loop, for the workers.
        loop: the loop of the run.
    """

    def __init__(self, host: Host, path: str, loop: Loop[Any]) -> None:
        self._host = host
        self._path = path
        self._loop = loop
        self._relay: Relay | None = None
        self._latest = 0.0
        self._number = 0
        self._offered: dict[str, Any] = {}
        self._conversation = Conversation()
        self._started: RunStarted | None = None
        self.run: Run | None = None

    def begin(self, loop: Loop[Any], relay: Relay | None) -> None:
        """Set the loop with the options of the run, and what passes its events to the listeners."""
        self._loop, self._relay = loop, relay

    def now(self) -> float:
        """See `Performer`."""
        self._latest = max(self._latest, workflow.time())
        return self._latest

    def emit(self, event: Any) -> None:
        """See `Performer`. While the workflow is replayed, the listeners have the event already."""
        relay = self._relay
        if relay is None:
            return
        if workflow.unsafe.is_replaying():
            self._run.run.numbers[0] += 1
            if isinstance(event, RunStarted):
                self._started = event
            return
        started, self._started = self._started, None
        if started is not None and not relay.has_events:  # another process had the run
            relay.put(dataclasses.replace(started, resumed=True, at=self.now()))
        relay.put(event)

    def keeps_time_of(self, effect: Effect, seconds: float) -> bool:
        """See `Performer`: an activity keeps the time limit of its tool."""
        if not (isinstance(effect, Call) and effect.label == labels.EXECUTE_TOOL):
            return False
        return self._is_of_loop(effect) and getattr(effect.about, "timeout", None) == seconds

    @property
    def _run(self) -> Run:
        if self.run is None:
            raise AssertionError("unreachable: effects are performed after the run was made")
        return self.run

    async def call(self, call: Call) -> Any:
        """See `Performer`."""
        if isinstance(call.about, ModelRequest) and call.about.model is self._run.run.model:
            return await self._chat(call.about)
        if call.label == labels.EXECUTE_TOOL and call.about is not None:
            if not self._is_of_loop(call) and call.once:
                raise NotInWorkflowError(
                    f"tool {call.about.name!r} was added or replaced by a stage; on Temporal, any worker may run "
                    "it, so it has to be among the tools of the loop, or idempotent"
                )
            if self._is_of_loop(call):
                return await self._tool(*call.args[1:], once=call.once)
        if isinstance(call.about, Child):
            return await self._child(call.about)
        if call.label in _IN_PLACE:
            return _performed_here(call)
        if call.label == labels.LIMIT:
            raise NotInWorkflowError(
                "a limit of model calls that runs share needs one process; on Temporal, set "
                "max_task_queue_activities_per_second or max_concurrent_activities of the workers"
            )
        return await self._on_this_worker(call)

    def _is_of_loop(self, call: Call) -> bool:
        tool_call: ToolCall = call.args[1]
        about = call.about
        return about is self._loop.tools.get(tool_call.name) or about is self._loop.resolver

    # In activities

    async def _chat(self, sent: ModelRequest) -> Any:
        for name in self._loop.tools.keys() - self._offered.keys():
            self._offered[name] = self._loop.tools[name].as_openai()
        given = {**request_as_data(sent, self._offered), **self._facts()}
        options, late = options_of(seconds=None, once=False), _Late(sent=sent)
        if self._host.conversations is None:
            made = await self._activity(CHAT, given | {"messages": sent.messages}, options, late)
            return self._outcome(made, late)
        while True:
            delta = self._conversation.delta(sent.messages)
            made = await self._activity(CHAT, given | {"delta": delta.data}, options, late)
            if "is_lost" not in made:
                self._conversation.stored(delta)
                return self._outcome(made, late)
            self._conversation.forget()

    async def _tool(
        self, call: ToolCall, context: ToolContext | None, in_flight: InFlight, *, once: bool
    ) -> Any:
        tool = self._loop.tools.get(call.name)
        given = {**tool_call_as_data(call, context), **self._facts()}
        options = options_of(seconds=None if tool is None else tool.timeout, once=once)
        late = _Late(in_flight=in_flight)
        try:
            made = await self._activity(EXECUTE_TOOL, given, options, late)
        except ActivityError as error:
            if isinstance(error.cause, ActivityTimeoutError):
                raise OutcomeUnknownError(
                    f"call {call.id} of {call.name!r} was lost with its worker"
                ) from error
            raise
        outcome = self._outcome(made, late)
        in_flight.complete(outcome[0])
        return outcome

    async def _child(self, child: Child) -> Any:
        """Run a subagent as a child workflow; return its outcome, and what it used."""
        given = await self.packed(child.given)
        handle = await workflow.start_child_workflow(
            workflow.info().workflow_type,
            given,
            id=child.id,
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        )
        made: list[Any] = []
        try:
            made.append(await self._awaited(handle, made.append))
        finally:
            child.late = self._host.payloads.unpack_in_workflow(made[0]) if made else None
        return child.late

    async def packed(self, data: Any) -> JSONDict:
        """Put a value into the store if it is large; the workflow itself must not write there."""
        payloads = self._host.payloads
        if not payloads.is_large(data):
            return {"data": data}
        made: JSONDict = await self._on_this_worker(Call(payloads.pack, data, mode=Mode.ASYNC))
        return made

    def _facts(self) -> Mapping[str, Any]:
        state = self._run.state
        return {"loop": self._path, "run_id": state.run_id, "iteration": len(state.nodes)}

    async def _activity(
        self, name: str, given: Mapping[str, Any], options: Mapping[str, Any], late: _Late
    ) -> Any:
        handle = workflow.start_activity(name, given, **options)
        return await self._awaited(handle, late.take)

    async def _on_this_worker(self, call: Call) -> Any:
        """Perform a call in a local activity, which finds it in a table of the process."""
        self._number += 1
        key = f"{workflow.info().run_id}#{self._number}"
        self._host.local_calls[key] = call
        late = _Late(sent=call.about if isinstance(call.about, ModelRequest) else None)
        handle = workflow.start_local_activity(HERE, key, **local_options())
        return self._outcome(await self._awaited(handle, late.take), late)

    async def _awaited(self, handle: asyncio.Task[Any], late: Callable[[Any], object]) -> Any:
        """Await an activity; if the task is cancelled, cancel the activity, and take what it has done meanwhile."""
        try:
            await asyncio.wait([handle])
        except asyncio.CancelledError:
            handle.cancel()
            await shielded(asyncio.wait([handle], timeout=CANCEL_SECONDS))
            if not handle.done():
                log.warning("an activity has not ended %g s after it was cancelled", CANCEL_SECONDS)
            elif not handle.cancelled() and handle.exception() is None:
                late(handle.result())
            raise
        return handle.result()

    def _outcome(self, made: Mapping[str, Any], late: _Late) -> Any:
        late.take(made)
        if "error" in made:
            raise from_data(made["error"])
        if "value" not in made:
            raise asyncio.CancelledError
        value = from_data(self._host.payloads.unpack_in_workflow(made["value"]))
        if isinstance(value, tuple) and len(value) == _TIMED:  # pyright: ignore[reportUnknownArgumentType]
            return self._on_clock(value)  # pyright: ignore[reportUnknownArgumentType]
        return value

    def _on_clock(self, timed: tuple[Any, ...]) -> tuple[Any, ...]:
        """An outcome with times by the clock of another machine, which may be ahead of that of the workflow."""
        value, started, ended = timed
        now = self.now()
        return value, min(started, now), min(ended, now)


_TIMED = 3
"""The length of a `Timed`."""


class _Late:
    """What is known of a call that has no outcome: the text so far, or a result that came too late."""

    def __init__(self, sent: ModelRequest | None = None, in_flight: InFlight | None = None) -> None:
        self._sent = sent
        self._in_flight = in_flight

    def take(self, made: Mapping[str, Any]) -> None:
        if self._sent is not None and "so_far" in made:
            self._sent.elsewhere = from_data(made["so_far"])
        if self._in_flight is not None and "late" in made:
            self._in_flight.complete(from_data(made["late"]))


def _performed_here(call: Call) -> Any:
    args = (*call.args, _NoReporter()) if call.reporting else call.args
    try:
        value = call.fn(*args)
    except (Exception, asyncio.CancelledError, SystemExit, GeneratorExit) as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure  # noqa: B904 - it has its cause
    if is_awaitable(value):
        close = getattr(value, "close", None)
        if close is not None:
            close()
        raise NotInWorkflowError(
            f"{call.key or call.label!r} is async, and cannot be awaited in a workflow: make it a plain function, "
            "or yield it as an effect"
        )
    return value


class _NoReporter:
    def now(self) -> float:
        return workflow.time()

    def emit(self, event: Any, listener: Any = None) -> None:
        """Do nothing: nothing that runs in the workflow itself reports."""
