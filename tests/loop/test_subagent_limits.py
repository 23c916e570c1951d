"""A child draws on what the run around it has left, and ends where that ends."""

import random

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import (
    BudgetExhausted,
    LimitReached,
    Loop,
    MaxIterationsReached,
    Ok,
    Response,
    ToolCall,
    ToolContext,
    Usage,
    approve,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls, check_history

from .children import asked_each, child_of
from .conftest import SYNC, Way, answers, of
from .notes import note


def busy(messages):
    """A model that calls one tool after another, always another call."""
    return calls(call("note", n=len(messages)))


def helper(model, **options):
    return Loop(tools=[note], **options).as_tool("helper", "Helps.", model)


class TestBudgets:
    """What a child uses, its parent has used."""

    def test_iterations(self, way):
        result = way.run(Loop(tools=[helper(busy)], max_iterations=5), ScriptedLLM(asked_each()))
        assert child_of(result).iterations == 4
        assert answers(result.messages)["k"].endswith("no answer within max_iterations=5")
        assert (result.reason, result.iterations) == (MaxIterationsReached(5), 1)

    def test_the_tighter_of_the_two_counts(self, way):
        child = helper(busy, max_iterations=2)
        result = way.run(Loop(tools=[child], max_iterations=5), ScriptedLLM(asked_each(), "outer"))
        assert answers(result.messages)["k"].endswith("no answer within max_iterations=2")
        assert isinstance(result, Ok)

    def test_where_nothing_is_left_the_childs_model_is_not_asked(self, way):
        with ScriptedLLM() as inner:
            loop = Loop(tools=[helper(inner)], max_iterations=1)
            result = way.run(loop, ScriptedLLM(asked_each()))
        assert result.stop_reason == "max_iterations_reached"
        assert child_of(result).iterations == 0
        check_history(child_of(result).messages)

    def test_tool_calls(self, way):
        """The call of the child is one of them."""
        loop = Loop(tools=[helper(busy), note], max_tool_calls=4)
        result = way.run(loop, ScriptedLLM(asked_each(), calls(call("note", "n", n=0))))
        inner = child_of(result)
        assert sum(len(node.tool_calls) for node in inner.nodes) == 3
        assert "the budget of 4 tool calls is spent" in inner.messages[-1]["content"]
        assert answers(result.messages)["k"].endswith("max_tool_calls=4, used 4")
        assert result.reason == BudgetExhausted("max_tool_calls", 4, 4)

    def test_tool_calls_that_the_child_may_not_make_it_does_not_make(self, way):
        """Of a batch that exceeds the budget, the rest is answered as over budget."""
        inner = ScriptedLLM(calls(*(call("note", f"n{n}", n=n) for n in range(5))))
        result = way.run(
            Loop(tools=[helper(inner)], max_tool_calls=3), ScriptedLLM(asked_each(), "x")
        )
        texts = answers(child_of(result).messages)
        assert [text.startswith("noted") for text in texts.values()] == [1, 1, 0, 0, 0]

    def test_tool_calls_that_its_time_limit_kept_from_running_are_not_counted(self, way, clock):
        @tool(parallel_safe=False)
        async def hang(n: int):
            clock.limit.strike()
            await anyio.sleep(30)

        inner = ScriptedLLM(calls(*(call("hang", n=n) for n in range(4))))
        child = Loop(tools=[hang], sequential="in_step").as_tool("helper", "h", inner, timeout=9)
        loop = Loop(tools=[child, note], max_tool_calls=5, middleware=[clock.middleware])
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
            ({"max_input_tokens": 12}, "max_input_tokens"),
            ({"max_output_tokens": 12}, "max_output_tokens"),
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
        assert child_of(result).iterations == 2
        assert result.reason.kind == kind
        assert result.usage == Usage(12, 12, cost=pytest.approx(1.1))

    def test_unreported_tokens_make_those_of_the_parent_a_lower_bound(self):
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        outer = [{"choices": [{"message": asked_each()}], "usage": usage}]
        result = SYNC.run(Loop(tools=[helper(ScriptedLLM("in"))]), ScriptedLLM(*outer, "x"))
        assert result.usage.is_lower_bound

    def test_uses_of_a_tool_are_counted_for_each_run(self):
        once = tool(note, max_uses=1)
        loop = Loop(tools=[once])
        child = loop.as_tool("helper", "h", ScriptedLLM(calls(call("note", "i", n=1)), "in"))
        batch = calls(call("note", "n", n=1), *asked_each()["tool_calls"])
        result = SYNC.run(Loop(tools=[child, once]), ScriptedLLM(batch, "outer"))
        assert answers(result.messages)["n"] == "noted 1"
        assert answers(child_of(result, 1).messages)["i"] == "noted 1"

    def test_a_tool_of_the_child_sees_the_tightest_remaining_limits(self):
        seen = []

        @tool
        def look(context: ToolContext):
            seen.append(context.remaining)

        inner = Loop(tools=[look], max_iterations=4, max_tool_calls=20)
        child = inner.as_tool("helper", "h", ScriptedLLM(calls(call("look")), "in"))
        loop = Loop(tools=[child], max_iterations=9, max_tool_calls=8, max_total_tokens=100)
        SYNC.run(loop, ScriptedLLM(asked_each(), "outer"))
        assert (seen[0].iterations, seen[0].tool_calls, seen[0].total_tokens) == (3, 6, 100)

    @pytest.mark.parametrize("on_limit", ["stop", "finish"])
    def test_a_childs_last_answer_is_not_made_with_what_the_parent_has_not(self, way, on_limit):
        events = []
        child = helper(busy, max_iterations=99, on_limit=on_limit, on_event=events.append)
        result = way.run(Loop(tools=[child], max_iterations=3), ScriptedLLM(asked_each()))
        assert (child_of(result).iterations, result.iterations) == (2, 1)
        assert len(of(events, LimitReached)) == 1
        assert answers(result.messages)["k"].startswith("Error: 'helper' gave no answer")

    def test_a_childs_last_answer_counts_for_the_parent(self):
        inner = ScriptedLLM(calls(call("note", n=1)), "so far")
        child = helper(inner, max_iterations=1, on_limit="finish")
        result = SYNC.run(
            Loop(tools=[child], max_iterations=3), ScriptedLLM(asked_each(), asked_each("l"))
        )
        assert answers(result.messages)["k"] == "so far"
        assert result.reason == MaxIterationsReached(3)

    def test_what_was_used_before_a_pause_is_used_after_it(self):
        @tool(requires_approval=True)
        def sign(n: int):
            return "signed"

        inner = Loop(tools=[sign, note])
        model = ScriptedLLM(calls(call("sign", "s", n=1)), *[busy] * 9)
        child = inner.as_tool("helper", "h", model)
        loop = Loop(tools=[child], max_iterations=4, max_tool_calls=3)
        paused = SYNC.run(loop, ScriptedLLM(asked_each()))
        result = SYNC.resume(loop, paused, {"k/s": approve}, ScriptedLLM("outer"))
        assert result.reason == MaxIterationsReached(4)
        assert answers(result.messages)["k"].endswith("max_tool_calls=3, used 3")
        run = child_of(result)
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
def test_children_side_by_side_never_overshoot_together(
    children, iterations, tool_calls, on_limit, backend, seed
):
    """However they interleave: each takes what it uses before it uses it."""
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
        return asked_each(*(f"k{len(messages)}.{n}" for n in range(children)))

    child = Loop(tools=[act], on_limit=on_limit, max_iterations=3).as_tool("helper", "h", inner)
    loop = Loop(tools=[child], max_iterations=iterations, max_tool_calls=tool_calls)
    result = Way(backend).run(loop, outer)
    assert len(asked_models) <= iterations
    # The calls of the children are calls of tools, too.
    assert len(ran) + result.tool_calls_count <= tool_calls
    for node in result.run.nodes:
        for made in node.tool_calls:
            check_history(made.run.messages)
