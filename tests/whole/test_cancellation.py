"""Cancelled from outside, out of time, interrupted: a run leaves everything in order, and lets go."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.runners import interrupt_main
from tests.ways import SYNC, ObservedRun, Way

from treadle import DeadlineExceeded, Loop, RunCancelled, RunHandle, RunState, tool
from treadle.events import RunFinished, ToolFinished, ToolStarted
from treadle.testing import ScriptedLLM, call, calls, check_history

from .scripts import HELLO, add, doze, nap

LONG, SOON = 30, 10
"""How long something takes that is not waited for, and by when the run is over; a busy machine is slow."""


@pytest.fixture
def stall():
    """A tool that blocks its thread until the test is over."""
    release = threading.Event()

    @tool
    def stall() -> str:
        """Block."""
        release.wait(LONG)
        return "too late"

    yield stall
    release.set()


def test_a_run_that_was_cancelled_can_go_on_from_its_history(awaited: Way):
    """What is on the handle is what the next run starts from, and nothing needs repair."""
    handle = RunHandle()
    batch = calls(call("add", "c1", a=1, b=1), call("nap", "c2", seconds=9))

    async def main() -> Any:
        with anyio.CancelScope() as scope:

            def cancel(event: Any) -> None:
                if isinstance(event, ToolFinished):
                    scope.cancel()

            options = {"tools": [add, nap], "handle": handle, "on_event": cancel}
            await Loop.run(HELLO, ScriptedLLM(batch), **options)
        return await Loop.run(handle.messages, ScriptedLLM("So it is 2."), tools=[add, nap])

    result = awaited.call(main)
    assert result.run.repairs == ()
    assert [m["role"] for m in result.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert result.messages[3]["content"] == "2"
    assert result.messages[4]["content"].startswith("Cancelled")


# Through the handle.


def waiting_batch(stall: Any) -> tuple[Any, list[Any], Callable[[RunHandle], bool]]:
    """A batch of calls that are done and calls that hang, its tools, and whether only those are left."""
    begun = threading.Event()

    @tool
    async def hang() -> str:
        """Hang on the event loop."""
        begun.set()
        await anyio.sleep(LONG)
        return "never"

    batch = calls(
        call("add", "c1", a=1, b=1),
        call("stall", "c2"),
        call("hang", "c3"),
        call("add", "c4", a=2, b=2),
    )
    return batch, [add, hang, stall], lambda handle: begun.is_set() and len(handle.in_flight) == 2


def when(is_so: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
    """Do something in another thread as soon as something is so."""

    def wait() -> None:
        deadline = time.monotonic() + LONG
        while not is_so() and time.monotonic() < deadline:
            time.sleep(0.002)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("act", ["cancel", "cancel_all"])
def test_a_handle_stops_what_runs_from_another_thread(driven: Way, act: str, stall: Any):
    handle, stopped = RunHandle(), []
    batch, tools, only_those_that_hang = waiting_batch(stall)
    thread = when(
        lambda: only_those_that_hang(handle), lambda: stopped.append(getattr(handle, act)())
    )
    before = time.monotonic()
    observed = driven.run(HELLO, ScriptedLLM(batch, "Fine."), tools=tools, handle=handle)
    assert time.monotonic() - before < SOON
    thread.join()

    check_history(observed.result.messages)
    contents = [m["content"] for m in observed.result.messages if m["role"] == "tool"]
    assert contents[0] == "2"
    assert contents[3] == "4"
    assert all(text.startswith("Cancelled") for text in contents[1:3])
    assert observed.events[-1].result == observed.result == handle.result
    if act == "cancel":
        assert observed.result.reason == RunCancelled()
    else:
        assert observed.result.response.content == "Fine."
        assert [asked.id for asked in stopped[0]] == ["c2", "c3"]
    starts = [event.call.id for event in observed.events if isinstance(event, ToolStarted)]
    assert sorted(starts) == ["c1", "c2", "c3", "c4"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handle_ends_a_run_while_the_model_is_asked(driven: Way, is_async: bool, stall: Any):
    handle, asked = RunHandle(), threading.Event()

    async def later(messages):
        asked.set()
        await anyio.sleep(LONG)

    def now(messages):
        asked.set()
        stall.fn()

    thread = when(asked.is_set, handle.cancel)
    before = time.monotonic()
    observed = driven.run(HELLO, later if is_async else now, handle=handle)
    assert time.monotonic() - before < SOON
    thread.join()
    assert observed.result.reason == RunCancelled()
    assert observed.result.messages == list(HELLO)


def test_a_handle_does_nothing_once_its_run_is_over(driven: Way):
    handle = RunHandle()
    observed = driven.run(HELLO, ScriptedLLM("Hi."), handle=handle)
    handle.cancel()
    assert handle.cancel_all() == ()
    assert handle.result == observed.result
    assert handle.result.stop_reason == "answered"


def test_a_cancellation_that_arrives_after_the_tools_does_not_reach_the_model(driven: Way):
    """Another thread sets the signal, and the call returns before the event loop sees it."""
    handle = RunHandle()

    @tool
    async def stop() -> str:
        """Stop the batch from another thread, and return at once."""
        thread = threading.Thread(target=handle.cancel_all)
        thread.start()
        thread.join()
        return "done"

    replies = iter([calls(call("stop", "c1")), "Fine."])

    async def model(messages: Any) -> Any:
        await anyio.sleep(0.01)
        return next(replies)

    observed = driven.run(HELLO, model, tools=[stop], handle=handle)
    assert observed.result.unwrap().content == "Fine."
    assert observed.result.messages[-2]["content"].startswith("Cancelled")


@pytest.mark.parametrize("act", ["cancel", "cancel_all"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_call_does_not_start_if_a_listener_has_cancelled_it(driven: Way, act: str, size: int):
    handle, ran, announced = RunHandle(), [], []

    @tool
    async def pay(n: int) -> str:
        """Pay."""
        ran.append(n)
        return "paid"

    def listener(event: Any) -> None:
        if isinstance(event, ToolStarted):
            announced.append(event.call.input["n"])
            if len(announced) == size:
                getattr(handle, act)()

    batch = calls(*(call("pay", n=n) for n in range(size)))
    driven.run(HELLO, ScriptedLLM(batch, "Fine."), tools=[pay], handle=handle, on_event=listener)
    assert len(announced) == size
    assert announced[-1] not in ran


@pytest.mark.parametrize("position", range(1, 14))
def test_the_model_is_not_asked_after_a_listener_has_cancelled_the_run(driven: Way, position: int):
    handle, seen, asked = RunHandle(), [], []
    script = ScriptedLLM(calls(call("add", "c1", a=1, b=1)), "It is 2.")

    def model(messages: Any, **options: Any) -> Any:
        asked.append(len(seen))
        return script(messages, **options)

    def listener(event: Any) -> None:
        seen.append(event)
        if len(seen) == position:
            handle.cancel()

    observed = driven.run(HELLO, model, tools=[add], handle=handle, on_event=listener)
    assert not any(events >= position for events in asked)
    is_over = len(seen) <= position  # it was cancelled at its last event, if at all
    assert (observed.result.stop_reason == "cancelled") != is_over


def test_tools_that_are_cancelled_again_and_again_do_not_stop_the_run(driven: Way):
    """Each batch has its own cancellation; the one after it runs."""
    handle = RunHandle()

    @tool
    async def hang() -> str:
        """Stop the batch, and hang."""
        handle.cancel_all()
        await anyio.sleep(30)
        return "never"

    model = ScriptedLLM(
        calls(call("nap", "c1", seconds=30), call("hang", "c2")),
        calls(call("add", "c3", a=1, b=1)),
        calls(call("hang", "c4")),
        "Done.",
    )
    observed = driven.run(HELLO, model, tools=[add, nap, hang], handle=handle)
    contents = [m["content"] for m in observed.result.messages if m["role"] == "tool"]
    assert [text.startswith("Cancelled") for text in contents] == [True, True, False, True]
    assert observed.result.response.content == "Done."


# An interrupt, without an event loop.


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("siblings", [0, 2])
def test_an_interrupt_in_a_tool_ends_the_run_in_order(siblings: int, is_async: bool):
    observed, handle = ObservedRun(), RunHandle()

    def is_adding() -> bool:
        return any(asked.name == "add" for asked in handle.in_flight)

    def stop() -> None:
        while is_adding():
            time.sleep(0.002)
        raise KeyboardInterrupt

    async def stop_later() -> None:
        while is_adding():
            await asyncio.sleep(0.002)
        raise KeyboardInterrupt

    stopper = tool(name="stop", description="")(stop_later if is_async else stop)
    batch = calls(
        *(call("add", f"c{n}", a=n, b=n) for n in range(siblings)),
        call("stop", "c9"),
        *(call("nap", f"d{n}", seconds=30) for n in range(siblings)),
    )
    with pytest.raises(KeyboardInterrupt):
        Loop.run_sync(
            HELLO,
            ScriptedLLM(batch),
            tools=[add, stopper, nap],
            handle=handle,
            on_event=observed.events.append,
            state=observed.state,
        )
    check_history(handle.messages)
    contents = [m["content"] for m in handle.messages if m["role"] == "tool"]
    assert contents[:siblings] == [str(2 * n) for n in range(siblings)]
    assert all(text.startswith("Cancelled") for text in contents[siblings:])
    assert len(contents) == 2 * siblings + 1
    assert [e.stop_reason for e in observed.events if isinstance(e, RunFinished)] == ["cancelled"]
    assert observed.state.is_terminal
    # And what runs in the background still works.
    assert SYNC.run(HELLO, ScriptedLLM("Hi.", is_async=True)).result.response.content == "Hi."


@pytest.mark.parametrize("options", [{}, {"max_seconds": 60}], ids=["plain", "limited"])
@pytest.mark.parametrize("names", [["nap"], ["nap", "stall"], ["stall"]], ids="+".join)
def test_control_c_ends_a_run_that_waits(names: list[str], options: dict[str, Any], stall: Any):
    observed, handle = ObservedRun(), RunHandle()
    threads: list[threading.Thread] = []

    def observe(event: Any) -> None:
        observed.events.append(event)
        if isinstance(event, ToolStarted) and not threads:
            threads.append(threading.Thread(target=interrupt_main, args=(signal.SIGINT,)))
            threads[0].start()

    arguments = {"nap": {"seconds": LONG}, "stall": {}}
    batch = calls(*(call(name, f"c{n}", **arguments[name]) for n, name in enumerate(names)))
    tools = [nap, stall]
    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Loop.run_sync(
            HELLO, ScriptedLLM(batch), tools=tools, handle=handle, on_event=observe, **options
        )
    assert time.monotonic() - before < SOON
    threads[0].join()
    check_history(handle.messages)
    assert len(handle.messages) == len(HELLO) + 1 + len(names)
    assert [e.stop_reason for e in observed.events if isinstance(e, RunFinished)] == ["cancelled"]


def test_an_interrupt_at_any_event_ends_the_run_in_order():
    """Control-C may strike in the caller's own observer, at every event there is."""

    def run(at: int) -> tuple[list[Any], RunHandle, RunState]:
        events: list[Any] = []
        handle, state = RunHandle(), RunState()

        def observe(event: Any) -> None:
            events.append(event)
            if len(events) == at:
                raise KeyboardInterrupt

        batch = calls(call("nap", "c1", seconds=0.001), call("add", "c2", a=1, b=1))
        model = ScriptedLLM(batch, calls(call("nap", "c3", seconds=0)), ["Do", "ne."])
        with contextlib.suppress(KeyboardInterrupt):
            Loop.run_sync(
                HELLO, model, tools=[nap, add], handle=handle, state=state, on_event=observe
            )
        return events, handle, state

    events, _, _ = run(0)
    assert len(events) > 12
    for at in range(1, len(events) + 1):
        observed, handle, state = run(at)
        check_history(handle.messages)
        assert state.is_terminal, at
        ends = [e.stop_reason for e in observed if isinstance(e, RunFinished)]
        assert ends == (["answered"] if at == len(events) else ["cancelled"]), at


# Time limits.


@pytest.mark.parametrize("names", [["nap"], ["stall"], ["add", "nap", "stall"]], ids="+".join)
def test_a_time_limit_ends_tools_that_hang(way: Way, names: list[str], stall: Any):
    arguments = {"add": {"a": 1, "b": 1}, "nap": {"seconds": LONG}, "stall": {}}
    batch = calls(*(call(name, f"c_{name}", **arguments[name]) for name in names))
    before = time.monotonic()
    observed = way.run(HELLO, ScriptedLLM(batch), tools=[add, nap, stall], max_seconds=0.7)
    assert time.monotonic() - before < SOON
    assert observed.result.reason == DeadlineExceeded(0.7)
    check_history(observed.result.messages)
    answers = {
        m["tool_call_id"]: m["content"] for m in observed.result.messages if m["role"] == "tool"
    }
    for name in names:
        expected = "2" if name == "add" else "Cancelled: the run's time was up before this call"
        assert answers[f"c_{name}"].startswith(expected)
    assert observed.state.status.value == "timeout"
    assert observed.state.nodes[-1].status.value == "timeout"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_time_limit_ends_a_model_that_hangs(way: Way, is_async: bool, stall: Any):
    async def later(messages):
        await anyio.sleep(LONG)

    def now(messages):
        stall.fn()

    before = time.monotonic()
    observed = way.run(HELLO, later if is_async else now, max_seconds=0.1)
    assert time.monotonic() - before < SOON
    assert observed.result.reason == DeadlineExceeded(0.1)
    assert observed.result.messages == list(HELLO)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_time_limit_ends_a_stream_that_hangs_and_closes_it(way: Way, is_async: bool, stall: Any):
    closed = threading.Event()

    async def later(messages):
        try:
            yield "Hel"
            await anyio.sleep(30)
        finally:
            closed.set()

    def now(messages):
        try:
            yield "Hel"
            stall.fn()
        finally:
            closed.set()

    observed = way.run(HELLO, later if is_async else now, max_seconds=0.5)
    assert observed.result.reason == DeadlineExceeded(0.5)
    assert observed.result.messages == [*HELLO, {"role": "assistant", "content": "Hel"}]
    if is_async:  # a generator that runs in another thread can only end itself
        # Without an event loop in this thread it is closed on the one in the background, a moment later.
        assert closed.wait(timeout=LONG if way.is_sync else 0)
    gc.collect()


def test_a_time_limit_of_nothing(way: Way):
    observed = way.run(HELLO, ScriptedLLM("Hi."), max_seconds=0)
    assert observed.result.stop_reason in {"deadline_exceeded", "answered"}
    check_history(observed.result.messages)
    assert observed.state.is_terminal


# Streams.


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_stream_that_is_never_read_ends_when_it_is_left(backend: str):
    async def main() -> Any:
        async with Loop.stream(HELLO, ScriptedLLM("x" * 200 and list("x" * 200))) as events:
            await anyio.sleep(0.02)
        return events

    events = anyio.run(main, backend=backend)
    assert events.state.is_terminal
    assert events.result.reason == RunCancelled()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_reader_that_does_not_read_keeps_no_event_from_others(backend: str, is_cancelled: bool):
    """Wherever the run waits for the reader when it leaves, or is cancelled: at its very end too."""

    async def main(pieces: int) -> list[Any]:
        observed: list[Any] = []
        llm = ScriptedLLM(["x"] * pieces)
        with anyio.CancelScope() as scope:
            async with Loop.stream(HELLO, llm, on_event=observed.append):
                seen = -1
                while seen < len(observed) or not observed:  # until it waits for the reader
                    seen = len(observed)
                    await anyio.sleep(0.005)
                if is_cancelled:
                    scope.cancel()
                    await anyio.sleep(LONG)
        return observed

    for pieces in range(54, 68):
        observed = anyio.run(main, pieces, backend=backend)
        ends = [event for event in observed if isinstance(event, RunFinished)]
        assert len(ends) == 1, pieces
        assert ends == observed[-1:]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_stream_that_is_cancelled_through_its_handle_reports_it(backend: str):
    async def main() -> Any:
        batch = calls(call("nap", "c1", seconds=30))
        async with Loop.stream(HELLO, ScriptedLLM(batch), tools=[nap]) as stream:
            observed = []
            async for event in stream:
                observed.append(event)
                if isinstance(event, ToolStarted):
                    stream.cancel()
        return observed, stream.result

    observed, result = anyio.run(main, backend=backend)
    assert observed[-1].stop_reason == "cancelled"
    assert observed[-1].result == result
    assert result.reason == RunCancelled()


def test_a_run_that_was_cut_short_leaves_no_thread_behind():
    """Worker threads end with what they run; only the loops in the background stay."""
    before = set(threading.enumerate())
    batch = calls(call("doze", "c1", seconds=0.1), call("nap", "c2", seconds=30))
    observed = SYNC.run(HELLO, ScriptedLLM(batch), tools=[nap, doze], max_seconds=0.02)
    assert observed.result.reason == DeadlineExceeded(0.02)
    started = set(threading.enumerate()) - before
    for thread in started:
        thread.join(LONG)
    assert [t.name for t in started if t.is_alive()] in ([], ["treadle-async"])
