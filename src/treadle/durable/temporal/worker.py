"""The worker: runs the workflows and the activities of loops, until it is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.worker import (
    Interceptor,
    Replayer,
    Worker,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from treadle.durable.temporal.activities import Activities
from treadle.durable.temporal.blob_store import BlobStore, check_store
from treadle.durable.temporal.host import Host
from treadle.durable.temporal.payloads import converter_with_store, with_store
from treadle.durable.temporal.workflow import HOST, RunWorkflow
from treadle.loop.loop import Loop

TASK_QUEUE = "treadle"
"""The default task queue of workers and of runs."""
GRACE_SECONDS = 30.0
"""How long a worker that stops waits for its activities."""


class _GivesHost(Interceptor):
    """Gives the workflows of a worker what the worker has, through the wall of the sandbox."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 - the name in the base class
    ) -> type[WorkflowInboundInterceptor] | None:
        """Let the workflows reach the host of this worker; nothing is intercepted."""
        functions = cast("Any", input.unsafe_extern_functions)  # pyright: ignore[reportUnknownMemberType]
        functions[HOST] = lambda: self._host
        return None


def make_worker(
    client: Client,
    loops: Mapping[str, Loop[Any]] | Loop[Any],
    *,
    task_queue: str = TASK_QUEUE,
    store: BlobStore | None = None,
    max_events: int | None = None,
    interceptors: Sequence[Interceptor] = (),
    **options: Any,
) -> Worker:
    """Make a worker that runs the workflows and the activities of loops; call it on the event loop that runs it.

    The loops bring what their runs need: the model, the tools, and ``deps``. All workers of a task queue have the
    same loops, so that any of them can continue a run.

    Args:
        client: connected to the server.
        loops: the loops by the names by which runs are started; or one loop, whose name is its option ``name``.
        task_queue: the queue from which it takes work.
        store: has the conversations and large values, so that the histories of workflows do not: `SQLiteBlobStore`
            for the workers of one machine, `RedisBlobStore` or another `BlobStore` for several. None leaves them
            in the histories, where the server allows two megabytes for each value.
        max_events: the number of events of a history from which a run goes on in a new one; None leaves it to the
            server to suggest that.
        interceptors: further interceptors, such as OpenTelemetry's ``TracingInterceptor``.
        **options: options of `temporalio.worker.Worker`, such as ``max_concurrent_activities``.

    Raises:
        OptionError: a loop cannot run as a workflow; the text says why.
    """
    host = _host(loops, store, max_events)
    options.setdefault("graceful_shutdown_timeout", timedelta(seconds=GRACE_SECONDS))
    options.setdefault("max_heartbeat_throttle_interval", timedelta(seconds=1))
    return Worker(
        with_store(client, store),
        task_queue=task_queue,
        workflows=[RunWorkflow],
        activities=Activities(host).all,
        workflow_runner=_runner(),
        interceptors=[*interceptors, _GivesHost(host)],
        **options,
    )


def make_replayer(
    loops: Mapping[str, Loop[Any]] | Loop[Any],
    *,
    store: BlobStore | None = None,
    max_events: int | None = None,
    interceptors: Sequence[Interceptor] = (),
    **options: Any,
) -> Replayer:
    """Make a replayer, which checks that changed loops can continue the runs of some histories.

    Args:
        loops: as for `make_worker`.
        store: that of the workers.
        max_events: that of the workers.
        interceptors: those of the workers.
        **options: options of `temporalio.worker.Replayer`.
    """
    converter = options.pop("data_converter", DataConverter.default)
    return Replayer(
        data_converter=converter_with_store(converter, store),
        workflows=[RunWorkflow],
        workflow_runner=_runner(),
        interceptors=[*interceptors, _GivesHost(_host(loops, store, max_events))],
        **options,
    )


def _host(
    loops: Mapping[str, Loop[Any]] | Loop[Any], store: BlobStore | None, max_events: int | None
) -> Host:
    if isinstance(loops, Loop):
        loops = {loops.settings.name: loops}
    if store is not None:
        check_store(store, "store")
    return Host(loops, store, max_events)


def _runner() -> SandboxedWorkflowRunner:
    """The sandbox, in which modules are those of the process: the loops of the worker were made with them."""
    restrictions = SandboxRestrictions.default.with_passthrough_all_modules()
    return SandboxedWorkflowRunner(restrictions=restrictions)


async def run_worker(
    client: Client, loops: Mapping[str, Loop[Any]] | Loop[Any], **options: Any
) -> None:
    """Run a worker until the task is cancelled; see `make_worker`."""
    await make_worker(client, loops, **options).run()
