"""Calls that share a key never overlap: in one response, nested, and in concurrent runs."""

import threading

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.context import Context
from treadle.effects import Call, Parallel, Sleep, drive, drive_sync
from treadle.events import ToolFinished, ToolStarted
from treadle.messages import History, ToolCall, ToolResult
from treadle.run_state import RunNodeStatus
from treadle.stages import dispatch_tools, held_locks
from treadle.tools import Locks, Plan, Recipe, RecipeStep, Tool, tool

from .dispatching import PLANNED, Expanding


class Workshop:
    """A tool of steps that notes when it begins and ends, and lets others run in between."""

    def __init__(self):
        self.log, self.inside, self.overlaps = [], [], []

    def __call__(self, ctx, call):
        self.log.append(f"{call.id} begins")
        self.overlaps += [(other, call.id) for other in self.inside]
        self.inside.append(call.id)
        yield Sleep(0)
        yield Sleep(0)
        self.inside.remove(call.id)
        self.log.append(f"{call.id} ends")
        return "ok"

    @property
    def order(self):
        """The calls in the order in which they began; only where none overlapped."""
        assert self.overlaps == []
        return [entry.split()[0] for entry in self.log if entry.endswith("begins")]


@pytest.fixture
def workshop():
    return Workshop()


def run(ctx, through):
    ctx = through(ctx, *PLANNED)
    return anyio.run(drive, dispatch_tools(ctx))


def contents(ctx):
    return [ctx.tool_results[call.id].content for call in ctx.tool_calls]


class TestInOneResponse:
    """The calls of a batch run at the same time, except those that share a key."""

    def test_calls_of_one_key_run_one_after_another_in_order(self, context, through, workshop):
        tools = [Tool("t", steps=workshop, lock="k")]
        run(context(*[("t", {"n": n}) for n in range(4)], tools=tools), through)
        assert workshop.order == ["c1", "c2", "c3", "c4"]

    def test_a_call_may_need_several_keys_and_waits_for_all(self, context, through, workshop):
        """In whichever order they are named, no two calls wait for each other."""
        tools = [Tool("move", steps=workshop, lock=lambda arguments: arguments["paths"])]
        calls = [("move", {"paths": paths}) for paths in (["a", "b"], ["b", "a", "b"], ["c"])]
        run(context(*calls, tools=tools), through)
        assert workshop.overlaps in ([("c1", "c3")], [("c3", "c2")])

    def test_without_a_key_there_is_no_lock(self, context, through, workshop):
        tools = [Tool("t", steps=workshop, lock=lambda arguments: None)]
        run(context(("t", {"n": 1}), ("t", {"n": 2}), tools=tools), through)
        assert workshop.overlaps == [("c1", "c2")]

    def test_a_call_that_fails_releases_its_key(self, context, through):
        fails = tool(name="t", lock="k")(lambda n: 1 / n)
        ctx = run(context(("t", {"n": 0}), ("t", {"n": 2}), tools=[fails]), through)
        assert contents(ctx) == ["Error: ZeroDivisionError: division by zero", "0.5"]

    def test_a_call_starts_in_the_run_state_and_in_events_when_it_has_its_key(
        self, context, through
    ):
        events = []
        locking = Tool("t", steps=Workshop(), lock="k")
        ctx = context(("t", {"n": 1}), ("t", {"n": 2}), tools=[locking], has_listeners=True)
        ctx = through(ctx, *PLANNED)
        drive_sync(dispatch_tools(ctx), events.append)
        assert [(type(event), event.call.id) for event in events] == [
            (ToolStarted, "c1"),
            (ToolFinished, "c1"),
            (ToolStarted, "c2"),
            (ToolFinished, "c2"),
        ]
        first, second = ctx.state.current_node.tool_calls
        assert first.ended_at <= second.started_at

    def test_an_id_with_a_slash_does_not_make_a_call_part_of_another(self, context, workshop):
        """The model chooses the ids: it could otherwise make two calls of one key overlap."""
        ctx = context(tools=[Tool("t", steps=workshop, lock="k")])
        calls = tuple(ToolCall(name, "t", "{}", {}, name) for name in ("a", "a/b"))
        ctx = ctx.replace(tool_calls=calls, plan=Plan((calls,)))
        for call in calls:
            ctx.run.reserve(call)
        anyio.run(drive, dispatch_tools(ctx))
        assert workshop.order == ["a", "a/b"]


class TestAKeyFunctionThatRaises:
    """The call is not run, and its error is reported like that of a call that ran."""

    @pytest.fixture
    def ctx(self, context, through):
        self.events, self.ran = [], []
        broken = tool(name="t", lock=lambda arguments: arguments["nope"])(self.ran.append)
        ctx = context(ToolCall("c1", "t", '{"object": 1}'), tools=[broken], has_listeners=True)
        ctx = through(ctx, *PLANNED)
        return drive_sync(dispatch_tools(ctx), self.events.append)

    def test_it_is_skipped_and_a_failure_in_the_run_state_and_in_the_events(self, ctx):
        result, [node] = ctx.tool_results["c1"], ctx.state.current_node.tool_calls
        assert result == ToolResult("c1", "Error: KeyError: 'nope'", True, "locked")
        assert (node.status, node.error) == (RunNodeStatus.FAILED, result.content)
        assert [type(event) for event in self.events] == [ToolStarted, ToolFinished]
        assert self.ran == []
        assert ctx.tool_calls[0].fingerprint not in ctx.run.repeats.answers


class TestWithinACall:
    """A call holds its key for all of its steps, and must not wait for keys of other calls."""

    @pytest.fixture
    def run_recipe(self, context, through):
        def run_recipe(recipe, *tools, holding=None, before=(), **more):
            big = Tool("big", lock=holding)
            ctx = context(
                *before, ("big", {}), tools=[big, *tools], resolve_tool=Expanding(recipe), **more
            )
            return run(ctx, through)

        return run_recipe

    @pytest.mark.parametrize("key", ["k", "other"])
    def test_a_step_has_a_key_of_its_call_and_another_one_that_is_free(
        self, run_recipe, workshop, key
    ):
        locking = Tool("t", steps=workshop, lock=key)
        ctx = run_recipe(Recipe([RecipeStep("t")]), locking, holding="k")
        assert contents(ctx) == ["## Results\n\n### t\nok"]

    def test_steps_that_share_it_do_not_overlap_either(self, run_recipe, workshop):
        steps = [RecipeStep("t", {"n": n}, f"s{n}") for n in range(3)]
        run_recipe(Recipe(parallel=steps), Tool("t", steps=workshop, lock="k"), holding="k")
        assert workshop.order == ["c1/s0", "c1/s1", "c1/s2"]

    def test_a_step_whose_key_is_in_use_by_another_call_fails_instead_of_waiting(
        self, run_recipe, workshop
    ):
        """Otherwise two calls could wait for each other."""
        locks = Locks()
        ticket = locks.enter("other")
        locking = Tool("t", steps=workshop, lock="other")
        ctx = run_recipe(Recipe([RecipeStep("t")]), locking, holding="k", locks=locks)
        assert contents(ctx) == [
            "## Errors\n\n### t\nNot run: 'other' is in use by another call; try again later"
        ]
        (step,) = ctx.state.current_node.tool_calls[0].tool_calls
        assert step.status is RunNodeStatus.FAILED
        locks.leave("other", ticket)
        assert workshop.log == []
        assert locks._queues == {}

    def test_a_step_of_a_call_without_a_key_waits_like_any_call(self, run_recipe, workshop):
        tools = [Tool("t", steps=workshop, lock="k")]
        ctx = run_recipe(Recipe([RecipeStep("t")]), *tools, before=[("t", {})])
        assert contents(ctx) == ["ok", "## Results\n\n### t\nok"]
        assert workshop.order == ["c1", "c2/t"]

    def test_the_keys_of_a_call_are_known_while_it_runs(self, run_recipe):
        """A subagent needs them, see `Loop.as_tool`; a step without a lock has those of its call."""
        seen = {}

        def steps(ctx, call):
            seen[call.id] = set(held_locks(ctx, call.id))
            yield Call(lambda: None)

        tools = [Tool("t", steps=steps), Tool("own", steps=steps, lock=lambda _: ["a", "b"])]
        ctx = run_recipe(Recipe([RecipeStep("t")]), *tools, holding="k", before=[("own", {})])
        assert seen == {"c1": {"a", "b"}, "c2/t": {"k"}}
        assert dict(held_locks(ctx, "c1")) == {}

    def test_calls_have_the_keys_that_the_parent_run_has_acquired(self, context, through, workshop):
        locks = Locks()
        ticket = locks.enter("k")
        tools = [Tool("t", steps=workshop, lock="k"), Tool("p")]
        locked = {"k": "k"}
        ctx = run(context(("t", {}), tools=tools, locks=locks, held_locks=locked), through)
        assert contents(ctx) == ["ok"]
        assert set(held_locks(ctx, "any")) == {"k"}
        locks.leave("k", ticket)


class TestConcurrentRuns:
    """A table of locks may be shared by runs, in one event loop and in threads."""

    @pytest.fixture
    def runs(self, context, through):
        """The contexts of some runs that have planned a call each."""

        def runs(number, tool, **more):
            return [
                through(context((tool.name, {}), tools=[tool], **more), *PLANNED)
                for _ in range(number)
            ]

        return runs

    @staticmethod
    def in_threads(contexts):
        threads = [
            threading.Thread(target=drive_sync, args=(dispatch_tools(ctx),)) for ctx in contexts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)

    def test_on_one_event_loop(self, runs, workshop):
        contexts = runs(3, Tool("t", steps=workshop, lock="k"), locks=Locks())

        def together():
            return (yield Parallel([dispatch_tools(ctx) for ctx in contexts]))

        done = anyio.run(drive, together())
        assert [contents(ctx) for ctx in done] == [["ok"]] * 3
        assert workshop.overlaps == []

    def test_runs_that_share_no_table_do_not_wait_for_each_other(self, runs):
        both = threading.Barrier(2, timeout=5)
        self.in_threads(runs(2, Tool("t", fn=both.wait, lock="k")))
        assert both.n_waiting == 0
        assert not both.broken

    def test_in_threads(self, runs):
        inside, most = 0, []

        def work():
            nonlocal inside
            inside += 1
            most.append(inside)
            threading.Event().wait(0.001)
            inside -= 1

        self.in_threads(runs(6, Tool("t", fn=work, lock="k"), locks=Locks()))
        assert most == [1] * 6


KEYS = st.lists(st.sampled_from("abc"), max_size=2)


@settings(max_examples=40)
@given(st.lists(KEYS, min_size=1, max_size=5))
def test_calls_that_share_a_key_never_overlap_and_all_run(wanted):
    """For any keys of the calls of one response."""
    workshop = Workshop()
    by_id = {f"c{n}": set(keys) for n, keys in enumerate(wanted)}
    locking = Tool("t", steps=workshop, lock=lambda arguments: arguments["keys"])
    calls = tuple(
        ToolCall(call_id, "t", "{}", {"keys": keys})
        for call_id, keys in zip(by_id, wanted, strict=True)
    )
    ctx = Context(History(), {"t": locking}, tool_calls=calls, plan=Plan((calls,)))
    for call in calls:
        ctx.run.reserve(call)
    done = anyio.run(drive, dispatch_tools(ctx))
    assert set(done.tool_results) == set(by_id)
    for one, other in workshop.overlaps:
        assert not by_id[one] & by_id[other]
    assert len(workshop.log) == 2 * len(calls)
