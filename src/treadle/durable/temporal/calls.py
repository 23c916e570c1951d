"""Where each call of a run is performed: in an activity on any worker, on this worker, or in the workflow."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from treadle import labels
from treadle.codec import decode
from treadle.durable.temporal.conversation import Conversation
from treadle.durable.temporal.driver import shielded
from treadle.durable.temporal.payloads import TASK_BYTES, checked_size
from treadle.durable.temporal.policies import (
    CANCEL_SECONDS,
    local_options,
    options_of,
)
from treadle.durable.temporal.requests import request_as_data, tool_call_as_data
from treadle.durable.temporal.subagents import Child
from treadle.effects import Call, Effect, failure_of, is_awaitable
from treadle.errors import OutcomeUnknownError, TreadleError
from treadle.events import RunStarted
from treadle.messages import JSONDict, ToolCall
from treadle.model import ModelRequest
from treadle.tools import ToolCallTable, ToolContext

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
        labels.BUDGET,
        labels.CANCELLED,
        labels.RACE,
        labels.STREAMED,
        labels.STAGE,
        labels.OBSERVE,
    }
)
"""Calls whose outcome follows from what the workflow knows, so that a replay has the same."""


class ConversationLostError(TreadleError):
    """The store has lost the conversation of a request, which has to be sent as a whole."""


class NotInWorkflowError(TreadleError, RuntimeError):
    """A stage asks for something that a run on Temporal cannot do; the text says what, and what to do instead."""


class RunCalls:
    """Performs the calls of one run inside its workflow; see `treadle.durable.temporal.driver.Performer`.

    Args:
        host: what the worker has.
        path: the name of the loop, for the workers.
        loop: the loop of the run.

    Attributes:
        run: the run; None until it was made.
        part: the key of the part of the run that is performed.
        reported: the number of events for listeners so far.
    """

    def __init__(self, host: Host, path: str, loop: Loop[Any]) -> None:
        self._host = host
        self._path = path
        self._loop = loop
        self._relay: Relay | None = None
        self.part = ""
        self._has_own_listeners = False
        self._seq = 0  # the number of the latest event, if the listeners have had them all
        self._latest = 0.0
        self._number = 0
        self._sent = 0, 0  # the bytes of commands since the history had this length
        self._offered: dict[str, Any] = {}
        self._conversation = Conversation()
        self._started: RunStarted | None = None
        self.run: Run | None = None
        self.reported = 0

    def begin(
        self, loop: Loop[Any], part: str, relay: Relay | None, *, has_own_listeners: bool
    ) -> None:
        """Begin a part of the run.

        Args:
            loop: the loop with the options of the run.
            part: the key of the part.
            relay: passes its events to the listeners; None if there are none.
            has_own_listeners: whether some of them are not those of an outer run, and so number the events.
        """
        self._has_own_listeners = has_own_listeners
        self._loop, self.part, self._relay, self._started = loop, part, relay, None
        self._seq = self._run.services.ledger.event_counter.latest

    def now(self) -> float:
        """See `Performer`."""
        self._latest = max(self._latest, workflow.time())
        return self._latest

    def emit(self, event: Any) -> None:
        """See `Performer`. While the workflow is replayed, the listeners have the event already."""
        relay = self._relay
        if relay is None:
            return
        self._count(1)
        if workflow.unsafe.is_replaying():
            self._run.services.ledger.event_counter.latest = (
                self._seq
            )  # in case another process had the run
            if isinstance(event, RunStarted):
                self._started = event
            return
        started, self._started = self._started, None
        if started is not None and not relay.has_events:  # another process had the run
            relay.put(dataclasses.replace(started, resumed=True, at=self.now()))
        relay.put(event)

    def _count(self, events: int) -> None:
        self.reported += events
        if self._has_own_listeners:
            self._seq += events

    def keeps_time_of(self, effect: Effect, seconds: float) -> bool:
        """See `Performer`: an activity keeps the time limit of its tool."""
        if not (isinstance(effect, Call) and effect.label == labels.EXECUTE_TOOL):
            return False
        tool = self._loop.tools.get(effect.args[1].name) if self._is_of_loop(effect) else None
        return tool is not None and tool.timeout == seconds

    @property
    def _run(self) -> Run:
        if self.run is None:
            raise AssertionError("unreachable: effects are performed after the run was made")
        return self.run

    async def call(self, call: Call) -> Any:
        """See `Performer`."""
        if isinstance(call.about, ModelRequest) and call.about.model is self._run.services.model:
            return await self._chat(call.about)
        if call.label == labels.EXECUTE_TOOL and call.once and not self._is_of_loop(call):
            raise NotInWorkflowError(
                f"call {call.key}: its tool was added or replaced by a stage; on Temporal, any worker may run it, "
                "so it has to be among the tools of the loop, or idempotent"
            )
        if call.label == labels.EXECUTE_TOOL and self._is_of_loop(call):
            return await self._tool(*call.args[1:], once=call.once)
        if isinstance(call.about, Child):
            return await self._child(call.about)
        if call.label == labels.LAST_SEQ:
            return call.fn([self._seq])
        if call.label in _IN_PLACE:
            return _performed_here(call)
        return await (self._once(call) if call.once else self._on_this_worker(call))

    def _is_of_loop(self, call: Call) -> bool:
        about: object = call.about
        if about is None or not (len(call.args) > 1 and isinstance(call.args[1], ToolCall)):
            return False
        return about in (self._loop.tools.get(call.args[1].name), self._loop.resolver)

    # In activities

    async def _chat(self, sent: ModelRequest) -> Any:
        for name in self._loop.tools.keys() - self._offered.keys():
            self._offered[name] = self._loop.tools[name].as_openai()
        given = {**request_as_data(sent, self._offered), **self._facts()}
        options, late = options_of(seconds=None, once=False), _Late(sent=sent)
        what = f"the request of iteration {given['iteration']}"
        if self._host.conversations is None:
            given["messages"] = sent.messages
            return await self._activity(CHAT, what, given, options, late)
        while True:
            delta = self._conversation.delta(sent.messages)
            try:
                given["delta"] = delta.data
                answer = await self._activity(CHAT, what, given, options, late)
            except ConversationLostError:
                self._conversation.forget()
            else:
                self._conversation.stored(delta)
                return answer

    async def _tool(
        self, call: ToolCall, context: ToolContext | None, in_flight: ToolCallTable, *, once: bool
    ) -> Any:
        tool = self._loop.tools.get(call.name)
        given = {**tool_call_as_data(call, context), **self._facts()}
        options = options_of(seconds=None if tool is None else tool.timeout, once=once)
        late = _Late(in_flight=in_flight)
        what = f"call {call.id} of {call.name!r}"
        return await self._activity(EXECUTE_TOOL, what, given, options, late)

    async def _child(self, child: Child) -> Any:
        """Run a subagent as a child workflow; return its outcome, and what it used."""
        child.given["outer"]["relay"] = self.part
        await self.admit(child.given, f"the input of subagent {child.id!r}")
        handle = await workflow.start_child_workflow(
            workflow.info().workflow_type,
            child.given,
            id=child.id,
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
        )
        made: list[Any] = []
        try:
            made.append(await self._awaited(handle, made.append))
        finally:
            if made:
                late: JSONDict = made[0]
                self._count(late["events"])
                child.late = late
        return child.late

    async def admit(self, data: Any, what: str) -> None:
        """Wait until a value fits into what the workflow sends at once; a store has large ones.

        Raises:
            ValueTooLargeError: it never does.
        """
        if self._host.conversations is not None:
            return
        size = checked_size(data, what)
        while True:
            length = workflow.info().get_current_history_length()
            sent = self._sent[1] if self._sent[0] == length else 0
            if sent + size <= TASK_BYTES:
                break
            await asyncio.sleep(0.001)  # a timer, after which the history is longer
        self._sent = length, sent + size

    def _facts(self) -> Mapping[str, Any]:
        state = self._run.state
        return {
            "loop": self._path,
            "run_id": state.run_id,
            "part": self.part,
            "iteration": len(state.nodes),
        }

    async def _activity(
        self, name: str, what: str, given: JSONDict, options: Mapping[str, Any], late: _Late
    ) -> Any:
        await self.admit(given, what)
        since = self.now()
        handle = workflow.start_activity(name, given, **options)
        try:
            made = await self._awaited(handle, late.take)
        except ActivityError as error:  # an exception of the tool or the model is an outcome
            raise OutcomeUnknownError(f"{what} has no outcome: {error.cause or error}") from error
        return self._outcome(made, late, since)

    async def _once(self, call: Call) -> Any:
        """Perform a call that must not be made twice; see `Host.mark`."""
        mark: str = await self._on_this_worker(Call(self._host.mark))
        await asyncio.sleep(0.001)  # a timer: when it is over, the history has the mark
        return await self._on_this_worker(call, mark)

    async def _on_this_worker(self, call: Call, mark: str | None = None) -> Any:
        """Perform a call in a local activity, which finds it in a table of the process.

        Args:
            call: the call.
            mark: the mark that the activity uses, for a call that must not be made twice.
        """
        self._number += 1
        key = f"{workflow.info().run_id}#{self._number}"
        self._host.local_calls[key] = call, self._path, self.part, mark
        late = _Late(sent=call.about if isinstance(call.about, ModelRequest) else None)
        since = self.now()
        handle = workflow.start_local_activity(HERE, key, **local_options())
        return self._outcome(await self._awaited(handle, late.take), late, since)

    async def _awaited(self, handle: asyncio.Task[Any], late: Callable[[Any], object]) -> Any:
        """Await an activity; if the task is cancelled, cancel the activity, and take what it has done so far."""
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

    def _outcome(self, made: Mapping[str, Any], late: _Late, since: float) -> Any:
        """The outcome of an activity that was started at some time."""
        late.take(made)
        self._count(made.get("events", 0))
        if "error" in made:
            raise decode(made["error"])
        if "value" not in made:
            raise asyncio.CancelledError
        value: Any = decode(made["value"])
        match value:
            case (outcome, float(started), float(ended)):
                # By the clock of another machine, which need not agree with that of the workflow.
                now = self.now()
                return outcome, min(max(since, started), now), min(max(since, ended), now)
            case _:
                return value


class _Late:
    """Takes what is known of a call, also if it was cancelled: the text so far, or a result that comes too late.

    Args:
        sent: the request, if it is one to the model.
        in_flight: takes the result, if it is a call of a tool.
    """

    def __init__(
        self,
        sent: ModelRequest | None = None,
        in_flight: ToolCallTable | None = None,
    ) -> None:
        self._sent = sent
        self._in_flight = in_flight

    def take(self, made: Mapping[str, Any]) -> None:
        if self._sent is not None and "so_far" in made:
            self._sent.elsewhere = decode(made["so_far"])
        if self._in_flight is not None:
            if "late" in made:
                self._in_flight.complete(decode(made["late"]))
            elif "value" in made:
                result, *_ = decode(made["value"])
                self._in_flight.complete(result)


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
