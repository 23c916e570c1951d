"""The activities of a worker: they make a call again from its data, and perform it as `Loop.run` would."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.service import RPCError

from treadle import effects
from treadle.codec import encode
from treadle.durable.temporal import calls
from treadle.durable.temporal.blob_store import StoredValueError
from treadle.durable.temporal.payloads import ValueTooLargeError, checked_size
from treadle.durable.temporal.policies import HEARTBEAT_SECONDS
from treadle.durable.temporal.requests import (
    chat_effect,
    request_from_data,
    tool_call_from_data,
    within_limits,
)
from treadle.effects import (
    BackgroundCall,
    Bounded,
    Cancelled,
    Effect,
    Steps,
)
from treadle.errors import OutcomeUnknownError
from treadle.messages import JSONDict
from treadle.model import ModelRequest

if TYPE_CHECKING:
    from treadle.durable.temporal.host import Host, Relay

log = logging.getLogger("treadle.durable")


class Activities:
    """The activities of a worker.

    An exception of a tool or a model is part of the outcome. An activity fails only if its worker ends, or if the
    worker is not as the workflow expects it; then the server starts it again, if it may.

    Args:
        host: has the loops.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        """The activities, for the worker."""
        return self.chat, self.execute_tool, self.here

    @activity.defn(name=calls.CHAT)
    async def chat(self, given: Mapping[str, Any]) -> JSONDict:
        """Send a request to the model of a loop."""
        try:
            messages = await self._messages(given)
        except StoredValueError as error:
            log.warning("%s; the whole conversation is sent again", error)
            return {"error": encode(calls.ConversationLostError(str(error)))}
        request = request_from_data(
            given,
            messages,
            self._host.loop(given["loop"]),
            given["iteration"],
            has_listeners=self._host.relay(given["part"]) is not None,
        )
        call = chat_effect(request, given["iteration"])
        steps = within_limits(call, request, self._host.loop(given["loop"]))
        what = f"the answer of iteration {given['iteration']}"
        return await self._performed(steps, given["part"], what, lambda: _so_far(request))

    async def _messages(self, given: Mapping[str, Any]) -> list[JSONDict]:
        conversations = self._host.conversations
        if "delta" not in given:
            messages: list[JSONDict] = given["messages"]
            return messages
        if conversations is None:
            raise RuntimeError(
                "the worker has no store, and the workflow was started on one that has"
            )
        return await conversations.add(given["delta"])

    @activity.defn(name=calls.EXECUTE_TOOL)
    async def execute_tool(self, given: Mapping[str, Any]) -> JSONDict:
        """Run a tool of a loop, or its resolver."""
        loop = self._host.loop(given["loop"])
        call, in_flight = tool_call_from_data(
            given,
            loop,
            given["run_id"],
            given["iteration"],
            has_listeners=self._host.relay(given["part"]) is not None,
        )
        tool = loop.tools.get(call.args[0].call.name)
        effect: Effect = call
        if tool is not None and tool.timeout is not None:
            effect = Bounded(_one(call), seconds=tool.timeout)

        def late() -> JSONDict:
            result = in_flight.late_result(call.key)
            return {} if result is None else {"late": encode(result)}

        what = f"the outcome of call {call.key} of {call.args[0].call.name!r}"
        return await self._performed(_one(effect), given["part"], what, late)

    @activity.defn(name=calls.HERE)
    async def here(self, key: str) -> JSONDict:
        """Perform a call that the workflow has put in the table of this process."""
        call, path, part, mark = self._host.local_calls.pop(key)
        if mark is not None and not self._host.use(mark):
            error = OutcomeUnknownError(
                f"{call!r} was started on a worker that has not reported its outcome"
            )
            return {"error": encode(error)}
        sent: object = call.about
        what = f"the outcome of {call.label} {call.key!r}"
        if not isinstance(sent, ModelRequest):
            return await self._performed(_one(call), part, what, dict[str, Any])
        steps = within_limits(call, sent, self._host.loop(path))
        return await self._performed(steps, part, what, lambda: _so_far(sent))

    async def _performed(
        self, steps: Steps[Any], part: str, what: str, without_outcome: Callable[[], JSONDict]
    ) -> JSONDict:
        """Perform a call, and write its outcome as data.

        Args:
            steps: the call.
            part: the key of the part of the run, whose listeners hear what the call reports.
            what: names the outcome in errors.
            without_outcome: what to tell of a call that failed or was cancelled.
        """
        reported = _Reported(self._host.relay(part))
        try:
            async with _heartbeats():
                value = await effects.drive(steps, reported.emit)
            made: JSONDict = {"value": encode(value)}
        except (asyncio.CancelledError, Cancelled):
            if not _is_asked_to_cancel():
                raise
            made = without_outcome()
        except Exception as error:  # noqa: BLE001 - it is an outcome
            made = {"error": encode(error), **without_outcome()}
        if self._host.conversations is None:
            try:
                checked_size(made, f"{what} is known, and was not kept")
            except ValueTooLargeError as error:
                made = {"error": encode(error)}
        return {**made, "events": reported.count} if reported.count else made


class _Reported:
    """Passes on what a call reports, and counts it.

    Args:
        relay: passes it to the listeners of the run; None if they are in another process.
    """

    def __init__(self, relay: Relay | None) -> None:
        self._relay = relay
        self.count = 0

    def emit(self, event: Any) -> None:
        if self._relay is not None:
            self.count += 1
            self._relay.put(event)


def _so_far(request: ModelRequest) -> JSONDict:
    return {"so_far": encode(request.so_far(_Clock()))}


def _is_asked_to_cancel() -> bool:
    """Whether the workflow cancels this activity; else its worker ends, or the server has given it up."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


def _one(effect: Effect) -> Steps[Any]:
    return (yield effect)


@contextlib.asynccontextmanager
async def _heartbeats() -> AsyncGenerator[None]:
    """Tell the server regularly that this activity runs; a local one needs no heartbeat.

    A tool that blocks the event loop of the worker runs all the same: another loop sends the heartbeats meanwhile.
    """
    if activity.info().is_local:
        yield
        return

    handle = activity.client().get_async_activity_handle(task_token=activity.info().task_token)
    latest = time.monotonic()

    async def beat() -> None:
        nonlocal latest
        while True:
            activity.heartbeat()  # the answer says whether the activity is cancelled
            latest = time.monotonic()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def beat_for_blocked_loop() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if time.monotonic() - latest > 2 * HEARTBEAT_SECONDS:
                with contextlib.suppress(RPCError, AsyncActivityCancelledError):
                    await handle.heartbeat()

    task, other = asyncio.create_task(beat()), BackgroundCall(beat_for_blocked_loop()).start()
    try:
        yield
    finally:
        task.cancel()
        other.cancel()


class _Clock:
    """The clock of this process, for what is reported after a call."""

    now = staticmethod(time.time)

    def emit(self, event: Any, listener: Any = None) -> None:
        """Do nothing."""
