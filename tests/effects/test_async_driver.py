"""Calls that may ignore their cancellation, on an event loop: none of them blocks a run."""

import asyncio
import contextlib
import contextvars
import functools
import gc
import logging
import sys
import threading
import time

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
    drive_sync,
)

from .steps import LONG, caught, steps_of

SOON = 0.2  # long enough for a call to begin
GRACE = 0.05
ENOUGH = LONG / 3  # for a busy machine; much less than LONG


def call(fn, *args, key="k"):
    return Call(fn, *args, mode=Mode.ASYNC, label="tool", key=key)


def carried(fn, *args):
    """A call within a bound that does not strike."""
    return Bounded(steps_of(call(fn, *args)), seconds=LONG)


def stopped(fn, *args):
    """A call within a bound that strikes at the first wait of the call, and what it raises."""
    stop = Signal()

    async def striking(*args):
        stop.set()
        return await fn(*args)

    return caught(Bounded(steps_of(call(striking, *args)), until=stop))


def waiting(stop):
    """Steps that strike a bound and then wait."""
    stop.set()
    yield Sleep(LONG)


@pytest.fixture(autouse=True)
def grace(monkeypatch):
    """Set the grace period; it is short unless a test sets it."""

    def set_to(seconds):
        monkeypatch.setattr("treadle.effects.cleanup.GRACE_SECONDS", seconds)

    set_to(GRACE)
    return set_to


class Tools:
    """Coroutine functions that ignore their cancellation until they are released."""

    def __init__(self):
        self.begun = Signal()
        self.refused = Signal()
        self.is_released = False
        self.attempts = 0
        self.ended = []

    async def _released(self):
        self.begun.set()
        while not self.is_released:
            self.attempts += 1
            await anyio.sleep(0.01)

    async def swallows(self):
        """Catches everything that is raised and continues."""
        while not self.is_released:
            try:
                await self._released()
            except BaseException:
                self.refused.set()
        self.ended.append("swallows")

    async def swallows_natively(self):
        """The same, with the sleep of the library that runs it."""
        self.begun.set()
        sleep = (asyncio if _on_asyncio() else __import__("trio")).sleep
        while not self.is_released:
            with contextlib.suppress(BaseException):
                self.attempts += 1
                await sleep(0.01)
        self.ended.append("swallows_natively")

    async def shields(self):
        """Catches the cancellation once, and shields itself from the next."""
        try:
            await self._released()
        finally:
            with anyio.CancelScope(shield=True):
                await self._released()
            self.ended.append("shields")

    async def only_shields(self):
        """Does no more than to shield itself, which on asyncio does not help against its task."""
        with anyio.CancelScope(shield=True):
            await self._released()

    async def fails_late(self):
        try:
            await self.swallows()
        finally:
            raise ValueError("late")


def _on_asyncio():
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


STUBBORN = ["swallows", "swallows_natively", "shields", "fails_late"]


@pytest.fixture
def tools():
    made = Tools()
    yield made
    made.is_released = True


@pytest.fixture
def go(async_runner):
    """Run a coroutine function on asyncio or on trio."""
    return functools.partial(anyio.run, backend=async_runner.name)


async def settled(tools, name):
    """Let abandoned calls end."""
    tools.is_released = True
    with anyio.fail_after(LONG):
        while name not in tools.ended:
            await anyio.sleep(0.005)
    await anyio.sleep(0.005)
    gc.collect()  # where Python would warn, and warnings are errors here


class TestCallsThatIgnoreCancellation:
    @pytest.mark.parametrize("name", STUBBORN)
    def test_is_abandoned_after_a_time_limit(self, go, tools, caplog, name):
        async def main():
            started = time.monotonic()
            within = Bounded(steps_of(call(getattr(tools, name))), seconds=SOON)
            error = await drive(caught(within))
            took = time.monotonic() - started
            await settled(tools, "swallows" if name == "fails_late" else name)
            return error, took

        error, took = go(main)
        assert isinstance(error, TimeLimitReached)
        assert SOON + GRACE <= took < ENOUGH
        assert [record.getMessage() for record in caplog.records] == [
            "Call('tool', key='k') still runs 0.05 s after it was cancelled: it is abandoned"
        ]
        assert caplog.records[0].levelno == logging.WARNING

    def test_ends_or_is_abandoned_if_it_only_shields_itself(self, go, tools):
        async def main():
            started = time.monotonic()
            error = await drive(stopped(tools.only_shields))
            tools.is_released = True
            return error, time.monotonic() - started

        error, took = go(main)
        assert isinstance(error, Stopped)
        assert took < ENOUGH

    @pytest.mark.parametrize("name", STUBBORN)
    def test_is_abandoned_when_the_run_is_cancelled(self, go, tools, name):
        """By a scope of anyio, which on asyncio cancels again and again."""
        closed = []

        def steps():
            try:
                yield carried(getattr(tools, name))
            finally:
                closed.append((yield NOW))

        async def main():
            started = time.monotonic()
            with anyio.CancelScope() as scope:
                tools.begun.subscribe(scope.cancel)
                await drive(steps())
            took = time.monotonic() - started
            await settled(tools, "swallows" if name == "fails_late" else name)
            return scope.cancelled_caught, took

        is_caught, took = go(main)
        assert is_caught
        assert took < ENOUGH
        assert len(closed) == 1

    @pytest.mark.parametrize("name", STUBBORN)
    def test_is_abandoned_when_the_task_is_cancelled(self, tools, name):
        """Once, as asyncio does it."""

        async def main():
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    tools.begun.subscribe(lambda: limit.reschedule(0))
                    await drive(steps_of(carried(getattr(tools, name))))
            assert asyncio.current_task().cancelling() == 0
            took = time.monotonic() - started
            await settled(tools, "swallows" if name == "fails_late" else name)
            return took

        assert asyncio.run(main()) < ENOUGH

    def test_is_abandoned_together_with_its_siblings(self, go, tools, grace, caplog):
        """Their grace periods overlap: all are cancelled before the first is abandoned."""
        grace(0.3)
        stop, refused = Signal(), []

        async def refuses(number):
            try:
                await anyio.sleep(LONG)
            except BaseException:
                refused.append((number, len(caplog.records)))
                await tools.swallows()

        def branch(number):
            if number == 4:
                stop.set()
            yield call(refuses, number)

        async def main():
            branches = Parallel([branch(number) for number in range(5)])
            error = await drive(caught(Bounded(steps_of(branches), until=stop)))
            await settled(tools, "swallows")
            return error

        assert isinstance(go(main), Stopped)
        assert sorted(refused) == [(number, 0) for number in range(5)]
        assert len(caplog.records) == 5

    def test_is_cancelled_only_once(self, go, tools):
        """An ignored cancellation is not raised again at each wait of the call."""

        async def main():
            await drive(stopped(tools.swallows_natively))
            before = tools.attempts
            await anyio.sleep(0.1)
            attempts = tools.attempts - before
            await settled(tools, "swallows_natively")
            return attempts

        assert 1 <= go(main) < 20

    def test_is_waited_for_without_busy_waiting(self, go, tools, grace):
        """The cancellation of the waiting task is not raised again and again."""
        grace(1)

        async def main():
            before = time.thread_time()
            with anyio.CancelScope() as scope:
                tools.begun.subscribe(scope.cancel)
                await drive(steps_of(carried(tools.shields)))
            took = time.thread_time() - before
            await settled(tools, "shields")
            return took

        assert go(main) < 0.2

    def test_does_not_end_the_run(self, go, tools):
        def steps():
            first = yield from stopped(tools.swallows)
            second = yield carried(_seven)
            return type(first), second

        async def main():
            outcome = await drive(steps())
            await settled(tools, "swallows")
            return outcome

        assert go(main) == (Stopped, 7)

    def test_is_abandoned_in_the_cleanup_of_cancelled_steps(self, go, tools):
        stop, errors = Signal(), []

        def steps():
            try:
                yield from waiting(stop)
            finally:
                errors.append((yield from stopped(tools.swallows)))

        async def main():
            await drive(caught(Bounded(steps(), until=stop)))
            await settled(tools, "swallows")

        go(main)
        assert [type(error) for error in errors] == [Stopped]

    def test_is_abandoned_if_a_function_in_a_thread_returned_it(self, go, tools):
        """For example ``lambda call: tools[call.name](**call.input)``."""

        async def main():
            made = Call(tools.swallows, mode=Mode.THREAD, label="tool")
            error = await drive(caught(Bounded(steps_of(made), until=tools.begun)))
            await settled(tools, "swallows")
            return error

        assert isinstance(go(main), Stopped)

    def test_may_be_a_function_that_blocks_a_thread(self, go):
        begun, release = Signal(), threading.Event()

        def blocks():
            begun.set()
            release.wait(LONG)

        async def cancel(scope):
            await drive(steps_of(Wait(begun)))
            scope.cancel()

        async def main():
            async with anyio.create_task_group() as group:
                group.start_soon(cancel, group.cancel_scope)
                await drive(steps_of(Call(blocks, mode=Mode.THREAD)))
            release.set()
            return group.cancel_scope.cancelled_caught

        assert go(main)

    def test_does_not_keep_an_asyncio_program_from_exiting(self, run_python):
        """It delays neither `asyncio.run` nor the interpreter, which would close the coroutine."""
        run_python(
            """
            import asyncio, logging
            from treadle.effects import Call, Mode, TimeLimitReached, Bounded, cleanup, drive

            cleanup.GRACE_SECONDS = 0.05
            logging.disable(logging.WARNING)

            async def never_ends():
                while True:
                    try:
                        await asyncio.sleep(1)
                    except BaseException:
                        pass

            def one(effect):
                return (yield effect)

            async def main():
                within = Bounded(one(Call(never_ends, mode=Mode.ASYNC)), seconds=0.01)
                try:
                    await drive(one(within))
                except TimeLimitReached:
                    print("went on", flush=True)
                call = Call(never_ends, mode=Mode.ASYNC)
                in_flight = drive(one(Bounded(one(call), seconds=30)))
                task = asyncio.create_task(in_flight)
                await asyncio.sleep(0.05)

            asyncio.run(main())
            """,
            "went on\n",
            "-X",
            "dev",
        )


class TestCallsThatEnd:
    @pytest.fixture(autouse=True)
    def enough_grace(self, grace):
        grace(LONG)

    def test_has_ended_before_the_run_continues(self, go):
        seen = []

        async def tool():
            seen.append(asyncio.current_task() if _on_asyncio() else None)
            try:
                await anyio.sleep(LONG)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.02)
                seen.append("finally")

        def steps():
            yield from stopped(tool)
            seen.append("went on")

        async def main():
            await drive(steps())
            task = seen[0]
            if task is not None:
                assert task.done()
                assert asyncio.all_tasks() == {asyncio.current_task()}

        go(main)
        assert seen[1:] == ["finally", "went on"]

    def test_has_ended_before_the_run_continues_even_if_cancelled_twice(self):
        seen = []

        async def tool():
            try:
                asyncio.get_running_loop().call_soon(task.cancel)
                await asyncio.sleep(LONG)
            finally:
                task.cancel()
                await asyncio.sleep(0.02)
                seen.append("finally")

        async def main():
            nonlocal task
            task = asyncio.create_task(drive(steps_of(carried(tool))))
            with pytest.raises(asyncio.CancelledError):
                await task
            seen.append("went on")

        task = None
        asyncio.run(main())
        assert seen == ["finally", "went on"]

    @pytest.mark.parametrize("returns", [True, False])
    def test_with_a_late_value_or_error_does_not_undo_the_bound(self, go, caplog, returns):
        """A late error is logged."""

        async def tool():
            try:
                await anyio.sleep(LONG)
            finally:
                if returns:
                    return "a value"  # noqa: B012 - some tools do that
                raise ValueError("in leaving")

        async def main():
            return await drive(stopped(tool))

        assert isinstance(go(main), Stopped)
        assert ("in leaving" in caplog.text) is not returns

    def test_with_an_interrupt_ends_a_run_that_is_cancelled(self, go):
        """The interrupt takes precedence over the cancellation."""

        async def tool():
            try:
                scope.cancel()
                await anyio.sleep(LONG)
            finally:
                raise KeyboardInterrupt

        async def main():
            nonlocal scope
            with anyio.CancelScope() as scope:
                await drive(steps_of(carried(tool)))

        scope = None
        with pytest.raises(KeyboardInterrupt):
            go(main)

    def test_in_a_task_group_does_not_undo_the_bound_with_an_error(self, go, caplog):
        """A nursery of trio raises the error and the cancellation in one group."""
        stop = Signal()

        async def sub():
            try:
                stop.set()
                await anyio.sleep(LONG)
            finally:
                raise ValueError("in leaving")

        async def tool():
            async with anyio.create_task_group() as group:
                group.start_soon(sub)
                await anyio.sleep(LONG)

        async def main():
            return await drive(caught(Bounded(steps_of(call(tool)), until=stop)))

        assert isinstance(go(main), Stopped)
        assert "in leaving" in caplog.text


def test_a_time_limit_reached_while_its_steps_end_has_no_effect():
    """Not even in the remaining event loop cycles of the steps."""

    async def late():
        time.sleep(0.02)  # so that the limit is reached in the next cycle, and not before
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def steps():
        yield Bounded(steps_of(call(late)), seconds=0.01)
        yield Sleep(0.001)
        return "went on"

    assert asyncio.run(drive(steps_of(Bounded(steps(), seconds=LONG)))) == "went on"


class TestACall:
    def test_is_the_last_if_the_run_is_cancelled_before_it_continues(self):
        """On trio, which continues tasks in any order: the run is woken, and cancelled before its turn."""
        trio = pytest.importorskip("trio")

        async def main():
            seen = []

            def cancel():
                seen.append("cancelled")
                scope.cancel()

            async def tool():
                trio.lowlevel.current_trio_token().run_sync_soon(cancel)

            def steps():
                yield carried(tool)
                seen.append("went on")

            with trio.CancelScope() as scope:
                await drive(steps())
                await trio.sleep(LONG)
            return seen

        for _ in range(30):
            assert trio.run(main) in (["cancelled"], ["went on", "cancelled"])

    @pytest.mark.parametrize("in_steps", [call, carried])
    def test_is_not_made_if_the_run_is_already_cancelled(self, go, in_steps):
        """Not even one that awaits nothing, which could not be cancelled afterwards."""
        made = []

        async def main():
            with anyio.CancelScope() as scope:
                scope.cancel()
                await drive(steps_of(in_steps(_append, made)))
            return scope.cancelled_caught

        assert go(main)
        assert made == []

    @pytest.mark.parametrize("in_steps", [call, carried])
    def test_is_not_made_if_the_task_is_already_cancelled(self, in_steps):
        made = []

        async def main():
            asyncio.current_task().cancel()
            with pytest.raises(asyncio.CancelledError):
                await drive(steps_of(in_steps(_append, made)))

        asyncio.run(main())
        assert made == []

    def test_from_a_thread_is_awaited_although_the_run_is_being_cancelled(self):
        """The run is cancelled just after a function in a thread returned a coroutine."""

        async def coroutine():
            await asyncio.sleep(LONG)

        async def main():
            loop, stop = asyncio.get_running_loop(), Signal()

            async def cancel(task):
                while not task._fut_waiter.done():
                    await asyncio.sleep(0)
                stop.set()  # the thread has answered, and the task is about to continue

            def make(tasks):
                asyncio.run_coroutine_threadsafe(cancel(*tasks), loop)
                return coroutine()

            def steps():
                tasks = yield Call(lambda: [asyncio.current_task()])
                yield Call(make, tasks, mode=Mode.THREAD)

            return await drive(caught(Bounded(steps(), until=stop)))

        assert isinstance(asyncio.run(main()), Stopped)
        gc.collect()  # where Python would warn, and warnings are errors here

    def test_that_other_code_cancels_is_call_cancelled(self):
        async def tool():
            task = asyncio.current_task()
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.sleep(LONG)

        async def main():
            error = await drive(caught(carried(tool)))
            assert asyncio.current_task().cancelling() == 0
            return error

        assert isinstance(asyncio.run(main()), CallCancelled)

    def test_that_other_code_cancels_before_it_begins_is_call_cancelled(self):
        def factory(loop, coroutine, **options):
            task = asyncio.Task(coroutine, loop=loop, **options)
            task.cancel()
            return task

        async def main():
            asyncio.get_running_loop().set_task_factory(factory)
            try:
                await drive(steps_of(call(_seven)))
            except CallCancelled as error:
                return error
            finally:
                asyncio.get_running_loop().set_task_factory(None)

        assert isinstance(asyncio.run(main()), CallCancelled)

    def test_that_is_cancelled_in_the_cleanup_of_a_cancelled_run_is_call_cancelled(self):
        seen = []

        async def tool():
            raise asyncio.CancelledError

        def steps():
            try:
                yield Sleep(LONG)
            finally:
                seen.append((yield from caught(carried(tool))))

        async def main():
            await asyncio.wait_for(drive(steps()), SOON)

        with pytest.raises(TimeoutError):
            asyncio.run(main())
        assert [type(error) for error in seen] == [CallCancelled]

    def test_that_is_cancelled_in_a_run_that_a_cancelled_task_starts_is_call_cancelled(self):
        async def tool():
            raise asyncio.CancelledError

        async def cancelled():
            try:
                await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                return await drive(caught(Call(tool, mode=Mode.ASYNC)))

        async def main():
            task = asyncio.create_task(cancelled())
            await asyncio.sleep(0)
            task.cancel()
            return await task

        assert isinstance(asyncio.run(main()), CallCancelled)

    def test_is_cancelled_when_the_run_is_abandoned(self):
        seen = []

        async def tool():
            try:
                await asyncio.sleep(LONG)
            finally:
                seen.append("tool")

        def steps():
            try:
                yield call(tool)
            except Exception as error:
                seen.append(error)
            finally:
                seen.append("closed")
                yield Emit("cleanup")

        async def main():
            run = drive(steps())
            run.send(None)  # as a task does that is then dropped
            await asyncio.sleep(0)
            run.close()
            await asyncio.sleep(0.01)

        asyncio.run(main())
        assert seen == ["tool", "closed"]

    @pytest.mark.parametrize("is_closed", [True, False])
    def test_is_dropped_with_an_event_loop_that_was_closed_too_early(self, caplog, is_closed):
        """Only asyncio logs it, as it does for every task."""

        async def begin(run):
            task = asyncio.ensure_future(run)
            await asyncio.sleep(0.01)
            return task

        run = drive(steps_of(carried(asyncio.sleep, LONG)))
        loop = asyncio.new_event_loop()
        task = loop.run_until_complete(begin(run))
        loop.close()
        if is_closed:
            run.close()
        del run, task, loop
        gc.collect()
        assert {record.name for record in caplog.records} == {"asyncio"}
        assert all("destroyed" in record.getMessage() for record in caplog.records)


class TestCleanupOfAStuckCall:
    """The frames of a stuck task are cleaned up by another one."""

    @staticmethod
    def noting(seen, name, effect):
        try:
            return (yield effect)
        finally:
            seen.append((yield Call(str, name)))

    def test_runs_innermost_first(self, go, tools, grace):
        grace(0.3)  # enough for the sibling
        seen = []

        def steps():
            stuck = self.noting(seen, "inner", call(tools.swallows))
            alone = self.noting(seen, "alone", Parallel([stuck]))
            sibling = self.noting(seen, "sibling", Sleep(LONG))
            both = Parallel([sibling, alone])
            within = Bounded(self.noting(seen, "within", both), seconds=LONG)
            return (yield from self.noting(seen, "outer", within))

        async def main():
            error = await drive(caught(Bounded(steps(), until=tools.begun)))
            await settled(tools, "swallows")
            return error

        assert isinstance(go(main), Stopped)
        assert seen == ["sibling", "inner", "alone", "within", "outer"]

    @pytest.mark.parametrize("name", STUBBORN)
    def test_leaves_nothing_for_the_stuck_task_to_do(self, go, tools, name):
        """The stuck call ends while the cleanup runs."""
        seen, events, has_ended = [], [], Signal()

        async def tool():
            try:
                return await getattr(tools, name)()
            finally:
                seen.append("tool ended")
                has_ended.set()

        def steps():
            try:
                seen.append((yield call(tool)))
            except Exception as error:
                seen.append(error)
            finally:
                tools.is_released = True
                yield Wait(has_ended)
                seen.append("cleanup")
                yield Emit("cleanup")

        async def main():
            error = await drive(caught(Bounded(steps(), until=tools.begun)), events.append)
            await settled(tools, "swallows" if name == "fails_late" else name)
            return error

        assert isinstance(go(main), Stopped)
        assert seen == ["tool ended", "cleanup"]
        assert events == ["cleanup"]

    def test_drops_the_events_of_the_stuck_call(self, go, tools):
        events = []

        async def reports(reporter):
            reporter.emit("early")
            try:
                await tools.swallows()
            finally:
                reporter.emit("late")

        async def main():
            stuck = Call(reports, mode=Mode.ASYNC, reporting=True)
            await drive(caught(Bounded(steps_of(stuck), until=tools.begun)), events.append)
            await settled(tools, "swallows")

        go(main)
        assert events == ["early"]

    def test_is_ended_if_it_is_stuck(self, go, tools, grace, monkeypatch, caplog):
        monkeypatch.setattr("treadle.effects.cleanup.CLEANUP_SECONDS", 0.05)
        grace(0.3)
        seen, stop = [], Signal()

        def inner():
            try:
                yield from waiting(stop)
            finally:
                yield call(tools.swallows)
                seen.append("never performed")

        async def main():
            steps = self.noting(seen, "outer", Parallel([inner()]))
            started = time.monotonic()
            error = await drive(caught(Bounded(steps, until=stop)))
            took = time.monotonic() - started
            await settled(tools, "swallows")
            return error, took

        error, took = go(main)
        assert isinstance(error, Stopped)
        assert took < ENOUGH
        assert seen == ["outer"]
        assert "it is abandoned" in caplog.text

    def test_that_is_stuck_after_an_interrupt_does_not_hide_it(self, go, tools, monkeypatch):
        monkeypatch.setattr("treadle.effects.cleanup.CLEANUP_SECONDS", 0.05)
        seen = []

        def interrupted():
            raise KeyboardInterrupt

        def inner():
            try:
                yield Call(interrupted)
            finally:
                yield call(tools.swallows)

        def outer():
            try:
                yield Bounded(inner(), seconds=LONG)
            except BaseException as error:
                seen.append(type(error))
                raise

        async def main():
            with pytest.raises(KeyboardInterrupt):
                await drive(outer())
            await settled(tools, "swallows")

        go(main)
        assert seen == [KeyboardInterrupt]

    def test_keeps_the_context_variables(self, go, tools):
        variable = contextvars.ContextVar("variable", default="unset")

        def steps():
            token = variable.set("inner")
            try:
                yield call(tools.swallows)
            finally:
                variable.reset(token)
                variable.set("cleanup")

        def outer():
            yield from caught(Bounded(steps(), until=tools.begun))
            return variable.get()

        async def main():
            value = await drive(outer())
            await settled(tools, "swallows")
            return value

        assert go(main) == "cleanup"

    def test_of_a_run_that_is_cancelled_meanwhile_keeps_the_cancellation(self, tools, grace):
        """The bound strikes, and in the grace period the task is cancelled."""
        grace(0.3)
        seen = []

        def steps():
            yield from stopped(tools.swallows)
            seen.append("went on")

        async def main():
            task = asyncio.create_task(drive(steps()))
            tools.refused.subscribe(task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await task
            await settled(tools, "swallows")

        asyncio.run(main())
        assert seen == []


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_run_in_a_cancelled_task_begins_and_is_cancelled_at_its_first_wait(go, is_bounded):
    """So it can report its end."""
    seen = []

    async def waits():
        await anyio.sleep(0.05)
        seen.append("went on")

    def steps():
        yield NOW
        try:
            yield Emit("begun")
            yield carried(waits) if is_bounded else call(waits)
        finally:
            yield Call(seen.append, "cleaned up")

    async def main():
        with anyio.CancelScope() as scope:
            scope.cancel()
            await drive(steps(), seen.append)
        return scope.cancelled_caught

    assert go(main)
    assert seen == ["begun", "cleaned up"]


def test_a_run_of_a_caller_that_handles_its_cancellation_is_not_cancelled():
    async def main():
        asyncio.current_task().cancel()
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            return await drive(steps_of(call(_seven)))

    assert asyncio.run(main()) == 7


def test_the_time_limit_of_the_caller_is_a_timeout_although_the_cleanup_of_a_branch_fails(caplog):
    def failing():
        try:
            yield Sleep(LONG)
        finally:
            raise ValueError("in leaving")

    async def main():
        async with asyncio.timeout(0.02):
            await drive(steps_of(Parallel([failing(), steps_of(Sleep(LONG))])))

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert "in leaving" in caplog.text


class TestACallableThatCancelsItsOwnTask:
    """On asyncio, where a task can be cancelled by anything that it calls."""

    @staticmethod
    async def waits():
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    @staticmethod
    async def returns():
        asyncio.current_task().cancel()
        return "returned"

    @staticmethod
    def plain():
        asyncio.current_task().cancel()
        return "returned"

    @staticmethod
    def and_then(effect):
        outcome = yield from caught(effect)
        yield Sleep(0.001)
        return outcome, (yield call(_seven))

    @staticmethod
    async def raises():
        asyncio.current_task().cancel()
        raise ValueError("raised")

    def everywhere(self, fn):
        yield Sleep(0)
        outermost, seven = yield from self.and_then(call(fn))
        assert seven == 7
        (first, seven) = yield Bounded(self.and_then(call(fn)), seconds=LONG)
        assert seven == 7
        both = yield Parallel([self.and_then(call(fn)), self.and_then(call(_seven))])
        assert both[1] == (7, 7)
        assert both[0][1] == 7
        return outermost, first, both[0][0]

    @pytest.mark.parametrize(
        ("fn", "outcome"),
        [
            ("waits", "CallCancelled("),
            ("returns", "'returned'"),
            ("raises", "ValueError('raised')"),
        ],
    )
    def test_has_its_outcome_whether_there_is_one_call_or_several(self, fn, outcome):
        outcomes = asyncio.run(drive(self.everywhere(getattr(self, fn))))
        assert [repr(one).startswith(outcome) for one in outcomes] == [True, True, True]

    def test_keeps_its_return_value_if_it_is_not_async(self):
        def steps():
            made = Call(self.plain)
            return (yield Bounded(self.and_then(made), seconds=LONG))

        assert asyncio.run(drive(steps())) == ("returned", 7)


class TestParallel:
    def test_a_cancellation_wins_over_an_error_at_the_same_time(self):
        async def main():
            def fails():
                yield Sleep(0.01)
                task.cancel()
                raise ValueError

            both = Parallel([fails(), steps_of(Sleep(LONG))])
            task = asyncio.create_task(drive(steps_of(both)))
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())

    def test_logs_nothing_if_it_is_cancelled_before_a_branch_begins(self, caplog):
        async def main():
            branches = [steps_of(call(_seven)) for _ in range(3)]
            task = asyncio.create_task(drive(steps_of(Parallel(branches))))
            await asyncio.sleep(0)  # the branches are tasks by now, but none has run
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            return raised.value.__cause__

        assert asyncio.run(main()) is None
        assert caplog.records == []

    def test_keeps_a_cancellation_although_a_branch_failed(self, grace, caplog):
        """The first branch fails; while the second cleans up, the task is cancelled; the failure is logged."""
        grace(LONG)
        seen = []

        def fails():
            yield Sleep(0)
            raise ValueError("first")

        def slow():
            try:
                yield Sleep(LONG)
            finally:
                asyncio.get_running_loop().call_soon(task.cancel)
                yield Sleep(0.02)

        def steps():
            yield from caught(Parallel([fails(), slow()]))
            seen.append("went on")

        async def main():
            nonlocal task
            task = asyncio.create_task(drive(steps()))
            with pytest.raises(asyncio.CancelledError):
                await task

        task = None
        asyncio.run(main())
        assert "ValueError: first" in caplog.text
        assert seen == []

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="has no eager tasks")
    @pytest.mark.parametrize("limit", [None, 1])
    def test_works_with_eager_tasks(self, limit):
        async def main():
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
            branches = [steps_of(Call(abs, n)) for n in range(500)]
            many = await drive(steps_of(Parallel(branches, limit)))
            waiting = [steps_of(carried(_seven)) for _ in range(3)]
            return many == list(range(500)), await drive(steps_of(Parallel(waiting, limit)))

        assert asyncio.run(main()) == (True, [7, 7, 7])

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="has no eager tasks")
    def test_an_eager_task_can_set_the_signal_of_its_bound_at_once(self):
        def steps(signal):
            yield Call(signal.set)
            yield Sleep(LONG)

        async def main():
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
            signal = Signal()
            with pytest.raises(Stopped):
                await drive(steps_of(Bounded(steps(signal), until=signal)))
            inner = Signal()  # of a bound within a bound
            within = steps_of(Bounded(steps(inner), until=inner))
            with pytest.raises(Stopped):
                await drive(steps_of(Bounded(within, seconds=LONG)))

        asyncio.run(main())


def test_no_call_starts_after_the_signal_of_its_bound_was_set(go):
    """Not even one that never waits, before the task of the bound has run."""
    seen, stop = [], Signal()

    def steps():
        yield Call(stop.set)
        yield call(_append, seen)

    async def main():
        return await drive(caught(Bounded(steps(), until=stop)))

    assert isinstance(go(main), Stopped)
    assert seen == []


def test_a_value_returned_after_the_signal_of_the_bound_was_set_is_dropped(go):
    stop = Signal()

    def steps():
        yield NOW
        stop.set()
        return 7

    async def main():
        return await drive(caught(Bounded(steps(), until=stop)))

    assert isinstance(go(main), Stopped)


def test_a_loop_that_ended_is_not_notified_of_a_signal():
    stop = Signal()

    async def main():
        task = asyncio.create_task(drive(steps_of(Wait(stop))))
        await asyncio.sleep(0.01)
        subscribers.extend(stop._subscribers.values())
        task.cancel()

    subscribers = []
    asyncio.run(main())
    assert subscribers
    assert not stop._subscribers
    for notify in subscribers:
        notify()


class TestWithoutAnEventLoop:
    """On the background loop, where nothing waits for abandoned calls."""

    def test_a_call_is_abandoned_and_the_next_is_served(self, tools):
        started = time.monotonic()
        assert isinstance(drive_sync(stopped(tools.swallows)), Stopped)
        assert drive_sync(steps_of(carried(_seven))) == 7
        assert time.monotonic() - started < ENOUGH

    def test_a_call_that_fails_after_it_was_abandoned_is_silent(self, tools, caplog):
        assert isinstance(drive_sync(stopped(tools.fails_late)), Stopped)
        tools.is_released = True
        deadline = time.monotonic() + LONG
        while "swallows" not in tools.ended:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert drive_sync(steps_of(carried(_seven))) == 7  # the other call has ended
        gc.collect()
        assert [record.getMessage() for record in caplog.records] == [
            "Call('tool', key='k') still runs 0.05 s after it was cancelled: it is abandoned"
        ]


async def _seven():
    await anyio.sleep(0)
    return 7


async def _append(items):
    items.append(1)
