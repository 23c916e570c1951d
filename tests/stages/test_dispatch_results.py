"""`dispatch_tools` answers duplicates, and adds the results of calls that ran to the cache."""

import pytest

from treadle.messages import ToolCall, ToolResult
from treadle.results import Err
from treadle.stages import (
    dispatch_tools,
)
from treadle.tools import Plan, Repeats, Tool, tool

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
            "duplicate_in_batch",
            (
                "Not run twice: this response has an identical call. "
                "If you need it twice, call it again in your next response. Its result:\nt1 done"
            ),
        )
        assert not ctx.tool_results["c2"].is_error
        assert ctx.tool_calls_count == 1

    def test_where_the_next_response_could_not_repeat_it_the_answer_does_not_say_so(
        self, context, through, noting
    ):
        calls = [("t", {"n": 1}), ("t", {"n": 1})]
        ctx = through(context(*calls, tools=[noting.tool("t", dedupe="strict")]), *STAGES)
        assert result_of(ctx, "c2")[1] == (
            "Not run twice: this response has an identical call. "
            "Only a tool declared volatile=True would run twice. Its result:\nt1 done"
        )

    def test_a_failure_is_the_result_of_both(self, context, through):
        ctx = context(("t", {}), ("t", {}), tools=[Tool("t", fn=lambda: Err("no"))])
        ctx = through(ctx, *STAGES)
        assert [ctx.tool_results[key].is_error for key in ("c1", "c2")] == [True, True]
        assert result_of(ctx, "c2")[1].endswith("Its result:\nError: no")

    def test_a_duplicate_of_a_call_that_did_not_run_is_skipped(self, context, through):
        """A custom stage may have removed it from the batches."""
        calls = [ToolCall(f"c{place}", "t", "{}", {"n": 1}) for place in (1, 2, 9)]
        plan = Plan(((calls[2],),), duplicates={"c2": "c1"})
        ctx = context(tools=[Tool("t", fn=lambda n: n)], plan=plan, tool_calls=tuple(calls))
        result = through(ctx, dispatch_tools).tool_results["c2"]
        assert result == ToolResult("c2", "Not run: it was not planned.", True, "not_planned")


class TestCache:
    """The results of calls that ran are cached."""

    @pytest.mark.parametrize(
        ("options", "last"),
        [({"parallel_safe": False}, "done"), ({}, "no_new_evidence")],
        ids=["a tool that runs alone", "any other"],
    )
    def test_after_a_tool_that_runs_alone_a_repeated_call_is_not_suppressed(
        self, context, through, options, last
    ):
        """append, read, append, read: the second read must not be suppressed."""
        repeats, items = Repeats(), []
        append = tool(name="append", **options)(lambda: items.append(1))
        read = tool(name="read", dedupe="strict")(lambda: len(items))
        for iteration, name in enumerate(["append", "read", "append", "read"], 1):
            ctx = context((name, {}), tools=[append, read], repeats=repeats, iteration=iteration)
            ctx = through(ctx, *STAGES)
        assert ctx.tool_results["c1"].status == last
