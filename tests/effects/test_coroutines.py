"""Coroutines that change an outcome or have their own context variables."""

import asyncio
import contextvars
import gc

import anyio
import pytest

from treadle.effects import Call, Mode, Then, in_context

from .steps import steps_of


class TestThen:
    @staticmethod
    async def fetch(value):
        await asyncio.sleep(0)
        return value

    @pytest.mark.parametrize("run", ["asyncio", "drive"])
    def test_changes_the_result_of_an_awaitable(self, run, runner):
        then = Then(self.fetch(2), lambda value: value + 1)
        if run == "asyncio":
            assert asyncio.run(self.awaited(then)) == 3
        elif runner.name != "trio":
            assert runner.drive(steps_of(Call(lambda: then, mode=Mode.ASYNC))) == 3
        else:
            then.close()

    @staticmethod
    async def awaited(awaitable):
        return await awaitable

    def test_raises_exceptions_of_the_awaitable_and_of_the_function(self):
        async def fails():
            raise ValueError

        with pytest.raises(ValueError):
            asyncio.run(self.awaited(Then(fails(), str)))
        with pytest.raises(ZeroDivisionError):
            asyncio.run(self.awaited(Then(self.fetch(0), lambda value: 1 / value)))

    def test_awaits_other_awaitables(self):
        async def main():
            future = asyncio.get_running_loop().create_future()
            future.set_result(1)
            return await Then(future, lambda value: value + 1)

        assert asyncio.run(main()) == 2

    def test_lets_the_inner_awaitable_handle_a_cancellation(self):
        async def stubborn():
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return "cancelled"

        async def main():
            task = asyncio.ensure_future(Then(stubborn(), str.upper))
            await asyncio.sleep(0)
            task.cancel()
            return await task

        assert asyncio.run(main()) == "CANCELLED"

    def test_that_is_closed_before_it_started_leaves_nothing_unawaited(self):
        Then(self.fetch(1), str).close()
        gc.collect()


class TestInContext:
    """An awaitable with separate context variables, whatever awaits it."""

    place = contextvars.ContextVar("place", default="outside")

    @pytest.fixture
    def inside(self):
        context = contextvars.copy_context()
        context.run(self.place.set, "inside")
        return context

    async def moves(self, to):
        was = self.place.get()
        await anyio.sleep(0)
        self.place.set(to)
        return was

    def test_reads_and_sets_variables_in_its_context(self, runner, inside):
        for found, left in (("inside", "further in"), ("further in", "home")):
            moves = in_context(self.moves(left), inside)
            awaited = Call(TestThen.awaited, moves, mode=Mode.ASYNC)
            assert runner.drive(steps_of(awaited)) == found
            assert (inside[self.place], self.place.get()) == (left, "outside")

    def test_awaits_other_awaitables(self, inside):
        async def main():
            future = asyncio.get_running_loop().create_future()
            future.set_result(1)
            return await in_context(future, inside)

        assert asyncio.run(main()) == 1

    @pytest.fixture
    def seen(self):
        return []

    async def waits(self, seen, seconds):
        try:
            await asyncio.sleep(seconds)
        finally:
            seen.append(self.place.get())

    def test_is_cancelled_in_its_context(self, inside, seen):
        async def main():
            waiting = in_context(self.waits(seen, 30), inside)
            task = asyncio.ensure_future(TestThen.awaited(waiting))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert seen == ["inside"]

    def test_is_closed_in_its_context(self, inside, seen):
        waiting = in_context(self.waits(seen, 0), inside)
        waiting.send(None)
        waiting.close()
        assert seen == ["inside"]
