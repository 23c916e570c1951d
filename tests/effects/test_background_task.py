"""A task that runs next to the body of an ``async with``."""

import asyncio

import anyio
import pytest

from treadle.effects import background_task

LONG = 30


class TestBackgroundTask:
    def test_runs_next_to_the_body_and_ends_with_it(self, async_runner):
        seen = []

        async def background():
            try:
                seen.append("began")
                begun.set()
                await anyio.sleep(LONG)
            finally:
                seen.append("ended")

        async def main():
            nonlocal begun
            begun = anyio.Event()
            async with background_task(background):
                await begun.wait()
                seen.append("body")

        begun = None
        anyio.run(main, backend=async_runner.name)
        assert seen == ["began", "body", "ended"]

    @pytest.mark.parametrize("whose", ["body", "task"])
    def test_raises_an_error_of_the_body_or_the_task_without_a_group(self, async_runner, whose):
        error = ValueError(whose)

        async def background():
            if whose == "task":
                raise error
            await anyio.sleep(LONG)

        async def main():
            async with background_task(background):
                if whose == "body":
                    raise error
                await anyio.sleep(LONG)

        with pytest.raises(ValueError, match=whose) as caught:
            anyio.run(main, backend=async_runner.name)
        assert caught.value is error

    @pytest.mark.parametrize("whose", ["body", "task"])
    def test_raises_a_group_of_the_body_or_the_task_whole(self, async_runner, whose):
        group = ExceptionGroup("custom", [ValueError("a"), TypeError("b")])

        async def background():
            if whose == "task":
                raise group
            await anyio.sleep(LONG)

        async def main():
            async with background_task(background):
                if whose == "body":
                    raise group
                await anyio.sleep(LONG)

        with pytest.raises(ExceptionGroup) as caught:
            anyio.run(main, backend=async_runner.name)
        assert (caught.value.message, caught.value.exceptions) == (group.message, group.exceptions)

    def test_keeps_a_cancellation_although_the_task_fails_at_the_same_time(self):
        async def background():
            task.cancel()
            raise ValueError("first")

        async def main():
            nonlocal task
            task = asyncio.current_task()
            async with background_task(background):
                await anyio.sleep(LONG)

        task = None
        with pytest.raises(asyncio.CancelledError) as caught:
            asyncio.run(main())
        assert str(caught.value.__cause__) == "first"
