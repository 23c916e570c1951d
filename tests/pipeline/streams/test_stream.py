"""Streams: laziness, order, concurrency, backpressure."""

import asyncio
import contextlib
import gc
import threading
from functools import partial

import anyio
import pytest

from treadle.effects import Call, CallCancelled, Signal, Sleep, Wait
from treadle.pipeline import StageError, goto, goto_point, switch
from treadle.pipeline.streams import StreamPipeline, composer, dead_end, replicated


def double(item):
    return item * 2


def slow_when_small(item):
    """The first items take longest, so that they end in reverse."""
    yield Sleep(0.004 * (5 - item))
    return item


def fail_at_three(item):
    if item == 3:
        raise ValueError(item)
    return item


class Source:
    """Counts the items that are drawn from it."""

    def __init__(self, count):
        self.drawn = 0
        self.is_closed = False
        self._count = count

    def __iter__(self):
        try:
            while self.drawn < self._count:
                self.drawn += 1
                yield self.drawn - 1
        finally:
            self.is_closed = True

    async def async_items(self):
        try:
            while self.drawn < self._count:
                self.drawn += 1
                await anyio.sleep(0)
                yield self.drawn - 1
        finally:
            self.is_closed = True


@pytest.mark.parametrize("concurrency", [1, 2, 7])
def test_results_come_in_the_order_of_the_items(runner, concurrency):
    pipeline = StreamPipeline(slow_when_small, double)
    assert runner.stream(pipeline, range(5), concurrency=concurrency) == [0, 2, 4, 6, 8]


def test_unordered_results_come_as_they_complete(runner):
    last_is_in = Signal()

    def first_waits_for_last(item):
        if item == 0:
            yield Wait(last_is_in)
        if item == 4:
            last_is_in.set()
        return item

    out = runner.stream(
        StreamPipeline(first_waits_for_last), range(5), concurrency=5, ordered=False
    )
    assert sorted(out) == [0, 1, 2, 3, 4]
    assert out.index(4) < out.index(0)


def test_an_empty_source_gives_no_results(runner):
    assert runner.stream(StreamPipeline(double), []) == []


def test_parts_of_composers_are_results_and_dropped_items_are_not(runner):
    pipeline = StreamPipeline(
        switch(lambda item: item % 2 == 0, {True: [], False: dead_end()}),
        composer(lambda item, memo: ([item] * item, memo)),
    )
    out = runner.stream(pipeline, range(5), concurrency=3)
    assert out == [2, 2, 4, 4, 4, 4]


@pytest.mark.parametrize("concurrency", [0, -1])
def test_a_concurrency_below_one_is_an_error_at_once(concurrency):
    for stream in (StreamPipeline().stream, StreamPipeline().stream_sync):
        with pytest.raises(ValueError, match="concurrency must be at least 1"):
            stream([], concurrency=concurrency)


class TestLaziness:
    def test_no_item_is_drawn_before_the_first_read(self):
        source = Source(10)
        stream = StreamPipeline(double).stream_sync(source, concurrency=3)
        assert source.drawn == 0
        stream.close()

    @pytest.mark.parametrize("concurrency", [1, 3])
    @pytest.mark.parametrize("take", [1, 4])
    def test_no_more_items_are_drawn_than_read_and_in_progress(self, runner, concurrency, take):
        source = Source(1000)
        out = runner.stream(StreamPipeline(double), source, take=take, concurrency=concurrency)
        assert out == [0, 2, 4, 6][:take]
        assert source.drawn <= take - 1 + concurrency

    def test_a_slow_reader_slows_down_the_source(self):
        source = Source(1000)

        async def main():
            async with StreamPipeline(double).stream(source, concurrency=2) as out:
                async for _ in out:
                    for _ in range(20):
                        await asyncio.sleep(0)
                    break
                return source.drawn

        assert asyncio.run(main()) == 2


class TestConcurrency:
    def test_concurrency_is_the_number_of_items_in_progress(self, runner):
        running, most = set(), []

        def watch(item):
            running.add(item)
            most.append(len(running))
            yield Sleep(0.003)
            running.remove(item)
            return item

        assert runner.stream(StreamPipeline(watch), range(12), concurrency=4) == list(range(12))
        assert max(most) == 4

    @pytest.mark.parametrize("is_async", [False, True])
    def test_count_limits_the_items_in_a_stage(self, runner, is_async):
        running, most = set(), []

        def enter(item):
            running.add(item)
            most.append(len(running))

        def in_steps(item):
            enter(item)
            yield Sleep(0.003)
            running.remove(item)
            return item

        async def in_async(item):
            enter(item)
            await anyio.sleep(0.05)
            running.remove(item)
            return item

        narrow = replicated(in_async if is_async else in_steps, count=2)
        pipeline = StreamPipeline(double, narrow)
        assert runner.stream(pipeline, range(6), concurrency=6) == list(range(0, 12, 2))
        assert max(most) == 2

    @pytest.mark.parametrize("observed", [False, True])
    def test_a_plain_stage_with_a_count_runs_in_that_many_threads(self, runner, observed):
        meeting = threading.Barrier(3, timeout=5)

        @partial(replicated, count=3)
        def meet(item):
            meeting.wait()  # would never end if they did not run at the same time
            return item

        events = []
        pipeline = StreamPipeline(meet, on_stage=[events.append] if observed else [])
        assert runner.stream(pipeline, range(6), concurrency=6) == list(range(6))
        assert len(events) == (12 if observed else 0)


class TestErrors:
    @pytest.mark.parametrize("concurrency", [1, 3, 9])
    def test_a_failing_item_raises_in_place_of_its_result(self, runner, concurrency):
        out = runner.stream(
            StreamPipeline(fail_at_three, double), range(9), concurrency=concurrency
        )
        *results, error = out
        assert results == [0, 2, 4]
        assert isinstance(error, StageError)
        assert (error.stage, error.item) == ("fail_at_three", 3)

    @pytest.mark.parametrize("concurrency", [1, 3, 9])
    @pytest.mark.parametrize("ordered", [True, False])
    def test_a_failing_source_raises_after_the_results_before_it(
        self, runner, concurrency, ordered
    ):
        def source():
            yield from (2, 1)
            raise KeyError("source")

        out = runner.stream(
            StreamPipeline(double), source(), concurrency=concurrency, ordered=ordered
        )
        error = out[-1]
        assert isinstance(error, KeyError)
        if ordered:
            assert out[:-1] == [4, 2]

    def test_a_source_that_is_not_iterable_is_a_type_error(self, runner):
        assert isinstance(runner.stream(StreamPipeline(double), 3)[-1], TypeError)

    def test_an_exception_of_the_reader_ends_the_stream_and_is_not_wrapped(self):
        async def main():
            async with StreamPipeline(slow_when_small).stream(range(9), concurrency=3) as out:
                async for _ in out:
                    raise LookupError

        with pytest.raises(LookupError):
            asyncio.run(main())


class TestLeavingEarly:
    @pytest.mark.parametrize("take", [0, 1])
    def test_cancels_the_items_in_progress_and_runs_their_cleanup(self, runner, take):
        seen = []

        def steps(item):
            try:
                yield Sleep(0.05 if item == 0 else 30)
                return item
            finally:
                if item:
                    yield Call(seen.append, item)

        out = runner.stream(StreamPipeline(steps), range(9), take=take, concurrency=3)
        assert out == [0][:take]
        assert set(seen) <= {1, 2, 3}
        if take:
            assert {1, 2} <= set(seen)

    def test_closes_an_async_source(self, async_runner):
        source = Source(9)
        assert async_runner.stream(StreamPipeline(double), source.async_items(), take=1) == [0]
        assert source.is_closed

    @pytest.mark.parametrize("stage", [double, fail_at_three])
    def test_lets_an_async_source_await_in_its_cleanup(self, async_runner, stage):
        closed = []

        async def source():
            try:
                for n in range(9):
                    yield n
            finally:
                await anyio.sleep(0)
                closed.append(True)

        take = 1 if stage is double else 9
        with contextlib.suppress(StageError):
            async_runner.stream(StreamPipeline(stage), source(), take=take)
        assert closed == [True]

    def test_a_source_that_raises_a_cancellation_itself_fails_the_stream(self):
        """The items before it are read first."""
        seen = []

        async def source():
            yield 1
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            yield await future

        async def main():
            async with StreamPipeline(double).stream(source()) as out:
                seen.append(await anext(out))
                await anext(out)

        with pytest.raises(CallCancelled):
            asyncio.run(main())
        assert seen == [2]

    def test_a_closed_stream_gives_no_more_results(self):
        async def main():
            async with StreamPipeline(double).stream(range(3)) as out:
                assert await anext(out) == 0
            with pytest.raises(StopAsyncIteration):
                await anext(out)

        asyncio.run(main())

    def test_a_sync_stream_may_be_abandoned(self):
        source = Source(9)
        stream = StreamPipeline(double).stream_sync(source, concurrency=2)
        assert next(stream) == 0
        del stream
        gc.collect()
        assert source.is_closed


class TestSources:
    @pytest.mark.parametrize("concurrency", [1, 4])
    def test_may_be_async(self, async_runner, concurrency):
        source = Source(5)
        items = source.async_items()
        out = async_runner.stream(StreamPipeline(double), items, concurrency=concurrency)
        assert out == [0, 2, 4, 6, 8]
        assert source.is_closed

    def test_that_are_async_are_a_type_error_without_an_event_loop(self):
        with pytest.raises(TypeError):
            next(StreamPipeline(double).stream_sync(Source(5).async_items()))

    def test_may_be_async_iterables_other_than_generators(self, async_runner):
        class Three:
            def __init__(self):
                self._left = 3

            def __aiter__(self):
                return self

            async def __anext__(self):
                if not self._left:
                    raise StopAsyncIteration
                self._left -= 1
                return self._left

        assert async_runner.stream(StreamPipeline(double), Three()) == [4, 2, 0]

    def test_that_are_async_may_fail(self, async_runner):
        async def source():
            yield 1
            raise KeyError("source")

        first, error = async_runner.stream(StreamPipeline(double), source(), concurrency=3)
        assert first == 2
        assert isinstance(error, KeyError)


class TestComposersInStreams:
    """A memo sees the items in their order, however long earlier stages take."""

    @staticmethod
    def collect(item, memo):
        return [(*memo, item)], (*memo, item)

    @pytest.mark.parametrize("concurrency", [1, 2, 5])
    def test_dropped_items_do_not_block_later_ones(self, runner, concurrency):
        pipeline = StreamPipeline(
            slow_when_small,
            switch(lambda item: item % 2, {1: dead_end(), 0: []}, name="odd"),
            composer(self.collect, memo=()),
        )
        assert runner.stream(pipeline, range(5), concurrency=concurrency) == [
            (0,),
            (0, 2),
            (0, 2, 4),
        ]

    @pytest.mark.parametrize("concurrency", [1, 2, 5])
    def test_the_parts_of_two_items_are_not_interleaved(self, runner, concurrency):
        def wait(part):
            yield Sleep(0.002 if part[0] == 0 else 0)
            return part

        pipeline = StreamPipeline(
            composer(lambda item, memo: ([(item, "a"), (item, "b")], memo), name="split"),
            wait,
            composer(lambda part, memo: ([part], [*memo, part]), memo=[], name="look"),
            composer(self.collect, memo=()),
        )
        out = runner.stream(pipeline, range(2), concurrency=concurrency)
        assert out[-1] == ((0, "a"), (0, "b"), (1, "a"), (1, "b"))

    @pytest.mark.parametrize("concurrency", [1, 3])
    def test_an_item_in_a_loop_has_the_composer_to_itself(self, runner, concurrency):
        seen = []

        def look(item, memo):
            name, passes = item
            seen.append(f"{name}{passes}{memo}")
            return [(name, passes + 1)], memo + 1

        pipeline = StreamPipeline(
            goto_point("again"),
            composer(look, memo=0),
            slow_loop,
            goto("again", lambda item: item[1] < 3),
        )
        items = [("a", 0), ("b", 0)]
        out = runner.stream(pipeline, items, concurrency=concurrency)
        assert out == [("a", 3), ("b", 3)]
        assert seen == ["a00", "a11", "a22", "b03", "b14", "b25"]

    @pytest.mark.parametrize("concurrency", [2, 5])
    def test_failed_items_do_not_block_later_ones(self, runner, concurrency):
        pipeline = StreamPipeline(fail_at_three, composer(self.collect, memo=()))
        out = runner.stream(pipeline, [3, 1, 2], concurrency=concurrency, ordered=False)
        assert any(isinstance(result, StageError) for result in out)


def slow_loop(item):
    yield Sleep(0.001)
    return item
