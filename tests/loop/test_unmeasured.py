"""A limit that cannot be measured is not a limit: it ends the run, is estimated, or is ignored on purpose."""

import json
import math

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import (
    BudgetExhausted,
    Chunk,
    Err,
    LimitNotMeasurable,
    Limits,
    Loop,
    MaxIterationsReached,
    Ok,
    Response,
    RunHandle,
    ToolCall,
    ToolContext,
    Usage,
    approve,
    tool,
)
from treadle.messages import CallChunk
from treadle.testing import ScriptedLLM, call, calls

from .children import asked_each, subagent_run
from .conftest import SYNC, Way, answers
from .notes import completion, endless, note, notes

TOKEN_LIMITS = ("max_input_tokens", "max_output_tokens", "max_total_tokens")
ESTIMATE = Limits(unmeasured="estimate")


def streamed(n, usage=None):
    """The chunks of a response that notes a number."""
    made = CallChunk(0, f"i{n}", "note", json.dumps({"n": n}))
    return [Chunk(tool_calls=(made,)), Chunk(finish_reason="tool_calls"), Chunk(usage=usage)]


def run(*script, way=SYNC, tools=(note,), handle=None, **options):
    """The result of a run with a script of responses, or with a model."""
    model = script[0] if script[0] is endless else ScriptedLLM(*script)
    return way.run(Loop(tools=tools, **options), model, handle=handle)


class TestStop:
    """By default the run ends before another model call."""

    @pytest.mark.parametrize("kind", TOKEN_LIMITS)
    def test_a_token_limit_ends_the_run_after_a_response_without_usage(self, way, kind):
        result = run(completion(notes(1)), notes(2), way=way, limits=Limits(**{kind: 100}))
        assert isinstance(result.reason, LimitNotMeasurable)
        assert (result.reason.kind, result.reason.missing) == (kind, "usage")
        assert result.stop_reason == "limit_not_measurable"
        assert answers(result.messages)["i2"] == "noted 2"

    def test_an_answer_without_usage_is_an_answer(self, way):
        assert isinstance(run("Hello", way=way, max_total_tokens=1, max_cost=0.01), Ok)

    @pytest.mark.parametrize(
        "usage",
        [
            {},
            {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
            {"completion_tokens": 5},
            {"total_tokens": 5},
            {"cost": 0.1},
        ],
    )
    def test_a_part_of_the_usage_is_not_enough(self, usage):
        script = {"choices": [{"message": notes(1)}], "usage": usage}, "never"
        result = run(*script, limits=Limits(max_input_tokens=100))
        assert result.stop_reason == "limit_not_measurable"

    def test_a_limit_that_is_known_to_be_reached_is_named_instead(self):
        partly = {"choices": [{"message": notes(1)}], "usage": {"prompt_tokens": 500}}
        result = run(partly, limits=Limits(max_input_tokens=100))
        assert result.reason == BudgetExhausted("max_input_tokens", 100, 500)

    def test_zero_tokens_of_a_backend_that_counts_are_measured(self):
        """A cached answer, for example; the backend says so itself."""
        cached = Response(tool_calls=(ToolCall("i1", "note", '{"n": 1}'),), usage=Usage())
        assert isinstance(run(cached, "Hello", max_total_tokens=9), Ok)

    def test_a_message_that_arrives_with_the_answer_is_kept_and_not_sent(self):
        handle = RunHandle()

        def answer(messages):
            handle.steer("One more thing.")
            return "Hello"

        result = run(answer, max_total_tokens=100, handle=handle)
        assert result.stop_reason == "limit_not_measurable"
        assert result.messages[-1]["content"] == "One more thing."


class TestCost:
    """A limit of cost needs the cost of each response."""

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"limits": Limits(cost_of=lambda response: None)},
            {"limits": Limits(cost_of=lambda response: response.nothing)},
            {"limits": Limits(cost_of=lambda response: -1)},
            {"limits": Limits(cost_of=lambda response: math.nan)},
            {"limits": Limits(cost_of=lambda response: "free")},
        ],
        ids=["none", "None", "raises", "negative", "nan", "text"],
    )
    def test_without_a_known_cost_the_run_ends(self, way, options):
        result = run(completion(notes(1)), way=way, max_cost=5, **options)
        assert (result.reason.kind, result.reason.missing) == ("max_cost", "cost")

    def test_cost_of_that_needs_no_usage_is_enough(self, way):
        limits = Limits(cost_of=lambda response: 0.5)
        result = run(notes(1), notes(2), way=way, max_cost=1, limits=limits)
        assert result.reason == BudgetExhausted("max_cost", 1, 1.0)

    def test_a_reported_cost_needs_no_tokens(self):
        free = {"choices": [{"message": notes(1)}], "usage": {"cost": 0.25}}
        assert isinstance(run(free, "Hi", max_cost=1), Ok)


STREAM = 'a streamed response has it with stream_options={"include_usage": True}'
IGNORE = 'Limits(unmeasured="ignore") runs without this limit'
USAGE = (
    "max_total_tokens cannot be measured: the usage of a response is not known; return it with the response, as "
    f"Response(usage=...) and chat completions do; {STREAM}; "
    f'Limits(unmeasured="estimate") counts an estimate, {IGNORE}'
)
COST = (
    "max_cost cannot be measured: the cost of a response is not known; Limits(cost_of=...) has to return US "
    "dollars for each response that does not report its cost; pip install 'treadle[prices]' has the prices of "
    f"models at their own providers, which need the usage: {STREAM}; {IGNORE}"
)


@pytest.mark.parametrize(
    ("response", "limit", "text"),
    [
        (notes(1), "max_total_tokens", USAGE),
        (streamed(1), "max_total_tokens", USAGE),
        (completion(notes(1)), "max_cost", COST),
        (streamed(1), "max_cost", COST),
        (streamed(1, Usage(1, 2)), "max_cost", COST),
    ],
    ids=["response", "stream", "cost", "cost of a stream without usage", "cost of a stream"],
)
def test_the_text_of_the_reason_says_what_to_do(response, limit, text):
    assert str(run(response, **{limit: 9}).reason) == text


def test_a_last_answer_without_usage_is_an_answer():
    limits = Limits(max_total_tokens=100, max_iterations=1, on_limit="finish")
    result = run(completion(notes(1)), "So far.", limits=limits)
    assert (result.stop_reason, result.limit) == ("finished", MaxIterationsReached(1))


class TestIgnore:
    """The run goes on without the limits that cannot be measured."""

    def test_other_limits_end_it(self, way):
        limits = Limits(3, max_total_tokens=1, max_cost=1e-9, unmeasured="ignore")
        assert run(endless, way=way, limits=limits).reason == MaxIterationsReached(3)

    def test_what_is_reported_counts(self):
        script = completion(notes(1)), notes(2), completion(notes(3))
        result = run(*script, max_total_tokens=10, limits=Limits(unmeasured="ignore"))
        assert result.reason == BudgetExhausted("max_total_tokens", 10, 10)
        assert result.usage == Usage(4, 6, is_lower_bound=True)


class TestEstimate:
    """Tokens that no provider counts are estimated from the texts."""

    def test_it_counts_four_characters_as_a_token(self, way):
        """What was sent, tools and instructions included, and what was received."""
        name = Loop(tools=[note]).tools["note"].as_openai()
        sent = len("user" + "Hi" + "Be brief.") + len(json.dumps(name, ensure_ascii=False))
        result = run("Hello there", way=way, instructions="Be brief.", limits=ESTIMATE)
        assert result.usage == Usage(math.ceil(sent / 4), 3, is_estimate=True)
        assert result.usage == result.run.total_usage == result.run.nodes[0].usage
        assert result.unwrap().usage == result.usage

    def test_it_counts_towards_the_limits(self, way):
        result = run(endless, way=way, max_total_tokens=500, max_iterations=99, limits=ESTIMATE)
        assert result.reason.kind == "max_total_tokens"
        assert 500 <= result.reason.used < 800
        assert (result.usage.is_estimate, result.usage.is_lower_bound) == (True, False)

    def test_a_last_answer_is_made(self):
        limits = Limits(max_total_tokens=10, on_limit="finish", unmeasured="estimate")
        assert run(notes(1), "So far.", limits=limits).stop_reason == "finished"

    def test_reported_usage_is_not_estimated(self):
        assert run(completion("Hello"), limits=ESTIMATE).usage == Usage(2, 3)

    def test_one_estimate_marks_the_sum(self):
        result = run(completion(notes(1)), "Hello", limits=ESTIMATE)
        assert result.usage.is_estimate
        assert [node.usage.is_estimate for node in result.run.nodes] == [False, True]

    def test_cost_of_is_asked_with_the_estimate(self):
        seen = []

        def cost_of(response):
            seen.append(response.usage)
            return response.usage.output_tokens * 0.5

        result = run(notes(1), limits=Limits(max_cost=1, cost_of=cost_of, unmeasured="estimate"))
        assert result.reason == BudgetExhausted("max_cost", 1, seen[0].output_tokens * 0.5)
        assert seen[0].is_estimate

    def test_it_does_not_make_up_a_cost(self):
        assert run(notes(1), max_cost=1, limits=ESTIMATE).reason.missing == "cost"

    def test_a_paused_run_keeps_it(self):
        @tool(requires_approval=True)
        def sign(n: int):
            return f"signed {n}"

        loop = Loop(tools=[sign], max_total_tokens=10_000, limits=ESTIMATE)
        paused = SYNC.run(loop, ScriptedLLM(calls(call("sign", "s", n=1))))
        result = SYNC.resume(
            loop, json.dumps(paused.state), {"s": approve}, ScriptedLLM(completion("Hello"))
        )
        assert result.usage == paused.usage.plus(Usage(2, 3))
        assert result.usage.is_estimate

    def test_what_remains_is_marked(self):
        seen = []

        @tool
        def look(context: ToolContext):
            seen.append(context.remaining)

        limits = Limits(max_total_tokens=10_000, unmeasured="estimate", show_budget=True)
        with ScriptedLLM(calls(call("look")), "Hello") as model:
            SYNC.run(Loop(tools=[look], limits=limits), model)
        assert (seen[0].is_estimate, seen[0].is_upper_bound) == (True, False)
        assert ", about 9," in model.sent[1].messages[-1]["content"]


def helper(*script, **options):
    return Loop(tools=[note], **options).as_tool("helper", "Helps.", ScriptedLLM(*script))


class TestSubagents:
    """Responses of a subagent count for the limits of its parent, so they have to be measurable too."""

    def test_a_response_of_a_subagent_without_usage_ends_both(self, way):
        tools = [helper(notes(1))]
        result = run(completion(asked_each()), way=way, tools=tools, max_total_tokens=100)
        assert result.reason.kind == "max_total_tokens"
        assert subagent_run(result).error.startswith("max_total_tokens cannot be measured")

    def test_its_own_limit_ends_only_the_subagent(self):
        result = run(asked_each(), "Hello", tools=[helper(notes(1), max_total_tokens=9)])
        assert isinstance(result, Ok)
        assert "max_total_tokens cannot be measured" in answers(result.messages)["k"]

    def test_it_inherits_cost_of(self, way):
        limits = Limits(max_cost=1.5, cost_of=lambda response: 0.5)
        result = run(asked_each(), way=way, tools=[helper(notes(1), notes(2))], limits=limits)
        assert result.reason == BudgetExhausted("max_cost", 1.5, 1.5)

    def test_its_own_cost_of_is_used_for_its_responses(self):
        subagent = helper("in", limits=Limits(cost_of=lambda response: 0.25))
        limits = Limits(cost_of=lambda response: 2)
        result = run(asked_each(), "Hello", tools=[subagent], limits=limits)
        assert result.usage.cost == 4.25

    @pytest.mark.parametrize(
        ("outer", "inner", "stops"),
        [
            ("estimate", None, False),
            ("ignore", None, False),
            (None, "ignore", True),
            (None, "estimate", True),
            ("estimate", "ignore", False),
            ("ignore", "stop", False),
        ],
    )
    def test_it_inherits_unmeasured_and_cannot_void_the_limit_of_its_parent(
        self, outer, inner, stops
    ):
        subagent = helper(notes(1), "in", limits=Limits(unmeasured=inner))
        limits = Limits(max_total_tokens=10_000, unmeasured=outer)
        script = completion(asked_each()), completion("Hello")
        result = run(*script, tools=[subagent], limits=limits)
        assert isinstance(result, Err if stops else Ok)
        assert result.usage.is_estimate is ("estimate" in {outer, inner})

    def test_an_inherited_policy_holds_for_its_own_limits(self):
        subagent = helper(notes(1), "in", max_total_tokens=1)
        limits = Limits(unmeasured="ignore")
        result = run(asked_each(), "Hello", tools=[subagent], limits=limits)
        assert answers(result.messages)["k"] == "in"


class TestLowerBounds:
    """What was sent may have been paid for, whatever became of it."""

    def assert_unknown(self, result, usage):
        assert result.usage == result.run.total_usage == usage

    def test_an_attempt_that_failed(self, way):
        script = ConnectionError("busy"), completion("Hello")
        result = way.run(Loop(retry_delay=0), ScriptedLLM(*script))
        self.assert_unknown(result, Usage(2, 3, is_lower_bound=True))

    def test_an_attempt_that_failed_does_not_end_a_run_with_limits(self, way):
        """Else every overloaded server would."""
        script = ConnectionError("busy"), completion(notes(1), 0.25), completion("Hello", 0.25)
        loop = Loop(tools=[note], retry_delay=0, max_total_tokens=100, max_cost=1)
        result = way.run(loop, ScriptedLLM(*script))
        assert isinstance(result, Ok)
        assert result.usage.is_lower_bound

    @pytest.mark.parametrize("ends", ["deadline", "handle", "task"])
    @pytest.mark.parametrize("is_streamed", [False, True])
    def test_a_request_that_was_interrupted(self, clock, ends, is_streamed):
        handle, scopes = RunHandle(), []

        async def interrupt():
            if ends == "deadline":
                clock.limit.strike()
            elif ends == "handle":
                handle.cancel()
            else:
                scopes[0].cancel()
            await anyio.sleep(30)

        async def whole(messages):
            if len(messages) == 1:
                return completion(notes(1))
            return await interrupt()

        async def pieces(messages):
            if len(messages) == 1:
                for piece in streamed(1, Usage(2, 3)):
                    yield piece
            else:
                yield "Hel"
                await interrupt()

        options = {"max_seconds": 9, "middleware": [clock.middleware]} if ends == "deadline" else {}
        loop = Loop(tools=[note], handle=handle, **options)

        async def go():
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                await loop.run("Hi", pieces if is_streamed else whole)

        anyio.run(go)
        self.assert_unknown(handle.result, Usage(2, 3, is_lower_bound=True))

    def test_a_cancellation_before_anything_is_sent_changes_nothing(self, way):
        handle = RunHandle()

        @tool
        def leave(n: int):
            handle.cancel()

        with ScriptedLLM(completion(calls(call("leave", n=1)))) as model:
            result = way.run(Loop(tools=[leave]), model, handle=handle)
        self.assert_unknown(result, Usage(2, 3))

    def test_a_request_of_a_subagent_counts_for_its_parent(self, way):
        async def hang(messages):
            await anyio.sleep(30)

        subagent = Loop().as_tool("helper", "Helps.", hang, timeout=0.01)
        script = completion(asked_each()), completion("Hello")
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(*script))
        assert result.usage == Usage(4, 6, is_lower_bound=True)
        assert subagent_run(result).total_usage == Usage(is_lower_bound=True)


USAGES = st.none() | st.builds(Usage, st.integers(0, 50), st.integers(0, 50))


@given(
    st.lists(st.tuples(USAGES, st.sampled_from(["call", "blank", "text"])), max_size=6),
    st.sampled_from(TOKEN_LIMITS),
    st.sampled_from(["stop", "finish"]),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from(["sync", "asyncio"]),
)
def test_with_a_token_limit_no_request_follows_a_response_without_usage(
    script, kind, on_limit, max_iterations, is_streamed, backend
):
    asked = []

    def model(messages, **opts):
        usage, what = script[len(asked)] if len(asked) < len(script) else (Usage(1, 1), "text")
        asked.append(usage)
        made = ToolCall(f"i{len(asked)}", "note", json.dumps({"n": len(asked)}))
        text = "Hello" if what == "text" else None
        if is_streamed:
            return iter(
                [
                    Chunk(text or ""),
                    *(streamed(len(asked), usage) if what == "call" else [Chunk(usage=usage)]),
                ]
            )
        return Response(text, (made,) if what == "call" else (), usage=usage)

    loop = Loop(tools=[note], limits=Limits(max_iterations, on_limit=on_limit, **{kind: 200}))
    result = Way(backend).run(loop, model)
    assert None not in asked[:-1]
    if asked and asked[-1] is None and isinstance(result, Err):
        assert result.stop_reason in {
            "limit_not_measurable",
            "max_iterations_reached",
            "empty_response",
        }
