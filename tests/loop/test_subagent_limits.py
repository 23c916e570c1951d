"""A subagent draws on the budget of its parent. It may use the keys of its call; it waits for others, or fails."""

import random
import time

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import (
    BudgetExhausted,
    LimitReached,
    Limits,
    Locks,
    Loop,
    Ok,
    Remaining,
    Response,
    ToolCall,
    ToolContext,
    Usage,
    approve,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls, check_history

from .children import asked_each, subagent_run
from .conftest import SYNC, Way, answers, of
from .notes import completion, note


def busy(messages):
    """A model that calls one tool after another, always another call."""
    return calls(call("note", n=len(messages)))


def helper(model, **options):
    return Loop(tools=[note], **options).as_tool("helper", "Helps.", model)


class TestBudgets:
    """The usage of a subagent counts for its parent."""

    def test_requests(self, way):
        result = way.run(
            Loop(tools=[helper(busy)], limits=Limits(max_requests=5)), ScriptedLLM(asked_each())
        )
        assert subagent_run(result).iterations == 4
        assert answers(result.messages)["k"].endswith("max_requests=5, used 5")
        assert (result.reason, result.iterations) == (BudgetExhausted("max_requests", 5, 5), 1)

    def test_iterations_belong_to_the_run_that_makes_them(self, way):
        loop = Loop(tools=[helper(busy, max_iterations=7)], max_iterations=2)
        result = way.run(loop, ScriptedLLM(asked_each(), "outer"))
        assert subagent_run(result).iterations == 7
        assert (isinstance(result, Ok), result.iterations) == (True, 2)

    def test_without_a_remaining_request_the_model_of_the_subagent_is_not_called(self, way):
        with ScriptedLLM() as inner:
            loop = Loop(tools=[helper(inner)], limits=Limits(max_requests=1))
            result = way.run(loop, ScriptedLLM(asked_each()))
        assert result.reason == BudgetExhausted("max_requests", 1, 1)
        assert subagent_run(result).iterations == 0
        check_history(subagent_run(result).messages)

    def test_tool_calls(self, way):
        """The call of the subagent is one of them."""
        loop = Loop(tools=[helper(busy), note], max_tool_calls=4)
        result = way.run(loop, ScriptedLLM(asked_each(), calls(call("note", "n", n=0))))
        inner = subagent_run(result)
        assert sum(len(node.tool_calls) for node in inner.nodes) == 3
        assert "the budget of 4 tool calls is spent" in inner.messages[-1]["content"]
        assert answers(result.messages)["k"].endswith("max_tool_calls=4, used 4")
        assert result.reason == BudgetExhausted("max_tool_calls", 4, 4)

    def test_tool_calls_that_did_not_run_because_of_its_time_limit_are_not_counted(
        self, way, clock
    ):
        @tool(parallel_safe=False)
        async def hang(n: int):
            clock.limit.strike()
            await anyio.sleep(30)

        inner = ScriptedLLM(calls(*(call("hang", n=n) for n in range(4))))
        subagent = Loop(tools=[hang], sequential="in_step").as_tool("helper", "h", inner, timeout=9)
        loop = Loop(tools=[subagent, note], max_tool_calls=5, middleware=[clock.middleware])
        script = asked_each(), calls(*(call("note", f"n{n}", n=n) for n in range(3))), "done"
        result = way.run(loop, ScriptedLLM(*script))
        assert isinstance(result, Ok)
        assert [answers(result.messages)[f"n{n}"] for n in range(3)] == [
            "noted 0",
            "noted 1",
            "noted 2",
        ]

    @pytest.mark.parametrize(
        ("limit", "kind"),
        [
            ({"limits": Limits(max_input_tokens=12)}, "max_input_tokens"),
            ({"limits": Limits(max_output_tokens=12)}, "max_output_tokens"),
            ({"max_total_tokens": 22}, "max_total_tokens"),
            ({"max_cost": 1.1}, "max_cost"),
        ],
    )
    def test_tokens_and_cost(self, way, limit, kind):
        def priced(made, place):
            made = (ToolCall(f"i{place}", "note", f'{{"n": {place}}}'),) if made is None else made
            return Response(tool_calls=made, usage=Usage(5, 5, cost=0.5))

        inner = ScriptedLLM(*(priced(None, n) for n in range(9)))
        outer = Response(
            tool_calls=(ToolCall("k", "helper", '{"task": "t"}'),), usage=Usage(2, 2, cost=0.1)
        )
        result = way.run(Loop(tools=[helper(inner)], **limit), ScriptedLLM(outer))
        assert subagent_run(result).iterations == 2
        assert result.reason.kind == kind
        assert result.usage == Usage(12, 12, cost=pytest.approx(1.1))

    def test_uses_of_a_tool_are_counted_for_the_tree(self):
        once = tool(note, max_uses=1)
        loop = Loop(tools=[once])
        subagent = loop.as_tool("helper", "h", ScriptedLLM(calls(call("note", "i", n=1)), "in"))
        batch = calls(call("note", "n", n=1), *asked_each()["tool_calls"])
        result = SYNC.run(Loop(tools=[subagent, once]), ScriptedLLM(batch, "outer"))
        assert answers(result.messages)["n"] == "noted 1"
        assert "maximum number of uses" in answers(subagent_run(result, 1).messages)["i"]

    def test_a_released_call_of_a_tool_without_that_limit_returns_no_use_of_its_namesake(self):
        """Tools of one name share the number of uses."""
        ran = []

        @tool
        def look(n: int):
            ran.append(n)
            return "seen"

        once = tool(look, max_uses=1, name="note")
        inner = Loop(tools=[note], max_tool_calls=9)

        def dropping(ctx):
            return ctx.drop(ctx.tool_calls[0], "no") if ctx.tool_calls else ctx

        loop = inner.with_options(stages=[..., dropping])
        subagent = loop.as_tool("helper", "h", ScriptedLLM(calls(call("note", "i", n=1)), "in"))
        script = calls(call("note", "a", n=1)), asked_each(), calls(call("note", "b", n=2)), "out"
        SYNC.run(Loop(tools=[subagent, once]), ScriptedLLM(*script))
        assert ran == [1]

    def test_a_tool_of_the_subagent_sees_the_tightest_remaining_limits(self):
        seen = []

        @tool
        def look(context: ToolContext):
            seen.append(context.remaining)

        inner = Loop(tools=[look], max_iterations=4, max_tool_calls=20)
        subagent = inner.as_tool("helper", "h", ScriptedLLM(calls(call("look")), "in"))
        loop = Loop(tools=[subagent], max_iterations=9, max_tool_calls=8, max_total_tokens=100)
        script = completion(asked_each()), "outer"
        SYNC.run(loop, ScriptedLLM(*script), limits=Limits(unmeasured="ignore"))
        assert seen == [Remaining(3, 6, total_tokens=95, is_upper_bound=True)]
        seen.clear()
        limits = {"max_iterations": 2, "limits": Limits(max_requests=7)}
        inner_model = ScriptedLLM(calls(call("look")), "in")
        outer = Loop(tools=[inner.as_tool("helper", "h", inner_model)], **limits)
        SYNC.run(outer, ScriptedLLM(asked_each(), "outer"))
        assert seen == [Remaining(3, 19, requests=5)]

    @pytest.mark.parametrize("on_limit", ["stop", "finish"])
    def test_a_subagent_makes_no_last_answer_if_the_budget_of_the_parent_is_exhausted(
        self, way, on_limit
    ):
        events = []
        subagent = helper(
            busy, max_iterations=99, limits=Limits(on_limit=on_limit), on_event=events.append
        )
        result = way.run(
            Loop(tools=[subagent], limits=Limits(max_requests=3)), ScriptedLLM(asked_each())
        )
        assert (subagent_run(result).iterations, result.iterations) == (2, 1)
        assert len(of(events, LimitReached)) == 1
        assert answers(result.messages)["k"].startswith("Error: 'helper' gave no answer")

    def test_the_last_answer_of_a_subagent_counts_for_the_parent(self):
        inner = ScriptedLLM(calls(call("note", n=1)), "so far")
        subagent = helper(inner, max_iterations=1, limits=Limits(on_limit="finish"))
        result = SYNC.run(
            Loop(tools=[subagent], limits=Limits(max_requests=3)),
            ScriptedLLM(asked_each(), asked_each("l")),
        )
        assert answers(result.messages)["k"] == "so far"
        assert result.reason == BudgetExhausted("max_requests", 3, 3)

    def test_usage_from_before_a_pause_counts_after_it(self):
        @tool(requires_approval=True)
        def sign(n: int):
            return "signed"

        inner = Loop(tools=[sign, note])
        model = ScriptedLLM(calls(call("sign", "s", n=1)), *[busy] * 9)
        subagent = inner.as_tool("helper", "h", model)
        loop = Loop(tools=[subagent], limits=Limits(max_requests=4), max_tool_calls=3)
        paused = SYNC.run(loop, ScriptedLLM(asked_each()))
        result = SYNC.resume(loop, paused, {"k/s": approve}, ScriptedLLM("outer"))
        assert result.reason == BudgetExhausted("max_requests", 4, 4)
        assert answers(result.messages)["k"].endswith("max_tool_calls=3, used 3")
        run = subagent_run(result)
        assert [len(node.tool_calls) for node in run.nodes] == [1, 1, 0]


@settings(max_examples=40)
@given(
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(0, 12),
    st.sampled_from(["stop", "finish"]),
    st.sampled_from(["asyncio", "sync"]),
    st.integers(0, 2**32),
)
def test_concurrent_subagents_never_exceed_the_limits_together(
    count, iterations, tool_calls, on_limit, backend, seed
):
    """However they interleave: usage is counted in advance."""
    asked_models, ran = [], []
    dice = random.Random(seed)

    @tool
    async def act(n: int):
        ran.append(n)
        await anyio.sleep(dice.choice([0, 0, 0.0005]))
        return n

    async def inner(messages):
        asked_models.append("inner")
        await anyio.sleep(dice.choice([0, 0, 0.0005]))
        return calls(*(call("act", n=dice.randrange(10**9)) for _ in range(dice.randint(1, 3))))

    def outer(messages):
        asked_models.append("outer")
        return asked_each(*(f"k{len(messages)}.{n}" for n in range(count)))

    subagent = Loop(tools=[act], limits=Limits(on_limit=on_limit), max_iterations=3).as_tool(
        "helper", "h", inner
    )
    loop = Loop(tools=[subagent], limits=Limits(max_requests=iterations), max_tool_calls=tool_calls)
    result = Way(backend).run(loop, outer)
    assert len(asked_models) <= iterations
    # The calls of the subagents are calls of tools, too.
    assert len(ran) + result.tool_calls_count <= tool_calls
    for node in result.run.nodes:
        for made in node.tool_calls:
            check_history(made.run.messages)


class Shop:
    """A tool that records how many of its calls run at the same time, for each key."""

    def __init__(self):
        self.now, self.most, self.log = {}, {}, []

        @tool(lock=lambda given: given["key"])
        async def work(key: str, n: int = 0):
            self.now[key] = self.now.get(key, 0) + 1
            self.most[key] = max(self.most.get(key, 0), self.now[key])
            self.log.append(f"{key}{n}")
            await anyio.sleep(0.02)
            self.now[key] -= 1
            return f"worked {key}{n}"

        self.work = work

    def helper(self, model, **options):
        """A subagent that has the tool."""
        return Loop(tools=[self.work]).as_tool("helper", "h", model, **options)


@pytest.fixture
def shop():
    return Shop()


def works(*keys):
    return calls(*(call("work", f"w{n}", key=key, n=n) for n, key in enumerate(keys)))


@pytest.mark.timeout(20)
class TestLockedByTheParent:
    """A key that the call of the subagent has."""

    def test_calls_of_the_subagent_that_share_it_do_not_overlap(self, shop, way):
        subagent = shop.helper(ScriptedLLM(works("L", "L", "L", "M"), "in"), lock="L")
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked_each(), "outer"))
        assert shop.most == {"L": 1, "M": 1}
        assert len(shop.log) == 4
        assert answers(result.messages) == {"k": "in"}

    def test_no_other_call_gets_it_during_the_run(self, shop, way):
        subagent = shop.helper(ScriptedLLM(works("L", "L"), "in"), lock="L")
        more = [call("work", "o", key="L", n=9)]
        result = way.run(
            Loop(tools=[subagent, shop.work]), ScriptedLLM(asked_each(more=more), "outer")
        )
        assert shop.most == {"L": 1}
        assert answers(result.messages) == {"k": "in", "o": "worked L9"}

    def test_a_nested_subagent_may_use_it_as_well(self, shop, way):
        nested = shop.helper(ScriptedLLM(works("L", "L"), "three"), lock="L")
        middle = Loop(tools=[nested, shop.work])
        more = [call("work", "m", key="L", n=5)]
        model = ScriptedLLM(asked_each("g", more=more), "two")
        subagent = middle.as_tool("helper", "h", model, lock="L")
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked_each(), "outer"))
        assert answers(result.messages) == {"k": "two"}
        assert shop.most == {"L": 1}
        assert len(shop.log) == 3

    def test_it_is_acquired_again_after_a_pause(self, shop, way):
        @tool(requires_approval=True)
        def sign():
            return "signed"

        inner = Loop(tools=[shop.work, sign])
        model = ScriptedLLM(calls(call("sign", "s")), works("L"), "in")
        subagent = inner.as_tool("helper", "h", model, lock="L")
        locks = Locks()
        loop = Loop(tools=[subagent], locks=locks)
        outer = ScriptedLLM(asked_each(), "outer")
        paused = way.run(loop, outer)
        ticket = locks.enter("L")
        assert ticket.is_set  # a paused run has no keys
        locks.leave("L", ticket)
        result = way.resume(loop, paused, {"k/s": approve}, outer)
        assert answers(result.messages) == {"k": "in"}


@pytest.mark.timeout(20)
class TestLockedElsewhere:
    """A key that another call has."""

    def test_a_subagent_without_a_key_waits_for_it(self, shop, way):
        subagent = shop.helper(ScriptedLLM(works("L"), "in"))
        more = [call("work", f"o{n}", key="L", n=n + 5) for n in range(3)]
        result = way.run(
            Loop(tools=[subagent, shop.work]), ScriptedLLM(asked_each(more=more), "outer")
        )
        assert shop.most == {"L": 1}
        assert len(shop.log) == 4
        assert answers(result.messages)["k"] == "in"

    def test_a_subagent_with_another_key_fails_and_never_waits(self, shop, way):
        """Two subagents that wait for each other's key would wait forever."""
        locks = Locks()
        ticket = locks.enter("L")
        subagent = shop.helper(ScriptedLLM(works("L"), "in"), lock="mine")
        result = way.run(Loop(tools=[subagent], locks=locks), ScriptedLLM(asked_each(), "outer"))
        text = answers(subagent_run(result).messages)["w0"]
        assert text == "Not run: 'L' is in use by another call; try again later"
        assert shop.log == []
        locks.leave("L", ticket)

    def test_two_subagents_that_need_each_others_key_both_end(self, shop, way):
        def model(messages):
            if len(messages) > 1:
                return "in"
            time.sleep(0.02)
            mine = messages[0]["content"]
            return works({"A": "B", "B": "A"}[mine])

        subagent = shop.helper(model, lock=lambda given: given["task"])
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked_each("A", "B"), "outer"))
        assert isinstance(result, Ok)
        assert answers(result.messages) == {"A": "in", "B": "in"}
        assert all(most == 1 for most in shop.most.values())

    def test_the_lock_table_of_the_subagent_is_used(self, shop, way):
        """It was given to the loop to share with other runs, so it applies in every run."""
        shared = Locks()
        ticket = shared.enter("L")
        loop = Loop(tools=[shop.work], locks=shared, max_seconds=0.1)
        subagent = loop.as_tool("helper", "h", ScriptedLLM(works("L"), "in"))
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked_each(), "outer"))
        assert answers(result.messages)["k"].endswith("took longer than max_seconds=0.1")
        assert shop.log == []
        shared.leave("L", ticket)

    def test_a_lock_is_released_however_the_subagent_ends(self, shop, way):
        locks = Locks()
        subagent = shop.helper(ScriptedLLM(TypeError("no")), lock="L")
        way.run(Loop(tools=[subagent], locks=locks), ScriptedLLM(asked_each(), "outer"))
        ticket = locks.enter("L")
        assert ticket.is_set

    def test_a_step_of_a_recipe_that_is_a_subagent_may_use_the_key_of_the_recipe(self, shop, way):
        class Resolver:
            def resolve(self, made):
                return "resolved"

            def dispatch_recipe(self, name):
                steps = {"parallel": [("helper", {"task": "t"})] * 2}
                return (lambda given: steps) if name == "both" else None

        model = lambda messages: works("L") if len(messages) == 1 else "in"  # noqa: E731
        subagent = shop.helper(model)
        both = tool({"name": "both"}, lock="L")
        loop = Loop(tools=[both, subagent], resolve_tool=Resolver(), max_seconds=5)
        result = way.run(loop, ScriptedLLM(calls(call("both", "b")), "outer"))
        assert isinstance(result, Ok)
        assert shop.most == {"L": 1}
        assert len(shop.log) == 2


def test_a_lock_that_is_in_use_is_not_a_failure_of_the_tool():
    """The call was not made, so the circuit breaker ignores it."""
    locks = Locks()
    locks.enter("L")

    @tool(lock="L")
    def work(n: int):
        return n

    script = [calls(call("work", n=n)) for n in range(4)]
    subagent = Loop(tools=[work]).as_tool("helper", "h", ScriptedLLM(*script, "in"), lock="mine")
    result = SYNC.run(Loop(tools=[subagent], locks=locks), ScriptedLLM(asked_each(), "outer"))
    assert answers(result.messages) == {"k": "in"}
