"""Parity with ALF, the pipelines that LlmCore is built on."""

import functools
import threading
import time

import anyio
import pytest

from treadle.pipeline import (
    Pipeline,
    PipelineError,
    StageError,
    done,
    embed,
    goto,
    goto_point,
    stage,
    switch,
    tbd,
)
from treadle.pipeline.streams import (
    NotOneItemError,
    StreamPipeline,
    composer,
    dead_end,
    plug_with,
    replicated,
)


def add_one(n):
    return n + 1


def double(n):
    return 2 * n


@pytest.fixture
def through(perform):
    """Run an item through a pipeline, under the driver of the test."""
    return lambda pipeline, item: perform(pipeline.steps(item))


@pytest.fixture
def all_through(perform):
    """As `through`, with all results."""
    return lambda pipeline, item: perform(pipeline.steps_all(item))


@pytest.fixture
def streamed(driver):
    """Stream items through a pipeline; return the results."""

    async def read(pipeline, items, options):
        async with pipeline.stream(items, **options) as out:
            return [item async for item in out]

    def streamed(pipeline, items, **options):
        if driver == "sync":
            return list(pipeline.stream_sync(items, **options))
        return anyio.run(read, pipeline, items, options, backend=driver)

    return streamed


def test_stages_run_in_order_with_their_options(through):
    """A stage is a function from item to item, with options."""

    def scale(n, by):
        return n * by

    assert through(Pipeline(add_one, stage(scale, by=10), double), 1) == 40
    assert through(Pipeline(stage(scale, by=10), add_one), 1) == 11


def test_switch_sends_each_item_through_its_branch(through):
    """The function names the branch; a key that has none is an error that names the keys."""
    branches = {"even": [double, add_one], "odd": []}
    pipeline = Pipeline(
        switch(lambda n: "odd" if n % 2 else "even" if n else "zero", branches), stage(str)
    )
    assert [through(pipeline, n) for n in (2, 3)] == ["5", "3"]
    with pytest.raises(StageError, match=r"no branch for 'zero'.*'even', 'odd'"):
        through(pipeline, 0)


def test_goto_jumps_to_its_point_until_the_condition_fails(through):
    """Back to a point is a loop; forward skips what is between."""
    loop = Pipeline(goto_point("again"), double, goto("again", lambda n: n < 100))
    skip = Pipeline(goto("end", lambda n: n > 9), add_one, goto_point("end"), double)
    assert through(loop, 3) == 192
    assert [through(skip, n) for n in (1, 10)] == [4, 20]


def test_done_lets_an_item_leave_early(through):
    """An item that meets the condition is the result; the others continue."""
    pipeline = Pipeline(add_one, done(lambda n: n > 5), double)
    assert [through(pipeline, n) for n in (1, 5)] == [4, 6]


def test_dead_end_drops_the_item(through, all_through):
    """The pipeline returns no result for it; `run` raises an error."""
    pipeline = StreamPipeline(switch(lambda n: n > 5, {True: [dead_end()], False: []}), double)
    assert [all_through(pipeline, n) for n in (1, 6)] == [[2], []]
    with pytest.raises(NotOneItemError, match="0 items"):
        through(pipeline, 6)


def test_composer_returns_none_one_or_many_items(all_through):
    """The items that it returns continue from there, in order."""
    pipeline = StreamPipeline(composer(lambda n, memo: (range(n), memo)), add_one)
    assert [all_through(pipeline, n) for n in (0, 1, 3)] == [[], [1], [1, 2, 3]]


def pairs(n, memo):
    """Keep every other item as the memo, and pair it with the next one."""
    return ([(memo, n)], None) if memo is not None else ([], n)


def test_composer_passes_its_memo_from_item_to_item_of_a_stream(streamed):
    """The memo is passed from one item to the next."""
    assert streamed(StreamPipeline(composer(pairs)), [1, 2, 3, 4]) == [(1, 2), (3, 4)]


def test_composer_memory_does_not_leak_from_one_run_to_the_next(all_through, streamed):
    """Each run begins with the first memo. (In ALF it leaks between plain calls.)"""
    pipeline = StreamPipeline(composer(pairs))
    assert [all_through(pipeline, n) for n in (1, 2)] == [[], []]
    assert streamed(pipeline, [3]) == []
    assert streamed(pipeline, [4, 5]) == [(4, 5)]


def test_plug_with_runs_components_on_an_adapted_item(through):
    """Plug makes the inner item; unplug combines its result with the original."""

    class Price:
        def plug(self, order):
            return order["price"]

        def unplug(self, price, order):
            return {**order, "price": price}

    pipeline = StreamPipeline(plug_with(Price(), [double, add_one]))
    assert through(pipeline, {"item": "rope", "price": 3}) == {"item": "rope", "price": 7}


def test_embed_inserts_the_components_of_another_pipeline(through):
    """ALF's `from`: each embedding has a namespace, and its `done` ends only the embedded part."""
    inner = Pipeline(add_one, done(lambda n: n > 5), double)
    pipeline = Pipeline(embed(inner, "first"), embed(inner, "second"), stage(str))
    assert [through(pipeline, n) for n in (1, 7)] == ["10", "9"]
    broken = Pipeline(embed(inner, "first"))
    with pytest.raises(StageError) as caught:
        through(broken, "text")
    assert caught.value.stage == "first.add_one"


def test_tbd_is_a_placeholder(through):
    """The item passes through, and diagrams show that something is missing."""
    pipeline = Pipeline(add_one, tbd("check prices"), double)
    assert through(pipeline, 1) == 4
    assert "check prices (to be done)" in pipeline.diagram()


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ([add_one, add_one], "'add_one'"),
        ([goto("nowhere", bool)], r"goto_point\('nowhere'\), which does not exist"),
        ([goto_point("here"), goto_point("here")], "two goto_points named 'here'"),
        ([stage(add_one, requires=["cost_of"])], "'add_one' requires cost_of"),
        ([add_one, 7], "not int"),
        (
            [stage(lambda n, by: n, name="scale")],
            "'scale' cannot be called with the item as its only argument",
        ),
    ],
)
def test_an_invalid_pipeline_is_refused_when_it_is_defined(components, message):
    """The error names the component."""
    with pytest.raises(PipelineError, match=message):
        Pipeline(components)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: stage(add_one, by=2), "'add_one' has no option 'by'"),
        (lambda: replicated(add_one, 0), "count must be at least 1"),
        (lambda: switch(add_one, {}), "no branches"),
        (lambda: plug_with(object(), add_one), "two functions"),
    ],
)
def test_an_invalid_component_is_refused_when_it_is_made(make, message):
    """Options, counts, branches and adapters are checked at once."""
    with pytest.raises(PipelineError, match=message):
        make()


def test_a_failing_stage_skips_the_rest_and_is_reported(through):
    """The error has the stage, the item that entered it, the cause and the trace."""
    ran = []

    def fail(n):
        raise ValueError(f"bad {n}")

    pipeline = Pipeline(add_one, double, fail, ran.append)
    with pytest.raises(StageError) as caught:
        through(pipeline, 1)
    error = caught.value
    assert (error.stage, error.item, error.trace) == ("fail", 4, ("add_one", "double", "fail"))
    assert isinstance(error.cause, ValueError)
    assert ran == []


def test_sync_and_async_return_the_same_results():
    """`run` on asyncio and trio, and `run_sync`, with async stages too, agree on every item."""

    async def halve(n):
        await anyio.sleep(0)
        return n // 2

    pipeline = Pipeline(
        goto_point("again"),
        switch(lambda n: n % 2 == 0, {True: [halve], False: [lambda n: 3 * n + 1]}),
        done(lambda n: n == 1),
        goto("again", lambda n: n < 10_000),
    )
    items = range(2, 12)
    expected = [pipeline.run_sync(n) for n in items]
    assert expected == [1] * 10
    for backend in ("asyncio", "trio"):
        assert [anyio.run(pipeline.run, n, backend=backend) for n in items] == expected


@pytest.mark.parametrize("count", [1, 3])
def test_count_limits_the_items_in_a_stage(streamed, count):
    """A stage with a count of three works on three items. (In ALF's sync mode the count is ignored.)"""
    all_here = threading.Barrier(count, timeout=5)
    lock, inside, most = threading.Lock(), [], []

    def work(n):
        with lock:
            inside.append(n)
            most.append(len(inside))
        all_here.wait()
        time.sleep(0.002)
        with lock:
            inside.remove(n)
        return n

    pipeline = StreamPipeline(replicated(work, count))
    assert streamed(pipeline, range(6), concurrency=6) == list(range(6))
    assert max(most) == count


def test_stream_is_lazy_and_keeps_the_order(streamed):
    """No more items are drawn than the concurrency, and results come in the order of the items."""
    drawn, read = [], []

    def source():
        for n in range(50):
            drawn.append(n)
            assert len(drawn) - len(read) <= 4
            yield n

    async def slow_if_even(n):
        await anyio.sleep(0.003 if n % 2 == 0 else 0)
        read.append(n)
        return n

    assert streamed(StreamPipeline(slow_if_even), source(), concurrency=4) == list(range(50))


def test_observers_see_the_start_stop_and_exception_of_stages(perform):
    """Each start is followed by a stop, or by an exception, with the duration."""

    def fail(n):
        raise ValueError(n)

    async def nap(n):
        await anyio.sleep(0.01)
        return n

    events = []
    pipeline = Pipeline(nap, fail, on_stage=[events.append])
    with pytest.raises(StageError):
        perform(pipeline.steps(1))
    assert [(event.kind, event.stage) for event in events] == [
        ("start", "nap"),
        ("stop", "nap"),
        ("start", "fail"),
        ("exception", "fail"),
    ]
    assert events[1].duration >= 0.008
    assert (events[0].duration, type(events[3].error)) == (None, ValueError)


def test_the_source_diagram_shows_every_component():
    """A Mermaid flowchart and an outline show all components, also nested ones."""
    inner = StreamPipeline(add_one)
    pipeline = StreamPipeline(
        goto_point("top"),
        switch(abs, {1: [double], 2: [dead_end("drop")]}),
        embed(inner, "inner"),
        tbd("later"),
        goto("top", functools.partial(bool)),
    )
    for kind in ("mermaid", "text"):
        drawn = pipeline.diagram(kind)
        for part in ("top", "abs", "double", "drop", "inner", "add_one", "later (to be done)"):
            assert part in drawn
    assert pipeline.diagram().startswith("flowchart TD")
