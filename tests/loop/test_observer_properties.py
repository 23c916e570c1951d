"""Whatever observers do, a run ends alike on every driver, with a valid history that has its work."""

import asyncio
from collections import Counter

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import Loop, RunHandle, tool
from treadle.events import (
    CallsPlanned,
    IterationFinished,
    IterationStarted,
    ModelRequested,
    ModelResponded,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import Way

WAYS = [Way("sync"), Way("asyncio"), Way("trio")]
ENDINGS = {"cancel", "cancel and wait"}
ACTS = st.sampled_from(["sleep", "raise", "raise CancelledError", "steer", *sorted(ENDINGS)])
BOUNDED = [
    IterationStarted, ModelRequested, TextDelta, ModelResponded, CallsPlanned, ToolStarted, IterationFinished,
]  # fmt: skip
# Listeners of these are not cancelled, or have the time of a cleanup.
OTHERS = [RunStarted, ToolFinished, RunFinished]
PLOTS = st.fixed_dictionaries(
    {},
    optional={kind: st.tuples(st.integers(1, 2), ACTS) for kind in BOUNDED}
    | {
        kind: st.tuples(st.just(1), st.sampled_from(["sleep", "raise", "steer"])) for kind in OTHERS
    },
)


class Acting:
    """Observers that do something at the first or second event of some kinds, and the handle of their run."""

    def __init__(self, plot):
        self.plot, self.handle, self.seen = plot, RunHandle(), Counter()

    def act(self, event):
        kind = type(event)
        self.seen[kind] += 1
        count, act = self.plot.get(kind, (0, None))
        if self.seen[kind] != count:
            return None
        if act == "raise":
            raise ValueError("an observer failed")
        if act == "raise CancelledError":
            raise asyncio.CancelledError
        if act == "steer":
            self.handle.steer("More.")
        if act in ENDINGS:
            self.handle.cancel()
        return act

    async def act_async(self, event):
        act = self.act(event)
        if act == "sleep":
            await anyio.sleep(0.001)
        if act == "cancel and wait":
            await anyio.sleep_forever()


def played(way, plot, *, is_async, streams, counts):
    """Run a script; return the result, the events, and the numbers that the tools returned."""
    done, acting = [], Acting(plot)

    async def work(n: int):
        await anyio.sleep(0)
        done.append(n)
        return n

    def sync_work(n: int):
        done.append(n)
        return n

    numbers = iter(range(100))
    batches = [
        [call("work", f"c{n}", n=n) for n, _ in zip(numbers, range(count), strict=False)]
        for count in counts
    ]
    model = script = ScriptedLLM(*(calls(*batch) for batch in batches), *["Done."] * 20)
    if streams:

        def model(messages):
            response = script(messages)
            return iter(response) if isinstance(response, str) else response

    result = way.run(
        Loop(tools=[tool(work if is_async else sync_work, name="work")], max_seconds=60),
        model,
        handle=acting.handle,
        on_event=acting.act_async if is_async else acting.act,
    )
    return result, acting.seen, sorted(done)


@settings(max_examples=40, deadline=None)
@given(
    plot=PLOTS,
    is_async=st.booleans(),
    streams=st.booleans(),
    counts=st.lists(st.integers(1, 3), max_size=2),
)
def test_observers_of_any_behaviour(plot, is_async, streams, counts):
    acts = {act for _, act in plot.values()}
    # On trio, this exception is an interrupt.
    ways = WAYS[:2] if "raise CancelledError" in acts else WAYS
    played_by = [
        played(way, plot, is_async=is_async, streams=streams, counts=counts) for way in ways
    ]
    assert len({result.stop_reason for result, _, _ in played_by}) == 1
    if acts & ENDINGS:  # a call that is running may be cancelled or not
        return
    result, _, done = played_by[0]
    answers = [m["content"] for m in result.messages if m["role"] == "tool"]
    assert sorted(map(int, answers)) == done
    assert all(one[0].messages == result.messages for one in played_by)
    assert all(one[1:] == played_by[0][1:] for one in played_by)
