"""The clock of a run does not advance while it is paused."""

import anyio

from treadle import (
    DeadlineExceeded,
    Ok,
    Paused,
    ToolContext,
    approve,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, answers, stored


def resumed(loop, paused, model, decisions=None, **options):
    """Resume from a stored state, with every pending call approved."""
    decisions = decisions or {one.id: approve for one in paused.pending}
    return SYNC.resume(loop, stored(paused), decisions, model, **options)


class TestClock:
    """The time before a pause counts, that of the pause does not."""

    def paused_after(self, clock, recorded, seconds, *script, **options):
        @tool(volatile=True)
        def work():
            clock.now += seconds

        recorded.tools.append(work)
        loop = recorded.loop(middleware=[clock.middleware], max_seconds=10, **options)
        batch = calls(call("work"), call("wipe", "w", path="/"))
        model = ScriptedLLM(batch, *script, "done")
        return loop, model, SYNC.run(loop, model)

    def test_time_before_and_after_are_added_up(self, clock, recorded):
        @tool
        async def hang():
            clock.limit.strike()
            await anyio.sleep(30)

        recorded.tools.append(hang)
        loop, model, paused = self.paused_after(clock, recorded, 4, calls(call("hang", "h")))
        clock.now += 10_000_000
        result = resumed(loop, paused, model, max_seconds=4.125)
        assert result.reason == DeadlineExceeded(4.125)
        assert clock.bounds == [10, 0.125]
        assert (result.iterations, answers(result.messages)["h"][:10]) == (2, "Cancelled:")

    def test_no_pause_counts_towards_the_time(self, clock, recorded):
        later = [calls(call("wipe", f"w{n}", path=f"/{n}")) for n in range(3)]
        loop, model, paused = self.paused_after(clock, recorded, 9, *later)
        while isinstance(paused, Paused):
            clock.now += 3600
            paused = resumed(loop, paused, model)
        assert isinstance(paused, Ok)
        assert clock.bounds == [10, 1, 1, 1, 1]

    def test_a_tool_sees_the_remaining_time(self, clock, recorded):
        seen = []

        @tool(requires_approval=True)
        def look(context: ToolContext):
            seen.append(context.remaining.seconds)

        recorded.tools.append(look)
        loop, model, paused = self.paused_after(clock, recorded, 4, calls(call("look", "l")))
        clock.now += 100
        paused = resumed(loop, paused, model)
        clock.now += 100
        resumed(loop, paused, model)
        assert seen == [6]

    def test_a_longer_time_limit_can_be_given(self, clock, recorded):
        loop, model, paused = self.paused_after(clock, recorded, 9, calls(call("work", "x")))
        assert isinstance(resumed(loop, paused, model, max_seconds=20), Ok)
        assert clock.bounds == [10, 11]

    def test_a_resumed_run_keeps_the_start_times_of_its_nodes(self, clock, recorded):
        loop, model, paused = self.paused_after(clock, recorded, 4)
        clock.now += 96
        result = resumed(loop, paused, model)
        first = result.run.nodes[0]
        assert (first.started_at, first.ended_at) == (1000, 1100)
        assert [node.duration for node in first.tool_calls] == [4, 0]
