"""What `dispatch_tools` does with results: duplicates are answered, and what ran is noted in the cache."""

import pytest

from treadle.messages import ToolCall, ToolResult
from treadle.results import Err
from treadle.stages import (
    dispatch_tools,
)
from treadle.tools import InFlight, Plan, ResultCache, Tool, tool

from .dispatching import STAGES


def result_of(ctx, call_id):
    result = ctx.tool_results[call_id]
    return result.status, result.content


class TestDuplicates:
    """The same call twice in one batch runs once, and both are answered."""

    def test_the_second_shows_the_result_of_the_first(self, context, through, noting):
        calls = [("t", {"n": 1}), ("t", {"n": 1})]
        ctx = through(context(*calls, tools=[noting.tool("t")]), *STAGES)
        assert noting.ran == ["t1"]
        assert result_of(ctx, "c1") == ("done", "t1 done")
        assert result_of(ctx, "c2") == (
            "suppressed",
            "Not run twice: the same call is next to it. Its result:\nt1 done",
        )
        assert not ctx.tool_results["c2"].is_error
        assert ctx.tool_calls_count == 1

    def test_a_failure_is_one_for_both(self, context, through):
        ctx = context(("t", {}), ("t", {}), tools=[Tool("t", fn=lambda: Err("no"))])
        ctx = through(ctx, *STAGES)
        assert [ctx.tool_results[key].is_error for key in ("c1", "c2")] == [True, True]
        assert result_of(ctx, "c2")[1].endswith("Its result:\nError: no")

    def test_a_long_result_is_shown_in_part(self, context, through):
        ctx = context(("t", {}), ("t", {}), tools=[Tool("t", fn=lambda: "x" * 6_000)])
        assert "[cut: 0 more lines, 1,000 more bytes]" in result_of(through(ctx, *STAGES), "c2")[1]

    def test_one_whose_first_was_not_run_says_so(self, context, through):
        """A custom stage may have taken it out of the batches."""
        plan = Plan(((ToolCall("c9", "t", "{}", {"n": 1}),),), duplicates={"c2": "c1"})
        ctx = context(tools=[Tool("t", fn=lambda n: n)], plan=plan)
        result = through(ctx, dispatch_tools).tool_results["c2"]
        text = "Not run: the same call next to it was not."
        assert result == ToolResult("c2", text, True, "skipped")


class TestWhatIsLearned:
    """What ran is evidence; the same call is known until something new comes."""

    def learned(self, ctx, call_id):
        call = next(call for call in ctx.tool_calls if call.id == call_id)
        return ctx.run.result_cache.latest(call.fingerprint)

    def test_every_call_that_ran(self, context, through, noting):
        calls = [("t", {"n": 1}), ("t", {"n": 2})]
        ctx = through(context(*calls, tools=[noting.tool("t")], iteration=4), *STAGES)
        assert self.learned(ctx, "c1") == (1, 4, "t1 done", False)
        assert self.learned(ctx, "c2") == (1, 4, "t2 done", False)

    def test_failures_too_as_such(self, context, through):
        ctx = through(context(("t", {}), tools=[Tool("t", fn=lambda: 1 / 0)]), *STAGES)
        assert self.learned(ctx, "c1").is_error
        assert ctx.run.result_cache.version == 1

    def test_nothing_of_calls_that_did_not_run(self, context, through, noting):
        tools = [noting.tool("t"), noting.tool("w", parallel_safe=False)]
        ctx = through(context(("?", {}), ("t", {"n": 1}), ("w", {"n": 1}), tools=tools), *STAGES)
        assert self.learned(ctx, "c1") is None
        assert self.learned(ctx, "c2").content == "t1 done"
        assert self.learned(ctx, "c3") is None

    def test_nothing_of_calls_that_were_cancelled(self, context, through):
        in_flight = InFlight(can_cancel=True)
        stopping = Tool("t", fn=in_flight.cancel_all)
        ctx = through(context(("t", {}), tools=[stopping], in_flight=in_flight), *STAGES)
        assert ctx.tool_results["c1"].status == "cancelled"
        assert self.learned(ctx, "c1") is None

    @pytest.mark.parametrize(
        ("options", "last"),
        [({"parallel_safe": False}, "done"), ({}, "suppressed")],
        ids=["a tool that runs alone", "any other"],
    )
    def test_what_runs_alone_may_change_what_others_bring_whatever_it_says(
        self, context, through, options, last
    ):
        """append, read, append, read: the second read must not be answered as nothing new."""
        cache, items = ResultCache(), []
        append = tool(name="append", **options)(lambda: items.append(1))
        read = tool(name="read")(lambda: len(items))
        for iteration, name in enumerate(["append", "read", "append", "read"], 1):
            ctx = context((name, {}), tools=[append, read], result_cache=cache, iteration=iteration)
            ctx = through(ctx, *STAGES)
        assert ctx.tool_results["c1"].status == last

    def test_one_that_failed_has_changed_nothing(self, context, through):
        cache = ResultCache()
        broken = tool(name="w", parallel_safe=False)(lambda: Err("no"))
        for _ in range(3):
            through(context(("w", {}), tools=[broken], result_cache=cache), *STAGES)
        assert cache.version == 1
