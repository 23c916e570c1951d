"""The ways to run one loop: in a thread, on asyncio, on trio; awaited or streamed."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
from tests.deciding import on

from treadle import Loop, RunHandle, RunState


@dataclass
class ObservedRun:
    """What was observed of a run.

    Args:
        result: what it returned.
        events: what it emitted, in order.
        state: its record.
    """

    result: Any = None
    events: list[Any] = field(default_factory=list)
    state: RunState = field(default_factory=lambda: RunState("agent", "run"))


class Way:
    """One way to run a loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.backend = name.removeprefix("stream_")

    def __repr__(self) -> str:
        return self.name

    @property
    def is_sync(self) -> bool:
        return self.name == "sync"

    @property
    def is_streamed(self) -> bool:
        return self.name.startswith("stream_")

    def run(self, messages: Any, llm: Any, **options: Any) -> ObservedRun:
        """Run to the end, or to the first pause.

        Args:
            messages: what it starts from.
            llm: the model.
            **options: of the loop; and ``handle_ref``, which is given the run's handle.
        """
        observed = ObservedRun(state=options.pop("state", None) or RunState("agent", "run"))
        state = None if "journal" in options else observed.state  # a journal makes its own
        self.go(observed, Loop.run, Loop.run_sync, Loop.stream, (messages, llm), options, state)
        return observed

    def resume(self, observed: ObservedRun, decisions: Any, llm: Any, **options: Any) -> None:
        """Resume a paused run, as if in another process; adds to its events."""
        decided = on(observed.result, decisions)
        given = (json.dumps(observed.result.state), decided, llm)
        self.go(observed, Loop.resume, Loop.resume_sync, Loop.resume_stream, given, options, None)
        observed.state = observed.result.run

    def go(
        self,
        observed: ObservedRun,
        run: Any,
        run_sync: Any,
        stream: Any,
        given: tuple[Any, ...],
        options: dict[str, Any],
        state: RunState | None,
    ) -> None:
        """Observe a run: sync, async or streamed.

        Args:
            observed: receives what is observed.
            run: runs it, awaited.
            run_sync: runs it in this thread.
            stream: runs it, streamed.
            given: the arguments of each of these.
            options: of the loop; and ``handle_ref``.
            state: the record of the run; None if it makes its own.
        """
        options = {"name": "agent", **options, "state": state}
        handle_ref = options.pop("handle_ref", None) or HandleRef()
        if self.is_streamed:
            opened = functools.partial(stream, *given, **options)
            anyio.run(_read, observed, opened, handle_ref, backend=self.backend)
            return
        if handle_ref.is_wanted:
            handle_ref.handle = options["handle"] = RunHandle()
        options.setdefault("on_event", observed.events.append)
        if self.is_sync:
            observed.result = run_sync(*given, **options)
        else:
            observed.result = self.call(run, *given, **options)

    def call(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Await an async function on the event loop of this way."""

        async def called() -> Any:
            return await fn(*args, **options)

        return anyio.run(called, backend=self.backend)


class HandleRef:
    """Where a script finds the handle of its run, in each of the ways to run it.

    Args:
        is_wanted: whether there has to be one.
    """

    def __init__(self, *, is_wanted: bool = False) -> None:
        self.is_wanted = is_wanted
        self.handle: RunHandle | None = None

    def steer(self, text: str) -> None:
        """Say something to the model."""
        assert self.handle is not None
        assert self.handle.steer(text)


async def _read(observed: ObservedRun, opened: Callable[[], Any], handle_ref: HandleRef) -> None:
    async with opened() as events:
        handle_ref.handle = events
        async for event in events:  # a run that raises has had events
            observed.events.append(event)
    observed.result = events.result


SYNC, ASYNCIO, TRIO = Way("sync"), Way("asyncio"), Way("trio")
AWAITED = [ASYNCIO, TRIO]
DRIVEN = [SYNC, ASYNCIO, TRIO]
WAYS = [*DRIVEN, Way("stream_asyncio"), Way("stream_trio")]
