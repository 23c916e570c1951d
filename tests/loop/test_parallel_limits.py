"""Limits hold across all subagents that run at the same time, and a tree of runs ends by default."""

import dataclasses
import itertools
import time

import anyio
import pytest

from treadle import (
    BudgetExhausted,
    Err,
    LimitNotMeasurable,
    Limits,
    Loop,
    ModelRequested,
    Ok,
    Response,
    RunHandle,
    SubagentEvent,
    ToolCall,
    Usage,
)
from treadle.effects import Wait, map_effects
from treadle.testing import ScriptedLLM, call, calls

from .children import subagent_run
from .conftest import SYNC, Way, answers
from .notes import note

COUNTS = (1, 8, 64)
DOLLAR = Usage(40, 10, cost=1.0)


class World:
    """A model whose responses take some time, and what was asked of it."""

    def __init__(self, usage=DOLLAR, seconds=0.002, iterations=3):
        self.usage, self.seconds, self.iterations = usage, seconds, iterations
        self.under_way = self.most = self.sent = 0

    def enter(self):
        self.sent += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)

    def answer(self, messages):
        self.under_way -= 1
        if len(messages) >= 2 * self.iterations - 1:
            return Response("in", usage=self.usage)
        made = ToolCall(f"n{len(messages)}", "note", f'{{"n": {self.sent}}}')
        return Response(tool_calls=(made,), usage=self.usage)

    async def ask(self, messages):
        self.enter()
        try:
            await anyio.sleep(self.seconds)
        except BaseException:
            self.under_way -= 1
            raise
        return self.answer(messages)

    def ask_sync(self, messages):
        self.enter()
        time.sleep(self.seconds)
        return self.answer(messages)


def outer_model(count, usage=DOLLAR):
    """Starts subagents, and answers when they have returned."""
    made = tuple(ToolCall(f"k{n}", "helper", f'{{"task": "task {n}"}}') for n in range(count))
    return ScriptedLLM(Response(tool_calls=made, usage=usage), *[Response("out", usage=usage)] * 9)


def tree(model, *, inner=None, limits=None, **options):
    wide = dataclasses.replace(limits or Limits(), max_parallel_calls=64, max_requests=10_000)
    helper = Loop(tools=[note], **(inner or {})).as_tool("helper", "Helps.", model)
    return Loop(tools=[helper], limits=wide, **options)


@pytest.fixture(params=["asyncio", "trio", "sync"])
def any_way(request):
    return Way(request.param)


def asked_of(world, way):
    return world.ask_sync if way.name == "sync" else world.ask


class TestTokensAndCost:
    """They exceed a limit by at most one response."""

    @pytest.mark.parametrize("count", COUNTS)
    @pytest.mark.parametrize(
        ("limit", "used", "one"),
        [
            ({"max_cost": 3}, lambda usage: usage.cost, 1.0),
            ({"max_cost": 9.5}, lambda usage: usage.cost, 1.0),
            ({"max_total_tokens": 1_000}, lambda usage: usage.total_tokens, 50),
            ({"max_input_tokens": 300}, lambda usage: usage.input_tokens, 40),
            ({"max_output_tokens": 95}, lambda usage: usage.output_tokens, 10),
        ],
    )
    def test_however_many_subagents_there_are(self, any_way, count, limit, used, one):
        world = World()
        result = any_way.run(
            tree(asked_of(world, any_way), limits=Limits(**limit)), outer_model(count)
        )
        [most] = limit.values()
        assert used(result.usage) < most + one
        if count > 1:
            assert result.reason == BudgetExhausted(*limit, most, used(result.usage))

    @pytest.mark.parametrize("count", COUNTS)
    def test_a_cheap_model_says_nothing_about_a_dear_one(self, count):
        """The first response of the dear one is awaited: nothing else shows its price."""

        class Named(World):
            model = "dear"

            async def __call__(self, messages):
                return await self.ask(messages)

        result = Way("asyncio").run(
            tree(Named(), max_cost=3), outer_model(count, Usage(1, 1, cost=0.001))
        )
        assert result.usage.cost < 3 + 1

    @pytest.mark.parametrize("count", [8, 64])
    def test_the_limit_of_a_response_is_reserved(self, count):
        """Each response is small, but may have 400 tokens: two fit, and later fewer."""
        world = World()
        inner = {"llm_opts": {"max_tokens": 400}}

        async def ask(messages, max_tokens):
            assert max_tokens == 400
            return await world.ask(messages)

        Way("asyncio").run(tree(ask, inner=inner, max_total_tokens=1_000), outer_model(count))
        assert world.most == 2

    @pytest.mark.parametrize("script", ["english", "chinese"])
    def test_long_prompts_are_reserved(self, script):
        """A token has four characters, or one: the first responses show it."""
        text = "word " * 800 if script == "english" else "字" * 4_000
        tokens = 1_000 if script == "english" else 4_000
        world = World(Usage(tokens, 10, cost=0.0))
        messages = lambda arguments: [{"role": "user", "content": text}]  # noqa: E731
        helper = Loop().as_tool("helper", "Helps.", world.ask, messages=messages)
        loop = Loop(
            tools=[helper], limits=Limits(max_parallel_calls=64), max_total_tokens=5 * tokens
        )
        result = Way("asyncio").run(loop, outer_model(64, Usage(50, 10, cost=0.0)))
        assert result.usage.total_tokens < 6 * tokens + 10

    def test_requests_that_fit_are_sent_together(self):
        world = World(iterations=1)
        result = Way("asyncio").run(tree(world.ask, max_cost=1_000), outer_model(64))
        assert isinstance(result, Ok)
        assert world.most == 64

    def test_while_nothing_is_known_the_first_goes_alone(self):
        """The response of the outer model was counted before; that of a cache says nothing."""

        class Named(World):
            model = "other"
            alone = 0

            async def __call__(self, messages):
                if self.sent:
                    assert self.alone == 1
                made = await self.ask(messages)
                self.alone += 1 if self.alone == 0 else 0
                return made

        world = Named(iterations=1)
        assert isinstance(Way("asyncio").run(tree(world, max_cost=1_000), outer_model(8)), Ok)
        assert world.most == 7

    @pytest.mark.parametrize("unmeasured", ["stop", "estimate", "ignore"])
    def test_what_is_not_reported(self, any_way, unmeasured):
        """Nothing waits for a number that no response has, if the limit is ignored."""
        world = World(usage=None, seconds=0.3, iterations=2)
        loop = tree(
            asked_of(world, any_way), max_total_tokens=50_000, limits=Limits(unmeasured=unmeasured)
        )
        result = any_way.run(loop, outer_model(16, Usage(40, 10)))
        if unmeasured == "ignore":
            assert isinstance(result, Ok)
            assert world.most == 16
        elif unmeasured == "estimate":
            assert isinstance(result, Ok)
            assert result.usage.is_estimate
        else:
            assert isinstance(result.reason, LimitNotMeasurable)
            assert world.most == 16  # those of the outer model were reported

    def test_deep_trees_share_the_limit(self):
        leaf = Loop(tools=[note]).as_tool("helper", "l", World().ask)

        def branch_model(messages):
            return outer_model(8)(messages) if len(messages) == 1 else Response("in", usage=DOLLAR)

        branch = Loop(tools=[leaf]).as_tool("helper", "b", branch_model)
        loop = Loop(tools=[branch], max_cost=30, name="root")
        result = Way("asyncio").run(loop, outer_model(8))
        assert 29 < result.usage.cost < 31
        assert str(result.reason).startswith("the budget of root is spent: max_cost=30, used 30")

    def test_a_limit_of_a_subagent_holds_for_its_own_subagents(self):
        world = World()
        leaf = Loop(tools=[note]).as_tool("helper", "l", world.ask)
        middle = Loop(tools=[leaf], max_cost=3, name="middle", limits=Limits(max_parallel_calls=64))
        loop = Loop(tools=[middle.as_tool("middle", "m", outer_model(64))])
        result = Way("asyncio").run(loop, ScriptedLLM(calls(call("middle", "k", task="t")), "out"))
        assert result.usage.cost < 4
        assert "the budget of middle is spent: max_cost=3, used 3" in answers(result.messages)["k"]


class TestWaiting:
    """A request that waits can be interrupted, and one that fails lets the next go."""

    def test_an_error_releases_what_was_reserved(self, any_way):
        numbers = itertools.count()

        class Failing(World):
            def enter(self):
                if next(numbers) % 2:
                    raise ValueError("no")
                super().enter()

        model = asked_of(Failing(iterations=1), any_way)
        result = any_way.run(tree(model, max_cost=4.5), outer_model(8))
        assert isinstance(result, Err)
        assert result.usage.cost == 5

    def test_the_run_can_be_cancelled_while_requests_wait(self):
        handle = RunHandle()

        class Cancelling(World):
            def enter(self):
                super().enter()
                handle.cancel()

        world = Cancelling(seconds=60)
        loop = tree(world.ask, max_cost=2.5, handle=handle)
        result = Way("asyncio").run(loop, outer_model(8))
        assert result.stop_reason == "cancelled"
        assert world.sent == 1

    def test_a_call_can_be_cancelled_while_its_request_waits(self, any_way):
        """The others go on: nothing is reserved for it any more."""
        world = World(iterations=1, seconds=0.5)
        model = asked_of(world, any_way)
        slow, last = (Loop().as_tool(name, "s", model) for name in ("slow", "last"))
        waiting = Loop().as_tool("waiting", "w", model, timeout=0.02)
        made = tuple(ToolCall(name, name, '{"task": "x"}') for name in ("slow", "waiting", "last"))
        outer = ScriptedLLM(*[Response("out", m, usage=DOLLAR) for m in (made, ())])
        result = any_way.run(Loop(tools=[slow, waiting, last], max_cost=2.5), outer)
        assert ["took longer" in m["content"] for m in result.messages[2:5]] == [False, True, False]
        assert (result.usage.cost, world.sent, world.under_way) == (3, 2, 0)

    def test_max_seconds_ends_requests_that_wait(self):
        world = World(seconds=60)
        result = Way("asyncio").run(tree(world.ask, max_cost=1.5, max_seconds=0.05), outer_model(8))
        assert result.stop_reason == "deadline_exceeded"

    def test_it_is_an_effect(self):
        waits = []

        def seen(steps):
            def change(effect):
                if isinstance(effect, Wait):
                    waits.append(effect)
                return effect

            return map_effects(steps, change)

        Way("asyncio").run(tree(World().ask, max_cost=3, middleware=[seen]), outer_model(8))
        assert waits


class TestIterations:
    """They belong to the loop that makes them."""

    def test_the_reason_names_the_loop(self):
        inner = {"max_iterations": 2, "name": "researcher"}
        result = SYNC.run(tree(World().ask_sync, inner=inner, name="root"), outer_model(1))
        text = answers(result.messages)["k0"]
        assert text.endswith("researcher gave no answer within max_iterations=2")

    @pytest.mark.parametrize("name", ["", "root"])
    def test_max_requests_counts_the_tree(self, any_way, name):
        world = World(iterations=5)
        loop = tree(asked_of(world, any_way)).with_options(
            limits=Limits(max_requests=12), name=name
        )
        result = any_way.run(loop, outer_model(8))
        assert result.reason == BudgetExhausted("max_requests", 12, 12)
        assert world.sent == 11
        loop = name or "the outermost loop"
        assert (
            f"the budget of {loop} is spent: max_requests=12, used 12"
            in answers(result.messages)["k7"]
        )

    def test_a_retry_is_no_further_request(self):
        model = ScriptedLLM(ConnectionError("a"), ConnectionError("b"), "done")
        result = SYNC.run(Loop(limits=Limits(max_requests=1), retry_delay=0), model)
        assert isinstance(result, Ok)


class TestEnds:
    """Every tree of runs ends by default."""

    @pytest.mark.parametrize("width", [1, 3])
    def test_a_loop_that_is_its_own_subagent(self, any_way, width):
        asked, deepest = [], []

        def ask(messages):
            asked.append(messages)
            names = [f"c{len(asked)}.{n}" for n in range(width)]
            return calls(*(call("again", name, task=name) for name in names))

        def with_itself(ctx):
            again = loop.as_tool("again", "Again.", ask)
            return ctx if "again" in ctx.tools else ctx.with_tools(add=[again])

        def depth_of(event):
            depth = 0
            while isinstance(event, SubagentEvent):
                event, depth = event.event, depth + 1
            if isinstance(event, ModelRequested):
                deepest.append(depth)

        loop = Loop(stages=[with_itself, ...], name="me")
        result = any_way.run(loop.with_options(on_event=depth_of), ask)
        assert isinstance(result, Err)
        assert len(asked) <= 100
        assert max(deepest) == 5 if width == 1 else max(deepest) <= 5

    def test_a_call_that_would_be_too_deep_is_answered(self):
        inner = Loop().as_tool("inner", "i", ScriptedLLM())
        asked = calls(call("inner", "i", task="t")), "in"
        middle = Loop(tools=[inner]).as_tool("middle", "m", ScriptedLLM(*asked))
        loop = Loop(tools=[middle], limits=Limits(max_depth=1), name="root")
        result = SYNC.run(loop, ScriptedLLM(calls(call("middle", "k", task="t")), "out"))
        assert isinstance(result, Ok)
        text = answers(subagent_run(result).messages)["i"]
        assert "'inner' was not started: it would be at depth 2, beyond max_depth=1 of root" in text

    def test_without_subagents(self):
        inner = Loop().as_tool("inner", "i", ScriptedLLM())
        script = calls(call("inner", "i", task="t")), "out"
        result = SYNC.run(Loop(tools=[inner], limits=Limits(max_depth=0)), ScriptedLLM(*script))
        assert "max_depth=0 of the outermost loop" in answers(result.messages)["i"]
