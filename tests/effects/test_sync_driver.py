"""Behaviour specific to running without an event loop: threads, the background loop, interrupts."""

import asyncio
import functools
import gc
import os
import signal
import sys
import threading
import time

import pytest
from tests.runners import await_standstill, interrupt_main

from treadle.effects import (
    NOW,
    BackgroundCall,
    Bounded,
    Call,
    CallExited,
    Emit,
    Mode,
    Parallel,
    Signal,
    Sleep,
    Stopped,
    TimeLimitReached,
    Wait,
    drive_sync,
)
from treadle.pipeline import Pipeline
from treadle.pipeline.streams import StreamPipeline

from .steps import LONG, caught, ended, steps_of

SOON = 0.02


async def thread_of_an_async_call():
    return threading.current_thread()


class TestThreads:
    def test_no_thread_is_started_if_none_is_needed(self):
        def steps(item):
            yield NOW
            yield Sleep(0)
            yield Emit("event")
            yield Call(int, mode=Mode.THREAD)
            yield Parallel([steps_of(Call(int, mode=Mode.THREAD))])
            yield Parallel([steps_of(Call(int)), steps_of(Sleep(0))])
            yield Bounded(steps_of(Call(int)), seconds=LONG, until=Signal())
            return item

        before = threading.enumerate()
        assert Pipeline(steps, abs).run_sync(-1) == 1
        assert list(StreamPipeline(abs).stream_sync(range(3), concurrency=2)) == [0, 1, 2]
        assert set(threading.enumerate()) <= set(before)  # threads of other tests may end meanwhile

    def test_a_call_without_siblings_runs_in_the_thread_of_the_caller(self):
        call = Call(threading.current_thread, mode=Mode.THREAD)
        assert drive_sync(steps_of(call)) is threading.current_thread()

    def test_steps_are_only_ever_advanced_in_the_thread_of_the_caller(self):
        seen = []

        def branch():
            for _ in range(3):
                seen.append(threading.current_thread())
                yield Call(int, mode=Mode.THREAD)

        drive_sync(steps_of(Parallel([branch() for _ in range(4)])))
        assert set(seen) == {threading.current_thread()}

    def test_a_worker_that_never_ends_does_not_keep_the_interpreter_from_exiting(self, run_python):
        run_python(
            """
            import threading
            from treadle.effects import *
            def steps():
                try:
                    yield Bounded(hangs(), seconds=0.01)
                except TimeLimitReached:
                    print("went on")
            def hangs():
                yield Call(threading.Event().wait, mode=Mode.THREAD)
            drive_sync(steps())
            """,
            "went on\n",
        )

    def test_a_failure_to_start_a_thread_is_an_error_in_the_steps(self, monkeypatch):
        def no_more(thread):
            raise RuntimeError("can't start new thread")

        def steps():
            try:
                yield Call(int, mode=Mode.THREAD)
            except RuntimeError as error:
                return str(error)

        monkeypatch.setattr(threading.Thread, "start", no_more)
        whole = Parallel([steps(), steps_of(NOW)])
        assert drive_sync(steps_of(whole))[0] == "can't start new thread"


class TestBackgroundLoop:
    def test_is_shared_by_all_runs(self):
        call = Call(thread_of_an_async_call, mode=Mode.ASYNC)
        first = drive_sync(steps_of(call))
        before = (
            threading.enumerate()
        )  # a run within a run of another test may have started a second one
        both = drive_sync(steps_of(Parallel([steps_of(call), steps_of(call)])))
        assert {first, *both} == {first}
        assert first.daemon
        started = set(threading.enumerate()) - set(before)
        assert not [thread for thread in started if thread.name == "treadle-async"]

    def test_serves_many_threads_at_once(self):
        async def work(item):
            await asyncio.sleep(0.005)
            return item

        results = {}

        def run(number):
            results[number] = Pipeline(work).run_sync(number)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {n: n for n in range(8)}

    def test_lets_async_code_call_a_run_that_calls_async_code(self):
        async def innermost(item):
            await asyncio.sleep(0)
            return item + 1

        async def inner(item):
            return Pipeline(innermost).run_sync(item)

        async def outer(item):
            return Pipeline(inner).run_sync(item)

        assert Pipeline(outer).run_sync(1) == 2

    def test_lets_parallel_async_code_call_runs_within_its_worker_threads(self):
        async def innermost(item):
            await asyncio.sleep(0)
            return item

        def inner(item):
            branches = [Pipeline(innermost).steps(item) for _ in range(2)]
            return drive_sync(steps_of(Parallel(branches)))

        async def outer(item):
            return inner(item)

        assert Pipeline(outer).run_sync(1) == [1, 1]

    def test_survives_a_call_that_exits_or_stops_it(self):
        async def exits():
            sys.exit(3)

        async def stops():
            asyncio.get_running_loop().stop()
            return "stopped"

        with pytest.raises(CallExited):
            drive_sync(steps_of(Call(exits, mode=Mode.ASYNC)))
        assert drive_sync(steps_of(Call(stops, mode=Mode.ASYNC))) == "stopped"
        assert drive_sync(steps_of(Call(thread_of_an_async_call, mode=Mode.ASYNC)))

    @pytest.mark.parametrize("how", ["a bound", "a failing branch"])
    def test_a_cancelled_async_call_has_a_grace_period_to_end_in(self, how):
        seen, begun, both_have_begun = [], [], Signal()

        async def call():
            begun.append("call")
            if len(begun) == 2:
                both_have_begun.set()
            try:
                await asyncio.sleep(LONG)
            finally:
                await asyncio.sleep(SOON)
                seen.append("ended")

        async def fails():
            while not both_have_begun.is_set:
                await asyncio.sleep(0)
            raise ValueError

        def steps():
            calls = [steps_of(Call(call, mode=Mode.ASYNC)) for _ in range(2)]
            if how == "a bound":
                ends, failure = Bounded(steps_of(Parallel(calls)), until=both_have_begun), Stopped
            else:
                ends, failure = (
                    Parallel([*calls, steps_of(Call(fails, mode=Mode.ASYNC))]),
                    ValueError,
                )
            with pytest.raises(failure):
                yield ends
            seen.append("went on")

        drive_sync(steps())
        assert seen == ["ended", "ended", "went on"]

    def test_an_interrupt_waits_for_the_end_of_an_async_call(self):
        seen = []

        async def call():
            try:
                interrupt_main(signal.SIGINT)
                await asyncio.sleep(LONG)
            finally:
                await asyncio.sleep(SOON)
                seen.append("ended")

        with pytest.raises(KeyboardInterrupt):
            drive_sync(steps_of(Call(call, mode=Mode.ASYNC)))
        assert seen == ["ended"]

    def test_an_abandoned_call_that_blocks_its_loop_does_not_block_later_calls(self, caplog):
        released = threading.Event()

        async def blocks():
            released.wait(LONG)

        async def quick():
            return "done"

        try:
            with pytest.raises(TimeLimitReached):
                drive_sync(steps_of(Bounded(steps_of(Call(blocks, mode=Mode.ASYNC)), seconds=SOON)))
            assert "it is abandoned" in caplog.text
            assert drive_sync(steps_of(Call(quick, mode=Mode.ASYNC))) == "done"
        finally:
            released.set()

    def test_a_call_abandoned_before_it_started_is_not_left_unawaited(self):
        async def coroutine():
            await asyncio.sleep(0)

        for _ in range(20):
            BackgroundCall(coroutine()).start().cancel()
        BackgroundCall(coroutine()).start().result(LONG)
        gc.collect()  # where Python would warn, and warnings are errors here

    def test_a_call_that_is_abandoned_at_once_is_not_started(self):
        """What the loop runs next, such as the closing of its stream, must not find it running."""
        begun = []

        async def coroutine():
            begun.append(True)

        cancelled = BackgroundCall(coroutine())
        cancelled.cancel()
        cancelled.start()
        BackgroundCall(asyncio.sleep(0)).start().result(LONG)
        assert begun == []

    def test_abandons_a_call_whose_coroutine_is_still_being_made(self):
        """The signal is set while the function is still making its coroutine."""
        workers, has_begun, release = [], Signal(), threading.Event()

        async def coroutine():
            await asyncio.sleep(LONG)

        async def quick():
            await asyncio.sleep(0)

        def slow():
            workers.append(threading.current_thread())
            has_begun.set()
            release.wait(LONG)
            return coroutine()

        def steps():
            yield from caught(Bounded(steps_of(Call(slow, mode=Mode.THREAD)), until=has_begun))
            release.set()
            yield Call(quick, mode=Mode.ASYNC)

        drive_sync(steps_of(Parallel([steps(), steps_of(NOW)])))
        workers[0].join(LONG)
        assert not workers[0].is_alive()
        gc.collect()  # where Python would warn, and warnings are errors here

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_is_started_again_in_a_forked_process(self, run_python):
        run_python(
            """
            import os, warnings
            warnings.simplefilter("ignore", DeprecationWarning)
            from treadle.pipeline import Pipeline
            async def add(item):
                return item + 1
            print(Pipeline(add).run_sync(1), flush=True)
            if os.fork() == 0:
                print(Pipeline(add).run_sync(2), flush=True)
                os._exit(0)
            os.wait()
            """,
            "2\n3\n",
        )


def test_a_time_limit_that_has_passed_after_its_steps_is_not_waited_for():
    done = Signal()

    def steps():
        yield Bounded(steps_of(Sleep(0)), seconds=0.01)
        threading.Timer(0.3, done.set).start()
        yield Wait(done)

    before = time.thread_time()
    drive_sync(steps())
    assert time.thread_time() - before < 0.1


def test_it_works_within_a_running_event_loop():
    """As in a notebook, where a loop is running in the thread that calls."""

    async def add(item):
        await asyncio.sleep(0)
        return item + 1

    async def cell():
        pipeline = StreamPipeline(add, abs)
        assert pipeline.run_sync(1) == 2
        assert list(pipeline.stream_sync([1, 2], concurrency=2)) == [2, 3]
        assert drive_sync(steps_of(Parallel([pipeline.steps(1), pipeline.steps(2)]))) == [2, 3]
        return await pipeline.run(3)

    assert asyncio.run(cell()) == 4


class TestInterrupts:
    """Ctrl-C, which interrupts the main thread wherever it is."""

    @pytest.fixture
    def ctrl_c(self):
        """A thread that interrupts this one, even where the process has inherited that SIGINT is ignored."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        thread = threading.Thread(target=interrupt_main, args=(signal.SIGINT,))
        yield thread
        thread.join()
        signal.signal(signal.SIGINT, before)

    @pytest.mark.parametrize(
        "waiting_for",
        [
            lambda: Sleep(LONG),
            lambda: Call(time.sleep, LONG),
            lambda: Call(asyncio.sleep, LONG, mode=Mode.ASYNC),
            lambda: Wait(Signal()),
            lambda: Bounded(steps_of(Call(threading.Event().wait, mode=Mode.THREAD)), seconds=LONG),
            lambda: Parallel([steps_of(Sleep(LONG)), steps_of(Wait(Signal()))]),
            lambda: Parallel([steps_of(Call(asyncio.sleep, LONG, mode=Mode.ASYNC))] * 1),
        ],
    )
    def test_end_the_run_and_let_the_steps_clean_up(self, ctrl_c, waiting_for):
        seen = []

        def steps():
            try:
                ctrl_c.start()
                yield waiting_for()
            except Exception:
                seen.append("swallowed")
            except BaseException as interrupt:
                seen.append(type(interrupt))
                yield Call(seen.append, "closed")
                raise

        with pytest.raises(KeyboardInterrupt):
            drive_sync(steps())
        assert seen == [KeyboardInterrupt, "closed"]

    @pytest.mark.parametrize(
        ("mode", "around"),
        [
            (Mode.ASYNC, lambda call: call),
            (Mode.ASYNC, lambda call: Bounded(steps_of(call), until=Signal())),
            (Mode.THREAD, lambda call: Bounded(steps_of(call), until=Signal())),
            (Mode.THREAD, lambda call: Parallel([steps_of(call), steps_of(Wait(Signal()))])),
        ],
    )
    def test_are_handled_even_if_they_do_not_end_a_wait(self, mode, around):
        """As an interrupt just before the wait begins; here another thread receives it."""

        def interrupt():
            await_standstill()
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

        def in_a_worker():
            interrupt()
            time.sleep(LONG)

        async def on_the_background_loop():
            interrupt()
            await asyncio.sleep(LONG)

        work = in_a_worker if mode is Mode.THREAD else on_the_background_loop
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            drive_sync(steps_of(around(Call(work, mode=mode))))
        assert time.monotonic() - started < LONG / 3

    def test_may_raise_the_exception_of_a_wait(self):
        """As an alarm does for a time limit; it is not mistaken for the end of a wait."""

        def alarm(*_):
            raise TimeoutError("alarm")

        old = signal.signal(signal.SIGALRM, alarm)
        thread = threading.Thread(target=interrupt_main, args=(signal.SIGALRM,))
        started = time.monotonic()
        try:
            with pytest.raises(TimeoutError, match="alarm"):
                thread.start()
                drive_sync(steps_of(Call(asyncio.sleep, LONG, mode=Mode.ASYNC)))
        finally:
            thread.join()
            signal.signal(signal.SIGALRM, old)
        assert time.monotonic() - started < LONG / 3

    def test_within_steps_close_their_siblings_once(self, ctrl_c):
        seen = []

        def busy():
            yield Sleep(0)
            ctrl_c.start()
            while True:
                time.sleep(0.001)  # the step itself is what is interrupted

        sibling = ended(Sleep(LONG), Call(seen.append, "closed"))
        with pytest.raises(KeyboardInterrupt):
            drive_sync(steps_of(Bounded(steps_of(Parallel([sibling, busy()])), seconds=LONG)))
        assert seen == ["closed"]


def test_a_cancellation_is_never_a_stage_error(runner):
    def steps(item):
        yield Sleep(LONG)

    with pytest.raises(TimeLimitReached):
        runner.drive(steps_of(Bounded(Pipeline(steps).steps(1), seconds=0.02)))


def test_a_signal_may_be_set_by_the_handler_of_a_process_signal(runner):
    stop = Signal()

    def steps():
        try:
            yield Bounded(steps_of(Sleep(LONG)), until=stop, seconds=LONG)
        except Exception as error:
            return type(error).__name__

    old = signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    thread = threading.Thread(target=interrupt_main, args=(signal.SIGUSR1,))
    started = time.monotonic()
    try:
        thread.start()
        assert runner.drive(steps()) == "Stopped"
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, old)
    assert time.monotonic() - started < LONG / 3


def handlers(seen):
    """Handlers of a process signal, of every kind, that end the program."""

    def function(number, frame):
        seen.append(number)
        sys.exit(5)

    class Handler:
        def method(self, number, frame):
            function(number, frame)

        def __call__(self, number, frame):
            function(number, frame)

    return {
        "a function": function,
        "a method": Handler().method,
        "an object": Handler(),
        "a partial": functools.partial(lambda one, number, frame: function(number, frame), 1),
    }


@pytest.mark.parametrize("kind", handlers([]))
@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_signal_handler_that_exits_ends_the_run(kind, is_bounded):
    """It is called while a callable runs, and means the program."""
    seen = []

    def steps():
        try:
            yield Call(signal.raise_signal, signal.SIGUSR1)
        except Exception:
            seen.append("swallowed")
        finally:
            seen.append("closed")

    before = signal.signal(signal.SIGUSR1, handlers(seen)[kind])
    try:
        with pytest.raises(SystemExit) as caught:
            drive_sync(steps_of(Bounded(steps(), seconds=LONG)) if is_bounded else steps())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert caught.value.code == 5
    assert seen == [signal.SIGUSR1, "closed"]
