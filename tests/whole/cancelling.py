"""A run that is cancelled at some step of its tasks, and all that has to hold then, wherever that was."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import trio
from tests.deciding import on

from treadle import Loop, RunCancelled, RunHandle, RunState, ToolContext, tool
from treadle.effects import cleanup, drive
from treadle.events import RunFinished, RunStarted, SubagentEvent, ToolFinished
from treadle.loop.start import start_run
from treadle.testing import check_history

from .scripts import HELLO


@dataclass
class Cancelling:
    """One run that is cancelled at some step of its tasks.

    Args:
        at: the number of the step; 0 is never.
        ends: how the run ends where it is not cancelled.
        grace: seconds that a call has which was cancelled; None is the usual.
    """

    at: int
    ends: str = "answered"
    grace: float | None = None
    events: list[Any] = field(default_factory=list)
    finished: list[tuple[str, str]] = field(default_factory=list)
    handle: RunHandle = field(default_factory=RunHandle)
    inside: int = 0
    steps: int = 0
    cancel: Callable[[], object] | None = None
    seen_before: int = 0
    heard: Any = None
    left: int = 0
    result: Any = None
    was_cancelled: bool = False
    is_struck: bool = False
    also: Callable[[], None] | None = None

    def tick(self) -> None:
        """Count a step; cancel the run if it is the one."""
        if self.cancel is not None:
            self.steps += 1
            if self.steps == self.at:
                self.is_struck = True
                self.seen_before = len(self.events)
                self.cancel()

    async def observe(self, event: Any) -> None:
        self.events.append(event)
        await anyio.lowlevel.checkpoint()
        self.heard = event

    async def run(self, llm: Any, **options: Any) -> None:
        """Run from the start."""
        options = {**options, "handle": self.handle, "on_event": self.observe}
        if self.grace is None:
            self.result = await Loop.run(HELLO, llm, **options)
        else:
            steps, emit = start_run(Loop(**options), HELLO, llm)
            usual, cleanup.GRACE_SECONDS = cleanup.GRACE_SECONDS, self.grace
            try:
                self.result = await drive(steps, emit)
            finally:
                cleanup.GRACE_SECONDS = usual

    async def resume(self, state: Any, decisions: Any, llm: Any, **options: Any) -> None:
        """Resume a paused run."""
        options = {**options, "handle": self.handle, "on_event": self.observe}
        self.result = await Loop.resume(state, on(state, decisions), llm, **options)

    def rest(self) -> Any:
        """A tool that sleeps, and notes when it has."""

        @tool
        async def rest(seconds: float, context: ToolContext) -> str:
            """Sleep and note it."""
            self.inside += 1
            try:
                await anyio.sleep(seconds)
                self.finished.append((context.run_id, context.call_id))
                return f"slept {context.call_id}"
            finally:
                self.inside -= 1

        return rest

    def check(self) -> None:
        """All that has to hold after a run, wherever it was cancelled."""
        state = self.handle.state
        assert state is not None
        assert self.handle.result is not None
        assert state.messages == self.handle.messages == self.handle.result.messages
        assert self.left == 0
        assert self.handle.in_flight == ()
        self.check_end(state)
        histories = {each.run_id: each.messages for each in states_of(state)}
        for history in histories.values():
            check_history(history)
        for run_id, call_id in self.finished:
            assert answers_of(histories[run_id])[call_id] == f"slept {call_id}"
        for event in self.events:
            if isinstance(event, ToolFinished) and event.result.status != "waiting":
                assert answers_of(histories[state.run_id])[event.call.id] == event.result.content
        self.check_children()
        deadline = time.monotonic() + 30
        while self.inside and time.monotonic() < deadline:  # a thread may have a moment to go
            time.sleep(0.001)
        assert self.inside == 0
        if self.also is not None:
            self.also()

    def check_end(self, state: RunState) -> None:
        ends = [event for event in self.events if isinstance(event, RunFinished)]
        assert len(ends) == 1, ends
        assert ends == self.events[-1:]
        assert isinstance(self.events[0], RunStarted)
        was_over = any(isinstance(event, RunFinished) for event in self.events[: self.seen_before])
        if self.ends == "paused":  # between its last call and its end nothing waits, to be struck
            was_over = was_over or ends[0].result is not None
        if not self.is_struck or was_over:
            assert ends[0].stop_reason == self.ends
            assert state.is_terminal == (self.ends != "paused")
        else:
            assert self.was_cancelled
            assert self.result is None
            assert ends[0].stop_reason == "cancelled"
            assert self.heard is ends[0]  # the observer was not cut off, though it had to wait
            assert ends[0].result is None
            assert self.handle.result is not None
            assert self.handle.result.reason == RunCancelled()
            assert state.is_terminal
            for each in states_of(state):
                assert not each.is_running
                assert all(node.status.value != "running" for node in nodes_of(each))

    def check_children(self) -> None:
        """Each child that began has reported its end, once, and before the run that it is a call of."""
        begun: Counter[tuple[str, ...]] = Counter()
        ended: Counter[tuple[str, ...]] = Counter()
        for event in self.events:
            path: tuple[str, ...] = ()
            inner = event
            while isinstance(inner, SubagentEvent):
                path, inner = (*path, inner.call_id), inner.event
            begun[path] += isinstance(inner, RunStarted)
            ended[path] += isinstance(inner, RunFinished)
            assert ended[path] <= begun[path] <= ended[path] + 1
        assert begun == ended


def states_of(state: RunState) -> Iterator[RunState]:
    """The record of a run, and those of its children."""
    yield state
    for node in nodes_of(state):
        if node.run is not None:
            yield from states_of(node.run)


def nodes_of(state: RunState) -> list[Any]:
    """The nodes of all iterations and calls of a run."""
    return [each for node in state.nodes for each in (node, *node.tool_calls)]


def answers_of(history: list[Any]) -> dict[str, str]:
    """What the calls of a history were answered, by id."""
    return {m["tool_call_id"]: m["content"] for m in history if m["role"] == "tool"}


class Watched(Coroutine[Any, Any, Any]):
    """A coroutine that ticks whenever it is suspended."""

    def __init__(self, inner: Any, tick: Callable[[], None]) -> None:
        self.inner = inner
        self.tick = tick

    def send(self, value: Any) -> Any:
        yielded = self.inner.send(value)
        self.tick()
        return yielded

    def throw(self, *error: Any) -> Any:
        yielded = self.inner.throw(*error)
        self.tick()
        return yielded

    def close(self) -> None:
        self.inner.close()

    def __await__(self) -> Any:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def on_asyncio(
    run: Cancelling, start: Callable[[], Coroutine[Any, Any, None]], *, soon: bool
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(
            lambda loop, coro, **options: asyncio.Task(
                Watched(coro, run.tick), loop=loop, **options
            )
        )
        task = loop.create_task(start())
        run.cancel = (lambda: loop.call_soon(task.cancel)) if soon else task.cancel
        try:
            await asyncio.wait([task])
            run.was_cancelled = task.cancelled()
            if not task.cancelled():
                task.result()
        finally:
            run.cancel = None
        run.left = len(asyncio.all_tasks()) - 1

    asyncio.run(main())


class Ticker(trio.abc.Instrument):
    def __init__(self, tick: Callable[[], None]) -> None:
        self.tick = tick

    def after_task_step(self, task: Any) -> None:
        self.tick()


def on_trio(run: Cancelling, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        before = len(trio.lowlevel.current_root_task().child_nurseries)
        with trio.CancelScope() as scope:
            run.cancel = scope.cancel
            await start()
        run.cancel = None
        run.was_cancelled = scope.cancelled_caught
        run.left = len(trio.lowlevel.current_root_task().child_nurseries) - before

    trio.run(main, instruments=[Ticker(run.tick)])


DRIVES: dict[str, Callable[[Cancelling, Any], None]] = {
    "asyncio": lambda run, start: on_asyncio(run, start, soon=False),
    "asyncio_soon": lambda run, start: on_asyncio(run, start, soon=True),
    "trio": on_trio,
}


def cancelled_everywhere(
    drive: Callable[[Cancelling, Any], None],
    scenario: Callable[[Cancelling], Any],
    ends: str = "answered",
    grace: float | None = None,
) -> list[Cancelling]:
    """Run a scenario once for each of its steps, and cancel it there.

    Args:
        drive: one of `DRIVES`.
        scenario: makes the coroutine of the run.
        ends: the stop reason where it is not cancelled.
        grace: see `Cancelling`.
    """
    undisturbed = Cancelling(0, ends, grace)
    drive(undisturbed, lambda: scenario(undisturbed))
    undisturbed.check()
    assert undisturbed.result.stop_reason == ends
    runs = []
    for at in range(1, undisturbed.steps + 1):
        run = Cancelling(at, ends, grace)
        drive(run, lambda run=run: scenario(run))
        try:
            run.check()
        except BaseException as error:
            error.add_note(f"cancelled at step {at} of {undisturbed.steps}: {run.events}")
            raise
        runs.append(run)
    gc.collect()  # coroutines that were never awaited would warn now, and fail the test
    return runs
