"""Runs within runs, pauses, last answers, calls that never ran: the spans of what is new in a run."""

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from treadle import CircuitBreaker, Locks, Loop, approve, tool
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

USER = [{"role": "user", "content": "Hi"}]


@tool
def double(n: int):
    return n * 2


@tool
def fail():
    raise ValueError("x" * 5000)


@tool(requires_approval=True)
def sign(n: int):
    return "signed"


def asked(*ids):
    return calls(*(call("helper", call_id, task=call_id) for call_id in ids or ("k",)))


def helper(*script, name="kid", **options):
    loop = Loop(tools=[double, fail, sign], name=name, **options)
    return loop.as_tool("helper", "Helps.", ScriptedLLM(*script))


def parents(telemetry):
    """The name of each span with the names of those around it, the outermost last."""
    by_id = {span.context.span_id: span for span in telemetry.spans}
    paths = []
    for span in telemetry.spans:
        path, at = [span.name], span
        while at.parent is not None:
            at = by_id[at.parent.span_id]
            path.append(at.name)
        paths.append(tuple(path))
    return sorted(paths)


class TestChildren:
    """The spans of a child are within that of its call."""

    def test_they_nest(self, run, telemetry):
        child = helper(calls(call("double", "i", n=1)), "in")
        run(asked(), "out", tools=[child], name="bot")
        bot = ("invoke_agent bot",)
        kid = ("invoke_agent kid", "execute_tool helper", *bot)
        assert parents(telemetry) == sorted(
            [
                bot,
                ("chat", *bot),
                ("chat", *bot),
                ("execute_tool helper", *bot),
                kid,
                ("chat", *kid),
                ("chat", *kid),
                ("execute_tool double", *kid),
            ]
        )

    def test_children_of_children_too(self, run, telemetry):
        inner = helper(calls(call("double", "i", n=1)), "three", name="three")
        middle = Loop(tools=[inner], name="two")
        child = middle.as_tool("helper", "Helps.", ScriptedLLM(asked("m"), "two"))
        run(asked(), "one", tools=[child], name="one")
        deepest = ("execute_tool double", "invoke_agent three", "execute_tool helper")
        assert (*deepest, "invoke_agent two", "execute_tool helper", "invoke_agent one") in parents(
            telemetry
        )
        assert len(telemetry.spans) == 3 + 6 + 1 + 2

    def test_side_by_side_each_has_its_own(self, run, telemetry):
        """Though their calls have the same ids."""

        def model(messages):
            n = int(messages[0]["content"][1:])
            return calls(call("double", "same", n=n)) if len(messages) == 1 else "in"

        child = Loop(tools=[double], name="kid").as_tool("helper", "Helps.", model)
        run(asked("k1", "k2", "k3"), "out", tools=[child])
        calls_made = {
            span.context.span_id: span.attributes[names.TOOL_CALL_ID]
            for span in telemetry.named("execute_tool helper")
        }
        kids = telemetry.named("invoke_agent kid")
        assert {calls_made[kid.parent.span_id] for kid in kids} == {"k1", "k2", "k3"}
        for kid in kids:
            within = [
                s for s in telemetry.spans if s.parent and s.parent.span_id == kid.context.span_id
            ]
            assert sorted(span.name for span in within) == ["chat", "chat", "execute_tool double"]
            assert kid.attributes["treadle.run.id"].endswith(f"/{calls_made[kid.parent.span_id]}")

    def test_a_child_has_its_facts_and_is_told_complete_once(self, run, telemetry):
        child = helper(calls(call("double", "i", n=1)), "in")
        result = run(asked(), "out", tools=[child], name="bot")
        kid = telemetry.one("invoke_agent kid")
        assert kid.attributes == {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "kid",
            "treadle.run.id": f"{result.run.run_id}/k",
            "treadle.total_iterations": 2,
            "treadle.tool_calls_count": 1,
            "treadle.stop_reason": "answered",
        }
        assert kid.kind is SpanKind.INTERNAL
        told = [event.name for event in kid.events]
        assert told == [names.ITERATION_END, names.ITERATION_END, names.COMPLETE]
        _, points = telemetry.points(names.ITERATIONS_METRIC)
        assert sorted(point.attributes[names.AGENT_NAME] for point in points) == ["bot", "kid"]

    def test_a_child_that_fails_says_why_and_its_call_is_a_tool_error(self, run, telemetry):
        child = helper(calls(call("double", n=1)), max_iterations=1)
        run(asked(), "out", tools=[child])
        kid, made = telemetry.one("invoke_agent kid"), telemetry.one("execute_tool helper")
        assert kid.attributes["error.type"] == "max_iterations_reached"
        assert made.attributes["error.type"] == "tool_error"
        assert "error.type" not in telemetry.one("invoke_agent").attributes

    def test_a_tool_of_a_child_that_fails_is_one_of_it(self, run, telemetry):
        child = helper(calls(call("fail", "i")), "in")
        run(asked(), "out", tools=[child])
        assert telemetry.one("execute_tool fail").attributes["error.type"] == "tool_error"
        assert telemetry.one("execute_tool helper").status.status_code is StatusCode.UNSET

    def test_what_a_childs_tool_or_model_traces_itself_is_within_it(self, run, telemetry):
        mine = telemetry.tracers.get_tracer("mine")

        @tool
        def work():
            with mine.start_as_current_span("in the tool"):
                return 1

        def model(messages):
            with mine.start_as_current_span(f"in the model {len(messages)}"):
                return calls(call("work", "i")) if len(messages) == 1 else "in"

        child = Loop(tools=[work], name="kid").as_tool("helper", "Helps.", model)
        run(asked(), "out", tools=[child])
        paths = {path[0]: path[1:3] for path in parents(telemetry)}
        assert paths["in the tool"] == ("execute_tool work", "invoke_agent kid")
        assert paths["in the model 1"] == ("chat", "invoke_agent kid")
        assert paths["in the model 3"] == ("chat", "invoke_agent kid")

    def test_a_child_that_is_ended_with_its_parent_leaves_no_span_open(self, run, telemetry):

        @tool
        async def hang():
            await anyio.sleep(30)

        loop = Loop(tools=[hang], name="kid")
        child = loop.as_tool("helper", "Helps.", ScriptedLLM(calls(call("hang", "h"))))
        run(asked(), tools=[child], max_seconds=0.1)
        kinds = {span.name: span.attributes.get("error.type") for span in telemetry.spans}
        assert kinds == {
            "invoke_agent": "deadline_exceeded",
            "chat": None,
            "execute_tool helper": "deadline_exceeded",
            "invoke_agent kid": "cancelled",
            "execute_tool hang": "cancelled",
        }

    def test_providers_of_the_childs_own_are_none_of_the_runs(self, telemetry):
        """One trace has one exporter: that of the run."""
        child = helper("in", tracer_provider=telemetry.tracers)
        Loop.run_sync(USER, ScriptedLLM(asked(), "out"), tools=[child])
        assert telemetry.spans == []

    def test_no_span_is_current_for_a_childs_observers(self, run, telemetry):
        seen = []
        child = helper("in", on_event=lambda event: seen.append(trace.get_current_span()))
        run(asked(), "out", tools=[child])
        assert len(seen) == 5
        assert not any(span.get_span_context().is_valid for span in seen)


class TestPaused:
    """A pause is an end like others, and no failure."""

    def test_the_run_is_paused_and_the_next_resumed_is_a_span_of_its_own(self, telemetry):
        loop = Loop(tools=[double, sign], name="bot", **telemetry.options)
        batch = calls(call("double", "a", n=1), call("sign", "b", n=1))
        model = ScriptedLLM(batch, "done")
        paused = loop.run_sync(USER, model)
        agent = telemetry.one("invoke_agent bot")
        assert agent.attributes["treadle.stop_reason"] == "paused"
        assert agent.attributes["treadle.tool_calls_count"] == 1
        assert agent.status.status_code is StatusCode.UNSET
        assert "error.type" not in agent.attributes
        assert telemetry.named("execute_tool sign") == []
        loop.resume_sync(paused, {"b": approve}, model)
        first, second = telemetry.named("invoke_agent bot")
        assert first.attributes["treadle.run.id"] == second.attributes["treadle.run.id"]
        assert second.attributes["treadle.stop_reason"] == "answered"
        assert telemetry.one("execute_tool sign").parent.span_id == second.context.span_id
        assert telemetry.one("execute_tool double").parent.span_id == first.context.span_id
        _, points = telemetry.points(names.ITERATIONS_METRIC)
        assert {point.attributes[names.STOP_REASON] for point in points} == {"paused", "answered"}

    def test_a_call_whose_child_waits_is_no_failure_either(self, run, telemetry):
        child = helper(calls(call("sign", "s", n=1)))
        result = run(asked(), tools=[child])
        assert result.stop_reason == "paused"
        assert {span.name: span.status.status_code for span in telemetry.spans} == {
            "invoke_agent": StatusCode.UNSET,
            "chat": StatusCode.UNSET,
            "execute_tool helper": StatusCode.UNSET,
            "invoke_agent kid": StatusCode.UNSET,
        }
        kid = telemetry.one("invoke_agent kid")
        assert kid.attributes["treadle.stop_reason"] == "paused"

    @pytest.mark.parametrize("way", ["resume_sync", "resume"])
    def test_a_resumed_child_is_within_the_span_of_its_call_again(self, telemetry, way):

        child = helper(calls(call("sign", "s", n=1)), "in")
        loop = Loop(tools=[child], name="bot", **telemetry.options)
        model = ScriptedLLM(asked(), "out")
        paused = loop.run_sync(USER, model)
        telemetry.exporter.clear()
        if way == "resume":
            anyio.run(lambda: loop.resume(paused, {"k/s": approve}, model))
        else:
            loop.resume_sync(paused, {"k/s": approve}, model)
        kid = ("invoke_agent kid", "execute_tool helper", "invoke_agent bot")
        assert ("execute_tool sign", *kid) in parents(telemetry)
        assert ("chat", *kid) in parents(telemetry)
        assert not any("error.type" in span.attributes for span in telemetry.spans)


class TestFinished:
    """A last answer is a good end, whose limit is told in its stop reason."""

    def test_its_requests_are_spans_of_the_run(self, run, telemetry):
        run(
            calls(call("double", n=1)),
            calls(call("double", "late", n=2)),
            "so far",
            max_iterations=1,
            on_limit="finish",
        )
        agent = telemetry.one("invoke_agent")
        assert agent.attributes["treadle.stop_reason"] == "finished"
        assert agent.attributes["treadle.total_iterations"] == 3
        assert "error.type" not in agent.attributes
        assert len(telemetry.named("chat")) == 3
        assert len(telemetry.named("execute_tool double")) == 1


class TestNotRun:
    """A call that did not run has no span."""

    def test_suppressed_twins_deferred_over_budget_and_denied(self, run, telemetry):
        batch = calls(call("double", "twin", n=2), call("double", "twin2", n=2))
        run(
            calls(call("double", "a", n=1)),
            calls(call("double", "again", n=1)),
            batch,
            calls(call("double", "b", n=3), call("double", "cut", n=4)),
            calls(call("double", "over", n=5), call("double", "over2", n=6)),
            max_parallel_calls=1,
            max_tool_calls=4,
        )
        made = [s.attributes[names.TOOL_CALL_ID] for s in telemetry.named("execute_tool double")]
        assert made == ["a", "twin", "b", "over"]

    def test_a_tool_that_is_out_of_order(self, run, telemetry):

        breaker = CircuitBreaker(threshold=1, cool_down=60)
        run(calls(call("fail", "a")), calls(call("fail", "b")), "done", breaker=breaker)
        made = [s.attributes[names.TOOL_CALL_ID] for s in telemetry.named("execute_tool fail")]
        assert made == ["a"]

    def test_a_call_that_may_not_wait_for_its_lock(self, run, telemetry):
        """Its node and its events say that it failed at once; it did not run."""

        locks = Locks()
        locks.enter("L")
        locked = tool(double, lock="L")
        child = Loop(tools=[locked], name="kid").as_tool(
            "helper", "h", ScriptedLLM(calls(call("double", "i", n=1)), "in"), lock="mine"
        )
        run(asked(), "out", tools=[child], locks=locks)
        assert telemetry.one("execute_tool double").attributes["error.type"] == "tool_error"
