"""The plan is run: batch after batch, results in order, and a failed call does not affect its siblings."""

import dataclasses
import threading

import anyio
import pytest

from treadle.effects import drive, drive_sync
from treadle.limits import Budget, Limits
from treadle.messages import ToolCall, ToolResult
from treadle.results import Err
from treadle.run_state import RunNodeStatus
from treadle.stages import dispatch_tools, plan_calls
from treadle.tools import Plan, Repeats, Tool, ToolCallTable, tool

from .dispatching import IN_STEP, PLANNED, STAGES, broken, double


def contents(ctx):
    return [ctx.tool_results[call.id].content for call in ctx.tool_calls]


def test_an_empty_batch_of_a_custom_plan_is_skipped(context, through):
    ctx = through(context(("double", {"n": 1}), tools=[double]), *PLANNED[:2])
    ctx = through(ctx.replace(plan=Plan(((), ctx.tool_calls, ()))), dispatch_tools)
    assert contents(ctx) == ["2"]


def test_every_call_has_a_result_and_a_failure_does_not_affect_the_others(context, through):
    ctx = through(
        context(
            ("double", {"n": 1}),
            ("broken", {"n": 2}),
            ("nope", {}),
            ("double", {"n": 4}),
            tools=[double, broken],
        ),
        *STAGES,
    )
    texts = contents(ctx)
    assert (texts[0], texts[1], texts[3]) == ("2", "Error: ValueError: 2", "8")
    assert [ctx.tool_results[c.id].is_error for c in ctx.tool_calls] == [False, True, True, False]
    assert ctx.tool_calls_count == 3


def test_batches_run_one_after_another(context, through):
    active, most = [], []

    def note(n):
        active.append(n)
        most.append(tuple(active))
        active.remove(n)

    tools = [Tool("w", fn=note, parallel_safe=False)]
    calls = [("w", {"n": n}) for n in range(3)]
    ctx = through(context(*calls, tools=tools), *IN_STEP)
    assert most == [(0,), (1,), (2,)]
    assert ctx.tool_calls_count == 3


def test_no_more_calls_run_at_the_same_time_than_the_limit(context, through):
    lock, active, most = threading.Lock(), 0, 0
    full = threading.Event()

    @tool
    def work(n: int):
        nonlocal active, most
        with lock:
            active += 1
            most = max(most, active)
            if active == 2:
                full.set()
        assert full.wait(30)
        with lock:
            active -= 1

    calls = [("work", {"n": n}) for n in range(6)]
    ctx = context(*calls, tools=[work])
    ctx = through(ctx, *STAGES[:3])  # planned for eight at once
    budget = Budget(Limits(max_parallel_calls=2))
    ctx = ctx.evolve(run=dataclasses.replace(ctx.run, budget=budget))
    ctx = through(ctx, dispatch_tools)
    assert most == 2
    assert set(contents(ctx)) == {"(no output)"}


def test_the_run_state_has_a_node_for_each_call_that_ran_in_order(context, through):
    ctx = through(
        context(("double", {"n": 1}), ("nope", {}), ("broken", {"n": 2}), tools=[double, broken]),
        *STAGES,
    )
    nodes = ctx.state.current_node.tool_calls
    assert [(n.name, n.group_id, n.kind) for n in nodes] == [
        ("double", "c1", "tool"),
        ("broken", "c3", "tool"),
    ]
    assert [n.status for n in nodes] == [RunNodeStatus.SUCCESS, RunNodeStatus.FAILED]
    assert all(n.duration >= 0 and n.agent_name == "bot" for n in nodes)


def test_cancelled_calls_and_the_rest_of_the_plan_are_answered_as_cancelled(context):
    """`cancel_all` while the first batch runs: the second is never started."""
    ran = []

    async def stop_all():
        ctx.run.in_flight.cancel_all()
        await anyio.sleep(10)

    tools = [
        Tool("stop", fn=stop_all, parallel_safe=False),
        Tool("after", fn=lambda: ran.append(1), parallel_safe=False),
    ]
    ctx = context(tools=tools, in_flight=ToolCallTable(can_cancel=True))
    ctx = ctx.replace(
        tool_calls=(ToolCall("a", "stop", "{}", {}, "1"), ToolCall("b", "after", "{}", {}, "2")),
    )
    ctx = drive_sync(plan_calls(sequential="in_step")(ctx))
    done = anyio.run(drive, dispatch_tools(ctx))
    assert [done.tool_results[i].status for i in "ab"] == ["cancelled", "cancelled"]
    assert ran == []


# `dispatch_tools` answers duplicates, and adds the results of calls that ran to the cache.


def result_of(ctx, call_id):
    result = ctx.tool_results[call_id]
    return result.status, result.content


class TestDuplicates:
    """The same call twice in one batch runs once, and both are answered."""

    @pytest.mark.parametrize(
        ("options", "more"),
        [
            ({}, "If you need it twice, call it again in your next response."),
            # The next response could not repeat it.
            ({"dedupe": "strict"}, "Only a tool declared volatile=True would run twice."),
        ],
    )
    def test_the_second_shows_the_result_of_the_first(
        self, context, through, noting, options, more
    ):
        calls = [("t", {"n": 1}), ("t", {"n": 1})]
        ctx = through(context(*calls, tools=[noting.tool("t", **options)]), *STAGES)
        assert noting.ran == ["t1"]
        assert result_of(ctx, "c1") == ("done", "t1 done")
        text = f"Not run twice: this response has an identical call. {more} Its result:\nt1 done"
        assert result_of(ctx, "c2") == ("duplicate_in_batch", text)
        assert not ctx.tool_results["c2"].is_error
        assert ctx.tool_calls_count == 1

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
