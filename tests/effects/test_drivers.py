"""Each effect, performed by every driver, with the same outcome."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import gc
import threading
import time
import weakref

import anyio
import pytest

from treadle.effects import (
    NOW,
    Bounded,
    Call,
    CallCancelled,
    Emit,
    Mode,
    Parallel,
    Signal,
    Sleep,
    Stopped,
    TimeLimitReached,
    Wait,
    drive,
)

from .steps import LONG, caught, ended, steps_of

MODES = list(Mode)
AWAITED = {Mode.ASYNC}
SOON = 0.02


def callables(value=None, error=None):
    """The same function for each mode: plain, or a coroutine function."""

    def plain():
        if error is not None:
            raise error
        return value

    async def coroutine():
        return plain()

    return {mode: coroutine if mode in AWAITED else plain for mode in MODES}


@pytest.fixture
def stop():
    return Signal()


class TestCall:
    @pytest.mark.parametrize("mode", MODES)
    def test_returns_the_value_of_the_function_or_of_its_coroutine(self, runner, mode):
        for fn in (callables(7)[mode], callables(7)[Mode.ASYNC]):
            assert runner.drive(steps_of(Call(fn, mode=mode))) == 7

    @pytest.mark.parametrize("mode", [Mode.INLINE, Mode.ASYNC])
    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_does_not_keep_an_exception_alive(self, backend, mode):
        """An exception in a reference cycle keeps its frames alive until the next garbage collection."""
        seen = []

        class Failure(Exception):
            pass

        def noted(error):
            seen.append(weakref.ref(error))
            return error

        def fail():
            raise noted(Failure())

        async def fail_later():
            raise noted(Failure())

        def steps():
            with contextlib.suppress(Failure):
                yield Call(fail_later if mode in AWAITED else fail, mode=mode)

        gc.disable()
        try:
            anyio.run(drive, steps(), backend=backend)
            assert [ref() for ref in seen] == [None]
        finally:
            gc.enable()

    @pytest.mark.parametrize("mode", MODES)
    def test_raises_an_exception_whose_traceback_cannot_be_read(self, runner, mode):
        def refuse(*_):
            raise RuntimeError("it was used")

        class Opaque(Exception):
            __traceback__ = property(refuse)
            with_traceback = refuse

        error = Opaque()
        steps = caught(Call(callables(error=error)[mode], mode=mode))
        assert runner.drive(steps) is error

    def test_awaits_objects_that_are_not_coroutines(self, runner):
        class Later:
            def __await__(self):
                return iter_of(7).__await__()

        async def iter_of(value):
            return value

        assert runner.drive(steps_of(Call(Later))) == 7

    def test_passes_positional_arguments(self, runner):
        assert runner.drive(steps_of(Call(divmod, 7, 2))) == (3, 1)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("nested", [False, True])
    def test_that_raises_a_cancellation_is_call_cancelled(self, runner, mode, nested):
        steps = caught(Call(callables(error=asyncio.CancelledError())[mode], mode=mode))
        if nested:
            steps = steps_of(Parallel([steps, steps_of(NOW)]))
        outcome = runner.drive(steps)
        assert isinstance(outcome[0] if nested else outcome, CallCancelled)

    def test_that_waits_for_a_cancelled_future_is_call_cancelled(self, runner):
        future = concurrent.futures.Future()
        future.cancel()
        assert isinstance(runner.drive(caught(Call(future.result))), CallCancelled)

    def test_that_raises_a_cancellation_after_a_time_limit_is_still_call_cancelled(self, runner):
        fn = callables(error=asyncio.CancelledError())[Mode.ASYNC]

        def steps():
            first = yield from caught(Bounded(steps_of(Sleep(LONG)), seconds=SOON))
            second = yield from caught(Call(fn, mode=Mode.ASYNC))
            return type(first), type(second)

        assert runner.drive(steps()) == (TimeLimitReached, CallCancelled)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("nested", [False, True])
    def test_that_raises_stop_iteration_does_not_end_the_steps(self, runner, mode, nested):
        steps = caught(Call(callables(error=StopIteration(3))[mode], mode=mode))
        if nested:
            steps = steps_of(Parallel([steps, steps_of(NOW)]))
        outcome = runner.drive(steps)
        assert type(outcome[0] if nested else outcome) is RuntimeError


class TestSleepAndNow:
    def test_sleep_takes_that_long_by_the_clock(self, runner):
        def steps():
            before = yield NOW
            yield Sleep(SOON)
            return (yield NOW) - before

        assert SOON <= runner.drive(steps()) < LONG

    def test_now_is_seconds_since_the_epoch(self, runner):
        before = time.time()
        now = runner.drive(steps_of(NOW))
        assert before - 1 < now < time.time() + 1

    @pytest.mark.parametrize("nested", [False, True])
    def test_a_negative_sleep_is_no_sleep(self, runner, nested):
        sleep = steps_of(Sleep(-1))
        whole = steps_of(Parallel([sleep, steps_of(NOW)])) if nested else sleep
        runner.drive(whole)

    def test_an_infinite_sleep_can_be_ended(self, runner):
        steps = caught(Bounded(steps_of(Sleep(float("inf"))), seconds=SOON))
        assert isinstance(runner.drive(steps), TimeLimitReached)


class TestEmit:
    def test_emits_events_in_order(self, runner):
        events = []

        def steps():
            yield Emit(1)
            yield Parallel([steps_of(Emit(2)), steps_of(Emit(3))])
            return (yield Emit(4))

        assert runner.drive(steps(), events.append) is None
        assert sorted(events) == [1, 2, 3, 4]
        assert (events[0], events[-1]) == (1, 4)

    def test_does_nothing_without_a_listener(self, runner):
        assert runner.drive(steps_of(Emit(1))) is None

    def test_awaits_an_async_listener(self, runner):
        events = []

        async def listen(event):
            events.append(event)

        runner.drive(steps_of(Emit(1)), listen)
        assert events == [1]

    def test_ignores_the_return_value_of_a_listener(self, runner):
        assert runner.drive(steps_of(Emit(1)), lambda event: 42) is None

    @pytest.mark.parametrize("error", [ValueError, StopIteration, asyncio.CancelledError])
    def test_logs_a_listener_that_raises_and_continues(self, runner, caplog, error):
        def listen(event):
            raise error

        async def async_listen(event):
            raise error

        for listener in (listen, async_listen):
            assert runner.drive(steps_of(Emit(1)), listener) is None
        assert len(caplog.records) == 2
        assert all(record.name == "treadle.pipeline" for record in caplog.records)


class TestWaitAndSignal:
    def test_wait_ends_when_another_thread_sets_the_signal(self, runner):
        signal = Signal()
        timer = threading.Timer(SOON, signal.set)
        timer.start()
        runner.drive(steps_of(Wait(signal)))
        assert signal.is_set
        timer.join()

    def test_wait_ends_at_once_if_the_signal_is_set(self, runner):
        signal = Signal()
        signal.set()
        assert runner.drive(steps_of(Wait(signal))) is None

    def test_wait_ends_when_a_sibling_sets_the_signal(self, runner):
        signal = Signal()
        order = []

        def waits():
            yield Wait(signal)
            order.append("waited")

        def sets():
            yield Sleep(SOON)
            order.append("set")
            signal.set()

        runner.drive(steps_of(Parallel([waits(), sets()])))
        assert order == ["set", "waited"]

    def test_setting_a_signal_does_not_wait_for_the_run(self, runner):
        """The run blocks its thread until the setter is done: waiting for the run would hang."""
        signal = Signal()
        is_through = threading.Event()

        def set_it():
            signal.set()
            is_through.set()

        def steps():
            yield Call(threading.Thread(target=set_it).start)
            return (yield Call(is_through.wait, LONG))

        with contextlib.suppress(Stopped):  # the thread may have been faster than the run
            runner.drive(steps_of(Bounded(steps(), until=signal)))
        assert is_through.is_set()


class TestBounded:
    def test_returns_the_value_of_the_steps(self, runner):
        steps = Bounded(steps_of(Call(int)), seconds=LONG, until=Signal())
        assert runner.drive(steps_of(steps)) == 0
        assert runner.drive(steps_of(Bounded(steps_of(NOW)))) > 0

    def test_raises_the_exception_of_the_steps(self, runner):
        error = ValueError()
        call = steps_of(Call(callables(error=error)[Mode.INLINE]))
        assert runner.drive(caught(Bounded(call, seconds=LONG, until=Signal()))) is error

    def test_raises_time_limit_reached_after_its_seconds(self, runner):
        started = time.monotonic()
        error = runner.drive(caught(Bounded(steps_of(Sleep(LONG)), seconds=SOON)))
        assert str(error) == "it took longer than 0.02 s"
        assert isinstance(error, TimeoutError)
        assert time.monotonic() - started < 5

    def test_a_late_result_is_dropped(self, runner):
        """A worker that ends after it was abandoned does not answer the next call."""
        has_begun, release, is_through = Signal(), threading.Event(), threading.Event()

        def late():
            has_begun.set()
            release.wait(LONG)
            is_through.set()
            return "late"

        def following():
            release.set()
            is_through.wait(LONG)
            time.sleep(SOON)  # meanwhile the late result arrives
            return "in time"

        def steps():
            yield from caught(Bounded(steps_of(Call(late, mode=Mode.THREAD)), until=has_begun))
            return (yield Call(following, mode=Mode.THREAD))

        whole = steps_of(Parallel([steps(), steps_of(Sleep(SOON))]))
        assert runner.drive(whole)[0] == "in time"

    def test_a_late_coroutine_is_never_left_unawaited(self, runner):
        """A function in a thread returns a coroutine after it was abandoned."""
        has_begun, release, is_made = Signal(), threading.Event(), Signal()

        async def coroutine():
            pass

        def slow():
            has_begun.set()
            release.wait(LONG)
            is_made.set()
            return coroutine()

        def steps():
            yield from caught(Bounded(steps_of(Call(slow, mode=Mode.THREAD)), until=has_begun))
            release.set()
            yield Wait(is_made)
            yield Sleep(SOON)

        runner.drive(steps())
        gc.collect()  # where Python would warn, and warnings are errors here

    def test_raises_stopped_when_another_thread_sets_the_signal(self, runner):
        signal = Signal()
        timer = threading.Timer(SOON, signal.set)
        timer.start()
        steps = caught(Bounded(steps_of(Sleep(LONG)), until=signal, seconds=LONG))
        assert isinstance(runner.drive(steps), Stopped)
        timer.join()

    def test_raises_stopped_at_once_if_the_signal_is_set(self, runner):
        signal = Signal()
        signal.set()
        ran = []
        steps = steps_of(Call(ran.append, 1))
        assert isinstance(runner.drive(caught(Bounded(steps, until=signal))), Stopped)
        assert ran == []

    def test_leaves_a_signal_that_was_never_set_with_no_subscribers(self, runner, stop):
        signal = Signal()

        def within():
            stop.set()
            yield Bounded(steps_of(Sleep(LONG)), until=signal)

        runner.drive(caught(Bounded(within(), until=stop)))
        runner.drive(steps_of(Bounded(steps_of(NOW), until=signal, seconds=LONG)))
        runner.drive(caught(Bounded(steps_of(Sleep(LONG)), until=signal, seconds=0)))
        assert not signal._subscribers

    @pytest.mark.parametrize("nested", [False, True])
    def test_has_no_effect_once_its_steps_have_ended(self, runner, stop, nested):
        def steps():
            yield Bounded(steps_of(NOW), until=stop, seconds=LONG)
            stop.set()
            yield Sleep(0.001)
            return "went on"

        whole = steps_of(Bounded(steps(), seconds=LONG)) if nested else steps()
        assert runner.drive(whole) == "went on"

    def test_the_outer_limit_ends_the_inner_steps(self, runner):
        inner = Bounded(steps_of(Sleep(LONG)), seconds=LONG)
        error = runner.drive(caught(Bounded(steps_of(inner), seconds=SOON)))
        assert str(error) == "it took longer than 0.02 s"

    def test_the_outer_steps_continue_after_the_inner_limit(self, runner):
        def steps():
            error = yield from caught(Bounded(steps_of(Sleep(LONG)), seconds=SOON))
            return type(error), (yield Call(int))

        assert runner.drive(steps_of(Bounded(steps(), seconds=LONG))) == (TimeLimitReached, 0)

    @pytest.mark.parametrize("seconds", [0, -1])
    def test_a_limit_of_zero_seconds_allows_steps_that_do_not_wait(self, runner, seconds):
        assert runner.drive(steps_of(Bounded(steps_of(Call(int)), seconds=seconds))) == 0

    def test_infinite_seconds_are_no_limit(self, runner):
        steps = steps_of(Bounded(steps_of(Sleep(SOON)), seconds=float("inf")))
        assert runner.drive(steps) is None

    def test_a_time_limit_ends_steps_that_only_make_quick_calls(self, runner):
        def busy():
            while True:
                yield Call(int, mode=Mode.THREAD)

        started = time.monotonic()
        whole = Parallel([caught(Bounded(busy(), seconds=0.05)) for _ in range(2)])
        errors = runner.drive(steps_of(whole))
        assert [type(error) for error in errors] == [TimeLimitReached] * 2
        assert time.monotonic() - started < 5


class TestCancellation:
    """What steps see of a cancellation, and what they may still do.

    They set the signal of their bound themselves, and are cancelled where they wait next.
    """

    @pytest.mark.parametrize("nested", [False, True])
    def test_lets_steps_perform_cleanup_effects(self, runner, stop, nested):
        seen = []

        async def close():
            seen.append("async")

        def steps():
            try:
                stop.set()
                yield Sleep(LONG)
            finally:
                yield Call(seen.append, "inline")
                yield Call(seen.append, "thread", mode=Mode.THREAD)
                yield Call(close, mode=Mode.ASYNC)
                yield Sleep(0.001)
                yield Parallel([steps_of(Call(seen.append, "parallel")), steps_of(NOW)])
                error = yield from caught(Call(callables(error=KeyError())[Mode.INLINE]))
                seen.append(type(error).__name__)
                yield Emit("closed")

        whole = steps_of(Parallel([steps(), steps_of(Sleep(LONG))])) if nested else steps()
        error = runner.drive(caught(Bounded(whole, until=stop)), seen.append)
        assert isinstance(error, Stopped)
        assert seen == ["inline", "thread", "async", "parallel", "KeyError", "closed"]

    def test_reaches_the_innermost_steps_first(self, runner, stop):
        seen = []

        def inner(name):
            try:
                if name == "b":  # which begins last
                    stop.set()
                yield Sleep(LONG)
            finally:
                seen.append(name)

        def middle():
            try:
                yield Parallel([inner("a"), inner("b")])
            finally:
                seen.append("middle")

        runner.drive(caught(Bounded(middle(), until=stop)))
        assert sorted(seen[:2]) == ["a", "b"]
        assert seen[2] == "middle"

    @pytest.mark.parametrize("nested", [False, True])
    def test_by_an_outer_bound_waits_for_a_cleanup_in_progress(self, runner, stop, nested):
        """The steps around the inner bound do not continue."""
        seen, stop_outer = [], Signal()

        def steps():
            try:
                stop.set()
                yield Sleep(LONG)
            finally:
                stop_outer.set()
                yield Sleep(0.001)
                seen.append("cleaned up")

        def around():
            yield from caught(Bounded(steps(), until=stop))
            seen.append("went on")

        whole = caught(Bounded(around(), until=stop_outer))
        if nested:
            whole = steps_of(Bounded(whole, seconds=LONG))
        assert isinstance(runner.drive(whole), Stopped)
        assert seen == ["cleaned up"]

    @pytest.mark.parametrize("late", [False, True])
    def test_cannot_be_suppressed(self, runner, stop, late):
        def steps():
            try:
                stop.set()
                yield Sleep(LONG)
            except BaseException:
                if late:
                    yield NOW
                return "I stay"

        assert isinstance(runner.drive(caught(Bounded(steps(), until=stop))), Stopped)

    @pytest.mark.parametrize("late", [False, True])
    def test_is_not_replaced_by_an_error_of_the_cleanup_which_is_logged(
        self, runner, stop, caplog, late
    ):
        def steps():
            try:
                stop.set()
                yield Sleep(LONG)
            finally:
                if late:
                    yield NOW
                raise ValueError("in leaving")

        assert isinstance(runner.drive(caught(Bounded(steps(), until=stop))), Stopped)
        assert "in leaving" in caplog.text

    def test_ends_a_cleanup_that_takes_too_long(self, runner, stop, monkeypatch):
        monkeypatch.setattr("treadle.effects.cleanup.CLEANUP_SECONDS", 0.05)
        seen = []

        def steps():
            try:
                stop.set()
                yield Sleep(LONG)
            finally:
                try:
                    yield Wait(Signal())
                finally:
                    yield Call(seen.append, "never performed")

        started = time.monotonic()
        error = runner.drive(caught(Bounded(steps(), until=stop)))
        assert isinstance(error, Stopped)
        assert time.monotonic() - started < 5
        assert seen == []


class TestParallel:
    def test_returns_results_in_the_order_of_the_steps(self, runner):
        def branch(number):
            yield Sleep(0.01 * (3 - number))
            return number

        assert runner.drive(steps_of(Parallel([branch(n) for n in range(3)]))) == [0, 1, 2]

    def test_starts_the_steps_in_order(self, runner):
        """In whatever order an event loop starts its tasks."""
        begun = []

        def branch(number):
            begun.append(number)
            yield Sleep(0)

        for _ in range(5):
            begun.clear()
            runner.drive(steps_of(Parallel([branch(number) for number in range(4)])))
            assert begun == [0, 1, 2, 3]

    def test_of_no_steps_returns_an_empty_list(self, runner):
        assert runner.drive(steps_of(Parallel([]))) == []
        assert runner.drive(steps_of(Bounded(steps_of(Parallel([], limit=1)), seconds=1))) == []

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_limit_below_one_is_an_error(self, limit):
        with pytest.raises(ValueError, match="limit must be at least 1"):
            Parallel([], limit)

    @pytest.mark.parametrize("mode", [Mode.THREAD, Mode.ASYNC])
    def test_runs_its_steps_at_the_same_time(self, runner, mode):
        barrier, arrived = threading.Barrier(3, timeout=LONG), []

        async def async_meet():
            arrived.append(True)
            with anyio.fail_after(LONG):
                while len(arrived) < 3:
                    await anyio.sleep(0.001)

        fn = async_meet if mode in AWAITED else barrier.wait
        runner.drive(steps_of(Parallel([steps_of(Call(fn, mode=mode)) for _ in range(3)])))

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_runs_at_most_limit_steps_at_a_time(self, runner, limit):
        running, most = set(), []

        def branch(number):
            running.add(number)
            most.append(len(running))
            yield Sleep(0.002)
            yield Call(int, mode=Mode.THREAD)
            running.remove(number)
            return number

        steps = steps_of(Parallel([branch(n) for n in range(7)], limit))
        assert runner.drive(steps) == list(range(7))
        assert max(most) == limit

    def test_raises_the_first_error_and_cancels_the_others(self, runner):
        error = ValueError("first")
        seen = []

        def fails():
            yield Sleep(SOON)
            raise error

        siblings = [ended(Sleep(LONG), Call(seen.append, "cancelled")) for _ in range(2)]
        assert runner.drive(caught(Parallel([siblings[0], fails(), siblings[1]]))) is error
        assert seen == ["cancelled"] * 2
        assert error.__context__ is None

    def test_starts_no_waiting_steps_after_a_failure(self, runner):
        ran = []

        def fails():
            yield Sleep(0)
            raise ValueError

        waiting = [steps_of(Call(ran.append, n)) for n in range(3)]
        error = runner.drive(caught(Parallel([fails(), *waiting], limit=1)))
        assert isinstance(error, ValueError)
        assert ran == []

    def test_raises_the_first_error_if_a_sibling_fails_in_its_cleanup(self, runner, caplog):
        def fails():
            yield Sleep(SOON)
            raise ValueError("first")

        def sibling():
            try:
                yield Sleep(LONG)
            finally:
                raise KeyError("second")

        error = runner.drive(caught(Parallel([sibling(), fails()])))
        assert str(error) == "first"
        assert "second" in caplog.text

    def test_of_parallel_returns_lists_of_lists(self, runner):
        def inner(row):
            return Parallel([steps_of(Call(divmod, row, 2)), steps_of(Call(abs, row))])

        steps = steps_of(Parallel([steps_of(inner(row)) for row in range(2)], limit=1))
        assert runner.drive(steps) == [[(0, 0), 0], [(0, 1), 1]]

    def test_a_nested_time_limit_ends_one_branch_only(self, runner):
        def limited():
            return (yield from caught(Bounded(steps_of(Sleep(LONG)), seconds=SOON)))

        def free():
            yield Sleep(2 * SOON)
            return "free"

        first, second = runner.drive(steps_of(Parallel([limited(), free()])))
        assert isinstance(first, TimeLimitReached)
        assert second == "free"


VARIABLE = contextvars.ContextVar("VARIABLE", default="unset")


class TestContextVariables:
    @pytest.mark.parametrize("mode", MODES)
    def test_are_seen_by_every_call(self, runner, mode):
        async def coroutine():
            return VARIABLE.get()

        def steps():
            token = VARIABLE.set("mine")
            call = Call(coroutine if mode in AWAITED else VARIABLE.get, mode=mode)
            one = yield call
            both = yield Parallel([steps_of(call), steps_of(call)])
            VARIABLE.reset(token)
            return one, *both

        assert runner.drive(steps()) == ("mine", "mine", "mine")

    def test_are_not_shared_between_branches(self, runner):
        def branch(value):
            VARIABLE.set(value)
            yield Sleep(0.005)
            return VARIABLE.get(), (yield Call(VARIABLE.get, mode=Mode.THREAD))

        steps = steps_of(Parallel([branch("a"), branch("b")]))
        assert runner.drive(steps) == [("a", "a"), ("b", "b")]
        assert VARIABLE.get() == "unset"

    @pytest.mark.parametrize("count", [1, 3])
    def test_are_not_shared_between_branches_that_run_one_after_another(self, runner, count):
        def branch():
            before = VARIABLE.get()
            VARIABLE.set("of the branch")
            yield Sleep(0)
            return before

        steps = steps_of(Parallel([branch() for _ in range(count)], limit=1))
        assert runner.drive(steps) == ["unset"] * count
        assert VARIABLE.get() == "unset"

    @pytest.mark.parametrize("is_stopped", [False, True])
    @pytest.mark.parametrize("seconds", [None, LONG])
    def test_that_are_set_within_bounds_stay_set_outside(self, runner, stop, seconds, is_stopped):
        def inner():
            yield Sleep(0)
            VARIABLE.set("inner")
            if is_stopped:
                stop.set()
                yield Sleep(LONG)

        def steps():
            until = stop if is_stopped else None
            yield from caught(Bounded(inner(), seconds=seconds, until=until))
            return VARIABLE.get()

        assert runner.drive(steps()) == "inner"

    @pytest.mark.parametrize("seconds", [None, LONG])
    def test_are_shared_by_the_calls_of_a_run_with_and_without_bounds(self, runner, seconds):
        async def count():
            VARIABLE.set(VARIABLE.get() + 1)
            return VARIABLE.get()

        def inner():
            VARIABLE.set(0)
            first = yield Call(count, mode=Mode.ASYNC)
            second = yield Call(count, mode=Mode.ASYNC)
            return [first, second, VARIABLE.get()]

        expected = [1, 1, 0] if runner.is_sync else [1, 2, 2]  # there, each call has its own task
        assert runner.drive(steps_of(Bounded(inner(), seconds=seconds))) == expected


@pytest.mark.parametrize("nested", [False, True])
def test_yielding_a_value_that_is_not_an_effect_is_a_type_error_in_the_steps(runner, nested):
    steps = caught("nonsense")
    if nested:
        steps = steps_of(Parallel([steps, steps_of(NOW)]))
    outcome = runner.drive(steps)
    assert (
        str(outcome[0] if nested else outcome)
        == "a stage yielded 'nonsense', which is not an effect"
    )


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("mode", [Mode.INLINE, Mode.THREAD, Mode.ASYNC])
def test_an_interrupt_ends_the_run_after_the_cleanup_of_its_steps(runner, nested, mode):
    seen = []

    def raises():
        raise KeyboardInterrupt

    def steps():
        try:
            yield Call(raises, mode=mode)
        except Exception:
            seen.append("swallowed")
        finally:
            yield Call(seen.append, "closed")

    sibling = ended(Sleep(LONG), Call(seen.append, "sibling closed"))
    whole = steps_of(Parallel([sibling, steps()])) if nested else steps()
    with pytest.raises(KeyboardInterrupt):
        runner.drive(whole)
    assert sorted(seen) == sorted(["closed", "sibling closed"] if nested else ["closed"])


def raising(error, mode, *, waits=False):
    """A call that raises, at once or when it has waited."""

    async def raises_later():
        await anyio.sleep(0)
        raise error

    return Call(raises_later if waits else callables(error=error)[mode], mode=mode)


PLACES = [(mode, False) for mode in Mode] + [(Mode.ASYNC, True)]


@pytest.mark.parametrize("nested", ["plain", "bounded", "parallel"])
@pytest.mark.parametrize(("mode", "waits"), PLACES)
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(3), "the callable called sys.exit(3)"),
        (SystemExit("bye"), "the callable called sys.exit('bye')"),
        (SystemExit(), "the callable called sys.exit()"),
        (GeneratorExit(), "the callable raised GeneratorExit"),
    ],
    ids=repr,
)
def test_a_callable_that_exits_fails(runner, nested, mode, waits, error, text):
    """``sys.exit()`` in a thread ends the thread; here it ends the callable."""
    steps = caught(raising(error, mode, waits=waits))
    if nested == "bounded":
        steps = steps_of(Bounded(steps, seconds=LONG))
    elif nested == "parallel":
        steps = steps_of(Parallel([steps, steps_of(NOW)]))
    failure = runner.drive(steps)
    failure = failure[0] if nested == "parallel" else failure
    assert isinstance(failure, Exception)
    assert str(failure) == text
    assert failure.__cause__ is error
