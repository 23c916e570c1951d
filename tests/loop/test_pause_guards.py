"""A pause does not affect guards: budgets, counts, cached results, repeated failures, loops."""

import copy

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import (
    BudgetExhausted,
    CircuitBreaker,
    CircuitBroken,
    DeadlineExceeded,
    Limits,
    Loop,
    LoopDetected,
    MaxIterationsReached,
    Ok,
    Paused,
    PendingCall,
    Response,
    ToolCall,
    ToolContext,
    Usage,
    approve,
    default_stages,
    deny,
    edit,
    stage,
    tool,
)
from treadle.stages import (
    circuit_breaker,
    dispatch_tools,
    loop_decision,
    parse_tool_calls,
    plan_calls,
    validate_calls,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, RecordedTools, answers, stored

WIPE = calls(call("wipe", "w", path="/"))


def resumed(loop, paused, model, decisions=None, **options):
    """Resume from a stored state, with every pending call approved."""
    decisions = decisions or {one.id: approve for one in paused.pending}
    return SYNC.resume(loop, stored(paused), decisions, model, **options)


def through(loop, model, **options):
    """Run to the end, over any number of pauses."""
    result = SYNC.run(loop, model, **options)
    while isinstance(result, Paused):
        result = resumed(loop, result, model)
    return result


def asking_about_texts(ctx):
    """A custom stage that asks a person about each text."""
    if ctx.tool_calls or "q" in ctx.approvals:
        return ctx
    return ctx.pause((PendingCall("q", "review", {}, "May it say so?"),))


class TestBudgets:
    """Usage from before a pause counts."""

    @pytest.mark.parametrize("most", [3, 4])
    def test_tool_calls_of_all_iterations(self, recorded, most):
        script = [
            calls(call("note", n=1), call("wipe", path="/")),
            calls(call("note", n=2), call("note", n=3)),
        ]
        result = through(recorded.loop(max_tool_calls=most), ScriptedLLM(*script, "done"))
        assert isinstance(result, Ok) is (most == 4)
        assert len(recorded.done) == result.tool_calls_count == most

    def test_a_denied_call_is_not_counted(self, recorded):
        model = ScriptedLLM(WIPE, calls(call("note", n=1)), "done")
        loop = recorded.loop(max_tool_calls=1)
        result = resumed(loop, SYNC.run(loop, model), model, {"w": deny()})
        assert isinstance(result, Ok)
        assert recorded.done == ["note 1"]

    @pytest.mark.parametrize("edits", [False, True])
    def test_a_call_that_was_denied_is_not_reserved_again_by_a_further_pause(self, recorded, edits):
        script = [
            calls(call("wipe", "a", path="/a"), call("wipe", "b", path="/b")),
            calls(*(call("note", n=n) for n in range(4))),
        ]

        def touch(ctx):
            for call_id, one in ctx.tool_results.items():
                ctx = ctx.edit_result(call_id, one.content)
            return ctx

        stages = (
            Loop().pipeline.insert_after("dispatch_tools", touch) if edits else default_stages()
        )
        loop, model = recorded.loop(max_tool_calls=2, stages=stages), ScriptedLLM(*script)
        result = SYNC.run(loop, model)
        for name in "ab":
            result = resumed(loop, result, model, {name: deny("no")})
        assert result.reason == BudgetExhausted("max_tool_calls", 2, 2)
        assert recorded.did == ["note 0", "note 1"]

    def test_uses_of_a_tool(self, recorded):
        recorded.tools[1] = tool(recorded.tools[1], max_uses=2)
        script = [calls(call("wipe", f"w{n}", path=f"/{n}")) for n in range(3)]
        result = through(recorded.loop(), ScriptedLLM(*script, "done"))
        assert recorded.done == ["wipe /0", "wipe /1"]
        assert (
            "has reached its maximum number of uses in a run, 2" in answers(result.messages)["w2"]
        )

    def test_tokens_and_cost_are_added_up_over_the_pause(self, recorded):
        def answer(made, usage=Usage(3, 4, cost=0.25)):  # noqa: B008 - frozen
            return Response(tool_calls=(ToolCall("w", "wipe", made),), usage=usage)

        model = ScriptedLLM(answer('{"path": "/"}'), Response("done", usage=Usage(5, 6, cost=0.5)))
        result = through(recorded.loop(), model)
        assert result.usage == result.run.total_usage == Usage(8, 10, 18, cost=0.75)
        unknown = ScriptedLLM(answer('{"path": "/"}', None), Response("done", usage=Usage(5, 6)))
        result = through(recorded.loop(), unknown)
        assert result.usage == Usage(5, 6, is_lower_bound=True)

    @pytest.mark.parametrize(
        ("limit", "reason"),
        [
            ({"limits": Limits(max_input_tokens=3)}, BudgetExhausted("max_input_tokens", 3, 3)),
            ({"limits": Limits(max_output_tokens=4)}, BudgetExhausted("max_output_tokens", 4, 4)),
            ({"max_total_tokens": 7}, BudgetExhausted("max_total_tokens", 7, 7)),
            ({"max_cost": 0.25}, BudgetExhausted("max_cost", 0.25, 0.25)),
        ],
    )
    def test_a_limit_that_is_exhausted_before_the_pause_ends_the_run_after_it(
        self, recorded, limit, reason
    ):
        answer = Response(
            tool_calls=(ToolCall("w", "wipe", '{"path": "/"}'),), usage=Usage(3, 4, cost=0.25)
        )
        with ScriptedLLM(answer) as model:
            result = through(recorded.loop(**limit), model)
        assert (result.reason, recorded.done) == (reason, ["wipe /"])

    def test_larger_limits_can_be_given_with_the_decision(self, recorded):
        batch = calls(call("wipe", "w", path="/"), call("note", "over", n=2))
        model = ScriptedLLM(batch, calls(call("note", n=2)), "done")
        loop = recorded.loop(max_tool_calls=1)
        paused = SYNC.run(loop, model)
        result = resumed(loop, paused, model, max_tool_calls=10)
        assert isinstance(result, Ok)
        assert recorded.done == ["wipe /", "note 2"]

    def test_a_last_answer_that_needs_approval_is_the_answer_after_the_pause(self, recorded):
        stages = Loop().pipeline.insert_before("loop_decision", asking_about_texts)
        loop = recorded.loop(stages=stages, max_iterations=1, limits=Limits(on_limit="finish"))
        model = ScriptedLLM(calls(call("note", n=1)), "so far")
        paused = SYNC.run(loop, model)
        assert paused.messages[-1]["content"] == "so far"
        result = resumed(loop, paused, model)
        assert result.unwrap().content == "so far"

    def test_a_call_does_not_run_with_arguments_that_a_person_has_replaced(self, recorded):
        def again(ctx):
            if ctx.approvals:  # the arguments of the model once more
                ctx = yield from validate_calls.fn(parse_tool_calls.fn(ctx))
                ctx = yield from plan_calls.fn(ctx)
            return (yield from dispatch_tools.fn(ctx))

        own = stage(again, name="again", requires=("plan",), provides=("tool_results",))
        stages = [own if one.name == "dispatch_tools" else one for one in default_stages()]
        loop, model = recorded.loop(stages=stages), ScriptedLLM(WIPE, "done")
        result = resumed(loop, SYNC.run(loop, model), model, {"w": edit({"path": "/a"})})
        assert "/" not in [path for _, path in map(str.split, recorded.done)]
        assert "not those that were approved" in answers(result.messages)["w"]

    def test_a_last_answer_is_requested_after_a_pause_too(self, recorded):
        model = ScriptedLLM(WIPE, "so far")
        result = through(recorded.loop(max_iterations=1, limits=Limits(on_limit="finish")), model)
        assert (result.stop_reason, result.limit) == ("finished", MaxIterationsReached(1))


class TestRepetition:
    """The results of a turn are kept over a pause."""

    def test_after_a_denied_call_earlier_results_stay_fresh(self, recorded):
        """A denied call returns nothing new."""
        script = [calls(call("note", "a", n=1)), WIPE, calls(call("note", "a2", n=1))]
        loop, model = recorded.loop(dedupe="strict"), ScriptedLLM(*script, "done")
        result = resumed(loop, SYNC.run(loop, model), model, {"w": deny()})
        assert recorded.done == ["note 1"]
        assert answers(result.messages)["a2"].startswith("Not run again")

    def test_an_edited_call_is_cached_with_the_arguments_it_ran_with(self, recorded):
        """By its `dedupe_fields`."""
        ran = []

        @tool(requires_approval=True, dedupe_fields=("to",))
        def send(to: str, text: str):
            ran.append((to, text))
            return "sent"

        first = calls(call("send", "s", to="eve", text="a"))
        again = calls(call("send", "t", to="bob", text="b"))
        loop, model = Loop(tools=[send], dedupe="strict"), ScriptedLLM(first, again, "done")
        paused = SYNC.run(loop, model)
        result = resumed(loop, paused, model, {"s": edit({"to": "bob", "text": "a"})})
        assert ran == [("bob", "a")]
        assert answers(result.messages)["t"].startswith("Not run again")

    def test_counts_continue_and_the_third_call_has_a_note(self, recorded):
        repeated = [calls(call("note", f"n{n}", n=1), call("pay", amount=n)) for n in range(3)]
        repeated[1]["tool_calls"].append(call("wipe", path="/"))
        result = through(recorded.loop(dedupe="off"), ScriptedLLM(*repeated, "done"))
        texts = answers(result.messages)
        assert ["[note: this is call number" in texts[f"n{n}"] for n in range(3)] == [0, 0, 1]
        assert "this is call number 3 of 'note'" in texts["n2"]

    @pytest.mark.parametrize("at", range(4))
    def test_a_pause_changes_neither_what_is_skipped_nor_when_a_loop_is_detected(self, at):
        """The call runs, is repeated, and skipped; then the run ends. A call next to it asks, in any iteration."""

        @tool
        def look(n: int):
            return "same"

        @tool(requires_approval=lambda given: len(model.sent) == at + 1)
        def wait():
            raise OSError("no")

        loop = Loop(tools=[look, wait], stages=[circuit_breaker(threshold=9), ...])
        batches = [calls(call("look", f"a{n}", n=1), call("wait", f"b{n}")) for n in range(5)]
        model = ScriptedLLM(*batches)
        result = resumed(loop, SYNC.run(loop, model), model)
        assert isinstance(result.reason, LoopDetected)
        texts = answers(result.messages)
        starts = [texts[f"a{n}"].partition(":")[0] for n in range(4)]
        assert starts == ["same", "same", "Not run again", "Not run again"]


class TestBreakers:
    """Repeated failures are counted over a pause."""

    @pytest.fixture
    def failing(self, recorded):
        @tool(requires_approval=lambda given: given["asks"])
        def fail(asks: bool, n: int):
            raise ValueError("no")

        recorded.tools.append(fail)
        return [calls(call("fail", asks=n == 1, n=n)) for n in range(5)]

    def test_the_circuit_breaker_of_the_run(self, recorded, failing):
        result = through(recorded.loop(), ScriptedLLM(*failing))
        assert result.reason == CircuitBroken("fail", "Error: ValueError: no", 3)

    def test_the_shared_breaker_counts_each_call_once(self, recorded, failing):
        breaker = CircuitBreaker(threshold=3)
        loop = recorded.loop(breaker=breaker, stages=[circuit_breaker(threshold=9), ...])
        model = ScriptedLLM(*failing[:2], "done")
        result = through(loop, model)
        assert (result.tool_calls_count, breaker.states["fail"]) == (2, "closed")
        SYNC.run(loop, ScriptedLLM(failing[2], "done"))
        assert breaker.states["fail"] == "open"

    def test_the_count_of_consecutive_blank_stops_is_kept(self, recorded):
        """The list of them is in the memo."""

        def asks(ctx):
            return ctx if ctx.iteration != 2 or ctx.approvals else ctx.pause((pending_call,))

        pending_call = PendingCall("q", "asks", {}, "?")
        loop = recorded.loop(stages=[asks, loop_decision(max_blank_stops=2), ...])
        result = through(loop, ScriptedLLM("", "", ""))
        assert (result.stop_reason, result.reason.attempts) == ("empty_response", 3)


# The clock of a run does not advance while it is paused.


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


HELPER = st.tuples(st.just("helper"), st.fixed_dictionaries({"task": st.sampled_from("xyz")}))
CALLS = st.one_of(
    HELPER,
    st.tuples(st.just("note"), st.fixed_dictionaries({"n": st.integers(0, 2)})),
    st.tuples(st.just("wipe"), st.fixed_dictionaries({"path": st.sampled_from("ab")})),
    st.tuples(st.just("pay"), st.fixed_dictionaries({"amount": st.sampled_from([50, 500])})),
    HELPER,
    st.tuples(st.just("nope"), st.just({})),
)
SCRIPTS = st.lists(st.lists(CALLS, min_size=1, max_size=4), min_size=1, max_size=3)
AMPLE = 99
OPTIONS = st.fixed_dictionaries(
    {
        "sequential": st.sampled_from(["defer", "in_step"]),
        "limits": st.builds(
            Limits,
            max_parallel_calls=st.integers(1, 3),
            on_limit=st.sampled_from(["stop", "finish"]),
        ),
        "max_tool_calls": st.none() | st.none() | st.integers(1, 6),
        "max_iterations": st.just(AMPLE + 1) | st.integers(2, 12),
        "loop_threshold": st.sampled_from([None, 2, 3]),
        "dedupe": st.sampled_from(["evidence", "strict", "off"]),
    }
)


def scripted(script):
    return [
        calls(*(call(name, f"c{at}.{place}", **given) for place, (name, given) in enumerate(batch)))
        for at, batch in enumerate(script)
    ]


def family(options, needs_approval):
    """Recorded tools, and a subagent with the same ones, whose model depends on its history.

    If a budget may be exhausted, its calls run alone: which of several would get the rest is random.
    """
    recorded = RecordedTools()
    tools = [
        one if needs_approval else tool(one, requires_approval=False) for one in recorded.tools
    ]

    def model(messages):
        done = sum(message["role"] == "assistant" for message in messages)
        task = messages[0]["content"]
        batch = calls(
            call("note", f"{task}{done}n", n=7), call("wipe", f"{task}{done}w", path=task)
        )
        return batch if done < 2 else f"did {task}"

    inner = Loop(tools=tools, sequential="in_step", limits=Limits(max_parallel_calls=1))
    is_ample = options["max_tool_calls"] is None and options["max_iterations"] > AMPLE
    subagent = inner.as_tool("helper", "Helps.", model, parallel_safe=is_ample)
    return recorded, [*tools, subagent]


def partly_resumed(loop, paused, model, choose, decision):
    """Resume with decisions on some of the pending calls."""
    ids = [one.id for one in paused.pending]
    picked = {call_id: decision for call_id in ids if choose()}
    return resumed(loop, paused, model, picked or {ids[0]: decision})


def nodes(result):
    """What the state of a run has of each iteration, and of its calls."""
    return [
        (node.metadata, sorted((one.name, one.status) for one in node.tool_calls))
        for node in result.run.nodes
    ]


@settings(max_examples=40)
@given(SCRIPTS, OPTIONS, st.data())
def test_with_every_call_approved_the_result_is_that_of_a_run_without_approvals(
    script, options, data
):
    recorded, tools = family(options, needs_approval=True)
    loop, model = Loop(tools=tools, **options), ScriptedLLM(*scripted(script), "done", "end", "end")
    result = SYNC.run(loop, model)
    while isinstance(result, Paused):
        before = copy.deepcopy(result.state)
        pause = result
        result = partly_resumed(loop, pause, model, lambda: data.draw(st.booleans()), approve)
        assert pause.state == before
    free_recorded, free_tools = family(options, needs_approval=False)
    free = SYNC.run(
        Loop(tools=free_tools, **options), ScriptedLLM(*scripted(script), "done", "end", "end")
    )
    assert result.messages == free.messages
    assert recorded.did == free_recorded.did
    assert nodes(result) == nodes(free)
    assert (result.stop_reason, result.iterations, result.tool_calls_count, result.usage) == (
        free.stop_reason,
        free.iterations,
        free.tool_calls_count,
        free.usage,
    )


@settings(max_examples=20)
@given(SCRIPTS, OPTIONS, st.data())
def test_with_every_call_denied_no_call_that_needs_approval_runs(script, options, data):
    recorded, tools = family(options, needs_approval=True)
    loop, model = Loop(tools=tools, **options), ScriptedLLM(*scripted(script), "done", "end", "end")
    result = SYNC.run(loop, model)
    while isinstance(result, Paused):
        result = partly_resumed(loop, result, model, lambda: data.draw(st.booleans()), deny("no"))
    assert not any(done.startswith(("wipe", "pay 500")) for done in recorded.done)
    nodes = [made for node in result.run.nodes for made in node.tool_calls]
    assert len(nodes) == result.tool_calls_count
