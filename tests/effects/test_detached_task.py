"""A task next to the body of an ``async with``, whose body may be left in another task."""

import asyncio
import gc
import threading

import anyio
import pytest

from treadle.effects import Detached, DetachedTask, detached_task

LONG = 30


def detached(work, on_cancel=lambda: None):
    """An ``async with`` around a task, whose body gets the task."""

    def start():
        task = DetachedTask(work, on_cancel)
        return task, task

    return Detached(start)


class Sleeper:
    """A task that sleeps until it is cancelled."""

    def __init__(self):
        self.seen = []

    async def __call__(self):
        self.seen.append("began")
        try:
            await anyio.sleep(LONG)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.02)
            self.seen.append("ended")

    async def until(self, what):
        with anyio.fail_after(10):
            while what not in self.seen:
                await anyio.sleep(0.001)


class TestTheBody:
    def test_runs_next_to_the_task_which_ends_with_it(self, async_runner):
        sleeper = Sleeper()

        async def main():
            async with detached(sleeper, lambda: sleeper.seen.append("cancelled")):
                await sleeper.until("began")
                sleeper.seen.append("body")

        anyio.run(main, backend=async_runner.name)
        assert sleeper.seen == ["began", "body", "cancelled", "ended"]

    def test_may_end_before_the_task_begins(self, async_runner):
        sleeper = Sleeper()

        async def main():
            async with detached(sleeper):
                pass

        anyio.run(main, backend=async_runner.name)
        assert sleeper.seen in ([], ["began", "ended"])

    def test_is_entered_once(self, async_runner):
        async def main():
            block = detached(Sleeper())
            async with block:
                with pytest.raises(RuntimeError, match="entered once"):
                    await block.__aenter__()

        anyio.run(main, backend=async_runner.name)

    @pytest.mark.parametrize("error", [ValueError("x"), ExceptionGroup("x", [ValueError("a")])])
    @pytest.mark.parametrize("whose", ["body", "task"])
    def test_raises_its_error_or_that_of_the_task(self, async_runner, whose, error):
        async def work():
            if whose == "task":
                raise error
            await anyio.sleep(LONG)

        async def main():
            async with detached(work):
                if whose == "body":
                    raise error
                await anyio.sleep(0.01)  # it is not interrupted
            raise AssertionError("unreachable")

        with pytest.raises(type(error)) as caught:
            anyio.run(main, backend=async_runner.name)
        assert caught.value is error

    def test_raises_its_error_and_logs_that_of_the_task(self, async_runner, caplog):
        async def work():
            raise ValueError("of the task")

        async def main():
            async with detached(work):
                await anyio.sleep(0.01)
                raise LookupError("of the body")

        with pytest.raises(LookupError, match="of the body"):
            anyio.run(main, backend=async_runner.name)
        assert "of the task" in caplog.text

    def test_raises_an_interrupt_of_the_task_in_place_of_its_error(self, async_runner):
        async def work():
            raise KeyboardInterrupt

        async def main():
            async with detached(work):
                await anyio.sleep(0.01)
                raise LookupError

        with pytest.raises(KeyboardInterrupt):
            anyio.run(main, backend=async_runner.name)

    def test_does_not_raise_an_error_that_was_taken(self, async_runner):
        async def work():
            raise ValueError("taken")

        async def main():
            async with detached(work) as task:
                await anyio.sleep(0.01)
                assert str(task.take_error()) == "taken"

        anyio.run(main, backend=async_runner.name)


class TestLeaving:
    @pytest.mark.parametrize("how", ["task", "scope"])
    def test_waits_for_the_task_although_the_caller_is_cancelled(self, how):
        """A native cancellation, which a shield does not hold off, and one of anyio."""
        sleeper, after = Sleeper(), []

        async def reader():
            async with detached(sleeper):
                await sleeper.until("began")
            after.append("not reached")

        async def main():
            if how == "task":
                task = asyncio.create_task(reader())
                await sleeper.until("began")
                for _ in range(3):
                    await asyncio.sleep(0.005)
                    task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                with anyio.CancelScope() as scope:
                    async with detached(sleeper):
                        await sleeper.until("began")
                        scope.cancel()
                        await anyio.sleep(LONG)
            assert sleeper.seen == ["began", "ended"]

        asyncio.run(main())
        assert after == []

    def test_stops_waiting_for_a_task_that_ignores_it(self, async_runner, monkeypatch, caplog):
        monkeypatch.setattr(detached_task, "LEAVE_SECONDS", 0.05)
        done = []

        async def work():
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.3)
            done.append(True)

        async def main():
            async with detached(work):
                await anyio.sleep(0.01)
            assert done == []
            await anyio.sleep(0.4)

        anyio.run(main, backend=async_runner.name)
        assert done == [True]
        assert "it is abandoned" in caplog.text

    def test_in_another_event_loop_only_cancels(self):
        """Each of the loops runs, in a thread of its own."""
        sleeper, entered, left = Sleeper(), threading.Event(), threading.Event()
        block = detached(sleeper)

        async def enter():
            await block.__aenter__()
            await sleeper.until("began")
            entered.set()
            await anyio.to_thread.run_sync(left.wait)
            await sleeper.until("ended")

        async def leave():
            await block.__aexit__(None, None, None)
            left.set()

        thread = threading.Thread(target=lambda: asyncio.run(enter()))
        thread.start()
        assert entered.wait(10)
        asyncio.run(leave())
        thread.join(10)
        assert not thread.is_alive()

    def test_without_an_event_loop_or_after_its_end_does_nothing(self):
        sleeper = Sleeper()
        block = detached(sleeper)

        async def main():
            await block.__aenter__()
            await sleeper.until("began")

        asyncio.run(main())
        with pytest.raises(StopIteration):
            block.__aexit__(None, None, None).send(None)
        assert sleeper.seen == ["began", "ended"]  # it ended with its event loop


def test_a_block_that_is_never_left_ends_with_its_object(async_runner):
    sleeper = Sleeper()

    async def main():
        block = detached(sleeper)
        await block.__aenter__()
        await sleeper.until("began")
        del block
        gc.collect()
        await sleeper.until("ended")

    anyio.run(main, backend=async_runner.name)
