"""A reporting call: the clock and the listeners, from wherever the call runs."""

import asyncio
import threading

import anyio
import pytest

from treadle.effects import (
    NOW,
    Bounded,
    Call,
    Cancelled,
    Mode,
    Parallel,
    Signal,
    Stopped,
    Wait,
    drive_sync,
    with_reporter,
)

from .steps import LONG, caught, steps_of


def plain(first, reporter):
    reporter.emit((first, 1))
    between = reporter.now()
    reporter.emit((first, 2))
    return between


async def coroutine(first, reporter):
    await _emit(reporter, (first, 1))
    between = reporter.now()
    await anyio.sleep(0)
    await _emit(reporter, (first, 2))
    return between


async def _emit(reporter, event):
    emitted = reporter.emit(event)
    if emitted is not None:
        await emitted


CALLABLES = [
    (plain, Mode.INLINE),
    (plain, Mode.THREAD),
    (coroutine, Mode.INLINE),
    (coroutine, Mode.THREAD),
    (coroutine, Mode.ASYNC),
]


def reporting(fn, mode, key="a"):
    return Call(fn, key, mode=mode, reporting=True)


@pytest.fixture(params=CALLABLES, ids=lambda pair: f"{pair[0].__name__}-{pair[1].value}")
def how(request):
    return request.param


class Observer:
    """Notes the events with the thread that it is called in."""

    def __init__(self):
        self.events = []
        self.threads = set()

    def __call__(self, event):
        self.events.append(event)
        self.threads.add(threading.current_thread())


@pytest.mark.parametrize("nested", [False, True])
class TestEverywhere:
    def test_events_reach_the_listeners_in_order_before_the_outcome(self, runner, how, nested):
        observer = Observer()

        def steps(key):
            yield Call(observer, (key, 0))
            yield reporting(*how, key)
            yield Call(observer, (key, 3))

        branches = ["a", "b"] if nested else ["a"]
        runner.drive(steps_of(Parallel([steps(key) for key in branches])), observer)
        for key in branches:
            assert [event for event in observer.events if event[0] == key] == [
                (key, number) for number in range(4)
            ]

    def test_listeners_run_in_the_thread_of_the_run(self, runner, how, nested):
        observer = Observer()
        call = steps_of(reporting(*how))
        whole = steps_of(Bounded(call, seconds=LONG)) if nested else call
        runner.drive(whole, observer)
        assert observer.threads == {threading.current_thread()}

    def test_now_is_the_clock_of_the_drive(self, runner, how, nested):
        def steps():
            before = yield NOW
            between = yield reporting(*how)
            return before, between, (yield NOW)

        whole = steps_of(Bounded(steps(), seconds=LONG)) if nested else steps()
        before, between, after = runner.drive(whole)
        assert before <= between <= after

    def test_async_listeners_are_awaited(self, runner, how, nested):
        events = []

        async def observe(event):
            await anyio.sleep(0.001)
            events.append(event)

        call = steps_of(reporting(*how))
        if how[0] is plain and how[1] is Mode.INLINE:
            call = steps_of(reporting(_returning_what_emit_returned, how[1]))
        whole = steps_of(Bounded(call, seconds=LONG)) if nested else call
        runner.drive(whole, observe)
        assert events == [("a", 1), ("a", 2)]

    @pytest.mark.parametrize("error", [KeyError, SystemExit])
    def test_exceptions_of_listeners_are_logged_and_change_nothing(
        self, runner, how, nested, error, caplog
    ):
        def observe(event):
            raise error(event)

        call = steps_of(reporting(*how))
        whole = steps_of(Bounded(call, seconds=LONG)) if nested else call
        assert runner.drive(whole, observe) > 0
        assert [type(record.exc_info[1]) for record in caplog.records] == [error] * 2

    def test_an_interrupt_in_a_listener_ends_the_run(self, runner, how, nested):
        def observe(event):
            raise KeyboardInterrupt

        call = steps_of(reporting(*how))
        whole = steps_of(Bounded(call, seconds=LONG)) if nested else call
        with pytest.raises(KeyboardInterrupt):
            runner.drive(whole, observe)


def _returning_what_emit_returned(first, reporter):
    return _awaiting(reporter.emit((first, 1)), reporter.emit((first, 2)))


async def _awaiting(*awaitables):
    for awaitable in awaitables:
        if awaitable is not None:
            await awaitable


def test_without_listeners_the_call_returns_as_usual(runner, how):
    assert runner.drive(steps_of(reporting(*how))) > 0


def test_a_thread_that_the_callable_starts_may_emit(runner):
    events = []

    def starts_one(reporter):
        thread = threading.Thread(target=reporter.emit, args=("from elsewhere",))
        thread.start()
        thread.join()

    runner.drive(steps_of(Call(starts_one, mode=Mode.THREAD, reporting=True)), events.append)
    assert events == ["from elsewhere"]


def test_emitting_ends_a_worker_whose_call_was_abandoned(runner):
    """Its later events are not emitted."""
    events, ended = [], []
    has_begun, is_through, is_abandoned = Signal(), Signal(), threading.Event()

    def reads(reporter):
        try:
            reporter.emit("first")
            has_begun.set()
            is_abandoned.wait(LONG)
            reporter.emit("late")
        except BaseException as error:
            ended.append(type(error))
            raise
        finally:
            is_through.set()

    def steps():
        call = steps_of(Call(reads, mode=Mode.THREAD, reporting=True))
        error = yield from caught(Bounded(call, until=has_begun))
        is_abandoned.set()
        yield Wait(is_through)
        return error

    assert isinstance(runner.drive(steps(), events.append), Stopped)
    assert ended == [Cancelled]
    assert events == ["first"]


def test_emitting_ends_a_thread_whose_event_loop_has_ended(async_runner):
    ended, has_ended = [], threading.Event()

    def emits(reporter):
        has_ended.wait(LONG)
        try:
            reporter.emit("late")
        except BaseException as error:
            ended.append(type(error))

    def leaves_a_thread(reporter):
        thread = threading.Thread(target=emits, args=(reporter,))
        thread.start()
        return thread

    thread = async_runner.drive(steps_of(Call(leaves_a_thread, mode=Mode.THREAD, reporting=True)))
    has_ended.set()
    thread.join(LONG)
    assert ended == [Cancelled]


def test_an_abandoned_coroutine_without_an_event_loop_reports_nothing():
    """Its cleanup is not interrupted."""
    events, has_begun, is_through = [], Signal(), threading.Event()

    async def reads(reporter):
        try:
            reporter.emit("first")
            has_begun.set()
            await asyncio.sleep(LONG)
        finally:
            reporter.emit("late")
            is_through.set()

    call = steps_of(Call(reads, mode=Mode.ASYNC, reporting=True))
    error = drive_sync(caught(Bounded(call, until=has_begun)), events.append)
    assert isinstance(error, Stopped)
    assert is_through.wait(LONG)
    assert events == ["first"]


class TestWithReporter:
    def test_wraps_the_reporter_of_each_call(self, runner):
        class Doubling:
            def __init__(self, inner):
                self.inner = inner
                self.now = inner.now

            def emit(self, event):
                return self.inner.emit(event * 2)

        events = []
        call = Call(plain, "a", mode=Mode.THREAD, label="tool", key="k", reporting=True)
        wrapped = with_reporter(call, Doubling)
        assert (wrapped.args, wrapped.mode, wrapped.label, wrapped.key, wrapped.reporting) == (
            ("a",), Mode.THREAD, "tool", "k", True
        )  # fmt: skip
        runner.drive(steps_of(wrapped), events.append)
        assert events == [("a", 1, "a", 1), ("a", 2, "a", 2)]

    def test_does_not_change_a_call_that_does_not_report(self):
        call = Call(abs, 1)
        assert with_reporter(call, lambda reporter: reporter) is call
