"""Runs on Temporal as their callers see them: start one, steer it, decide on its calls, get its result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Generator, Mapping
from typing import Any

from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from treadle.durable.temporal.blob_store import BlobStore
from treadle.durable.temporal.payloads import ValueTooLargeError, checked_size, with_store
from treadle.durable.temporal.results import result_of
from treadle.durable.temporal.worker import TASK_QUEUE
from treadle.durable.temporal.workflow import WORKFLOW
from treadle.errors import OptionError
from treadle.loop.handle import RunHandle
from treadle.loop.loop import Loop
from treadle.messages import JSONDict, Messages, copy_json
from treadle.results import Result
from treadle.tools import Approval

log = logging.getLogger("treadle.durable")

AGAIN_SECONDS = 1.0
"""How long to wait until a server that does not answer is asked again."""
# The SDK reports a connection that breaks while it waits as UNKNOWN.
_NO_CONNECTION = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN)


async def connect(address: str, namespace: str) -> Client:
    """Connect to a server.

    Args:
        address: host and port, with a colon between them.
        namespace: the namespace of the workflows.

    Raises:
        ConnectionError: the server is not available.
    """
    try:
        return await Client.connect(address, namespace=namespace)
    except RuntimeError as error:  # the class that the SDK raises
        raise ConnectionError(f"the server {address} is not available: {error}") from error


class TemporalRun:
    """A run on Temporal, in any process that has a client.

    Args:
        client: connected to the server.
        run_id: the id of the run, which is that of its workflow.
        loop: makes the output of the result an object of its type; None leaves it as JSON data.
        store: that of the workers.
    """

    def __init__(
        self,
        client: Client,
        run_id: str,
        loop: Loop[Any] | None = None,
        *,
        store: BlobStore | None = None,
    ) -> None:
        client = with_store(client, store)
        self._handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(run_id)
        self._loop = loop
        self.run_id = run_id

    async def result(self) -> Result:
        """Wait for the result, also for days if calls of the run wait for approval, and while the server is down.

        Raises:
            OptionError: the run could not start; the text says why.
            ValueTooLargeError: the result, or the state of the run, is too large to be kept without a store.
        """
        try:
            made = await self._answer()
        except WorkflowFailureError as error:
            _raise_reported(error)
            raise
        return result_of(made["outcome"], self._loop)

    async def _answer(self) -> Any:
        """What the workflow returns. The server is asked again if the connection breaks."""
        while True:
            try:
                return await self._handle.result()
            except RPCError as error:
                if error.status not in _NO_CONNECTION:
                    raise
                log.warning("run %s: the server does not answer: %s", self.run_id, error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def decide(self, decisions: Mapping[str, Approval]) -> list[str]:
        """Decide on calls that wait for approval; the run continues when it has a decision on each.

        Args:
            decisions: `approve`, ``deny(reason)`` or ``edit(arguments)``, by the id of the pending call.

        Returns:
            The ids of the calls that still wait.

        Raises:
            OptionError: a decision on a call that does not wait, or edited arguments that are invalid.
        """
        given = {key: decision.as_json() for key, decision in decisions.items()}
        handle: Any = self._handle
        try:
            with self._running():
                left: list[str] = await handle.execute_update("decide", given)
        except WorkflowUpdateFailedError as error:
            _raise_reported(error)
            raise
        return left

    async def steer(self, message: str | Mapping[str, Any]) -> None:
        """Add a user message before the next request to the model.

        Raises:
            OptionError: it is not a user message, or the run has ended.
        """
        RunHandle().steer(message)  # raises if it is none
        with self._running():
            await self._handle.signal("steer", message)

    async def cancel(self) -> None:
        """End the run with `RunCancelled`; running calls are cancelled and answered.

        Raises:
            OptionError: the run has ended.
        """
        with self._running():
            await self._handle.signal("cancel")

    async def state(self) -> JSONDict:
        """The status of the run, its calls that run, and those that wait for approval."""
        with self._running():
            state: JSONDict = await self._handle.query("state")
        return state

    @contextlib.contextmanager
    def _running(self) -> Generator[None]:
        """Raise `OptionError` if the server says that there is no such run, or none that has not ended."""
        try:
            yield
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise OptionError(
                f"run {self.run_id!r}: the run has ended, or was not started: {error}"
            ) from error


def _raise_reported(error: WorkflowFailureError | WorkflowUpdateFailedError) -> None:
    """Raise the error of a caller that a workflow reported, if it did."""
    cause = error.cause
    for kind in (OptionError, ValueTooLargeError):
        if isinstance(cause, ApplicationError) and cause.type == kind.__name__:
            raise kind(cause.message) from error


async def start_on_temporal(
    client: Client,
    loop: Loop[Any] | str,
    messages: Messages,
    *,
    run_id: str | None = None,
    task_queue: str = TASK_QUEUE,
    store: BlobStore | None = None,
    **options: Any,
) -> TemporalRun:
    """Start a run on Temporal; workers perform it.

    Args:
        client: connected to the server.
        loop: the name of the loop, or a loop whose option ``name`` is that name; the workers have the loop itself.
        messages: a text, or a list of OpenAI chat dicts.
        run_id: the id of the run; None makes one. If a run of this id was started already, that run is returned.
        task_queue: the queue of the workers.
        store: that of the workers.
        **options: options of `temporalio.client.Client.start_workflow`.

    Raises:
        ValueTooLargeError: the messages are too large to be sent without a store.

    Returns:
        The run, which has been started and goes on without this process.
    """
    name = loop if isinstance(loop, str) else loop.settings.name
    run_id = run_id or uuid.uuid4().hex
    given = {"loop": name, "messages": copy_json(messages)}
    if store is None:
        checked_size(given, "messages")
    with contextlib.suppress(WorkflowAlreadyStartedError):  # it has ended: its result is there
        await with_store(client, store).start_workflow(
            WORKFLOW,
            given,
            id=run_id,
            task_queue=task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            **options,
        )
    return TemporalRun(client, run_id, None if isinstance(loop, str) else loop, store=store)


async def run_on_temporal(
    client: Client, loop: Loop[Any] | str, messages: Messages, **options: Any
) -> Result:
    """Run a loop on Temporal, and wait for its result; see `start_on_temporal`."""
    run = await start_on_temporal(client, loop, messages, **options)
    return await run.result()
