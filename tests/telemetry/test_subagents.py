"""Spans of subagents, pauses and last answers; calls that did not run have none."""

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from tests.deciding import on

from treadle import Limits, Locks, Loop, Telemetry, approve, tool
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER, double


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


def parents(watch):
    """Each span's name and those of its ancestors, the outermost last."""
    return sorted(watch.names_around(span) for span in watch.spans)


class TestSpans:
    """The spans of a subagent are below that of its call."""

    def test_its_spans_are_below_its_call(self, run, watch):
        child = helper(calls(call("double", "i", n=1)), "in")
        run(asked(), "out", tools=[child], name="bot")
        bot = ("invoke_agent bot",)
        kid = ("invoke_agent kid", "execute_tool helper", *bot)
        assert parents(watch) == sorted(
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

    def test_parallel_subagents_have_separate_spans(self, run, watch):
        """Even if their calls have the same ids."""

        def model(messages):
            n = int(messages[0]["content"][1:])
            return calls(call("double", "same", n=n)) if len(messages) == 1 else "in"

        child = Loop(tools=[double], name="kid").as_tool("helper", "Helps.", model)
        run(asked("k1", "k2", "k3"), "out", tools=[child])
        calls_made = {
            span.context.span_id: span.attributes[names.TOOL_CALL_ID]
            for span in watch.named("execute_tool helper")
        }
        kids = watch.named("invoke_agent kid")
        assert {calls_made[kid.parent.span_id] for kid in kids} == {"k1", "k2", "k3"}
        for kid in kids:
            within = [
                s for s in watch.spans if s.parent and s.parent.span_id == kid.context.span_id
            ]
            assert sorted(span.name for span in within) == ["chat", "chat", "execute_tool double"]
            assert kid.attributes["treadle.run.id"].endswith(f"/{calls_made[kid.parent.span_id]}")

    def test_its_span_has_its_attributes_and_one_completion_event(self, run, watch):
        child = helper(calls(call("double", "i", n=1)), "in")
        result = run(asked(), "out", tools=[child], name="bot")
        kid = watch.one("invoke_agent kid")
        assert kid.attributes == {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "kid",
            "treadle.run.id": f"{result.run.run_id}/k",
            "treadle.total_iterations": 2,
            "treadle.tool_calls_count": 1,
            "treadle.stop_reason": "answered",
        }
        assert kid.kind is SpanKind.INTERNAL
        reported = [event.name for event in kid.events]
        assert reported == [names.ITERATION_END, names.ITERATION_END, names.COMPLETE]
        points = watch.points(names.ITERATIONS_METRIC)
        assert sorted(point.attributes[names.AGENT_NAME] for point in points) == ["bot", "kid"]

    def test_a_failed_subagent_has_an_error_type_and_its_call_is_a_tool_error(self, run, watch):
        child = helper(calls(call("double", n=1)), max_iterations=1)
        run(asked(), "out", tools=[child])
        kid, made = watch.one("invoke_agent kid"), watch.one("execute_tool helper")
        assert kid.attributes["error.type"] == "max_iterations_reached"
        assert made.attributes["error.type"] == "tool_error"
        assert "error.type" not in watch.one("invoke_agent").attributes

    def test_spans_of_its_tools_and_model_are_below_its_spans(self, run, watch):
        mine = watch.tracers.get_tracer("mine")

        @tool
        def work():
            with mine.start_as_current_span("in the tool"):
                return 1

        def model(messages):
            with mine.start_as_current_span(f"in the model {len(messages)}"):
                return calls(call("work", "i")) if len(messages) == 1 else "in"

        child = Loop(tools=[work], name="kid").as_tool("helper", "Helps.", model)
        run(asked(), "out", tools=[child])
        paths = {path[0]: path[1:3] for path in parents(watch)}
        assert paths["in the tool"] == ("execute_tool work", "invoke_agent kid")
        assert paths["in the model 1"] == ("chat", "invoke_agent kid")
        assert paths["in the model 3"] == ("chat", "invoke_agent kid")

    def test_its_spans_end_if_the_parent_run_ends_it(self, run, watch, limit):
        @tool
        async def hang():
            limit.strike()
            await anyio.sleep(30)

        loop = Loop(tools=[hang], name="kid")
        child = loop.as_tool("helper", "Helps.", ScriptedLLM(calls(call("hang", "h"))))
        run(asked(), tools=[child], max_seconds=9, middleware=[limit.middleware])
        kinds = {span.name: span.attributes.get("error.type") for span in watch.spans}
        assert kinds == {
            "invoke_agent": "deadline_exceeded",
            "chat": None,
            "execute_tool helper": "deadline_exceeded",
            "invoke_agent kid": "cancelled",
            "execute_tool hang": "cancelled",
        }

    def test_providers_of_a_subagent_are_ignored(self, watch):
        """One trace has one exporter: that of the run."""
        child = helper("in", telemetry=Telemetry(tracer_provider=watch.tracers))
        Loop.run_sync(USER, ScriptedLLM(asked(), "out"), tools=[child])
        assert watch.spans == []

    def test_its_listeners_find_no_current_span(self, run, watch):
        seen = []
        child = helper("in", on_event=lambda event: seen.append(trace.get_current_span()))
        run(asked(), "out", tools=[child])
        assert len(seen) == 6
        assert not any(span.get_span_context().is_valid for span in seen)


class TestPaused:
    """A pause ends the span, and is not a failure."""

    def test_a_resumed_run_has_its_own_span(self, watch):
        loop = Loop(tools=[double, sign], name="bot", **watch.options)
        batch = calls(call("double", "a", n=1), call("sign", "b", n=1))
        model = ScriptedLLM(batch, "done")
        paused = loop.run_sync(USER, model)
        agent = watch.one("invoke_agent bot")
        assert agent.attributes["treadle.stop_reason"] == "paused"
        assert agent.attributes["treadle.tool_calls_count"] == 1
        assert agent.status.status_code is StatusCode.UNSET
        assert "error.type" not in agent.attributes
        assert watch.named("execute_tool sign") == []
        loop.resume_sync(paused, on(paused, {"b": approve}), model)
        first, second = watch.named("invoke_agent bot")
        assert first.attributes["treadle.run.id"] == second.attributes["treadle.run.id"]
        assert second.attributes["treadle.stop_reason"] == "answered"
        assert watch.one("execute_tool sign").parent.span_id == second.context.span_id
        assert watch.one("execute_tool double").parent.span_id == first.context.span_id
        points = watch.points(names.ITERATIONS_METRIC)
        assert {point.attributes[names.STOP_REASON] for point in points} == {"paused", "answered"}

    def test_a_paused_subagent_is_not_a_failure(self, run, watch):
        child = helper(calls(call("sign", "s", n=1)))
        result = run(asked(), tools=[child])
        assert result.stop_reason == "paused"
        assert {span.name: span.status.status_code for span in watch.spans} == {
            "invoke_agent": StatusCode.UNSET,
            "chat": StatusCode.UNSET,
            "execute_tool helper": StatusCode.UNSET,
            "invoke_agent kid": StatusCode.UNSET,
        }
        kid = watch.one("invoke_agent kid")
        assert kid.attributes["treadle.stop_reason"] == "paused"

    @pytest.mark.parametrize("way", ["resume_sync", "resume"])
    def test_a_resumed_subagent_is_below_its_call(self, watch, way):

        child = helper(calls(call("sign", "s", n=1)), "in")
        loop = Loop(tools=[child], name="bot", **watch.options)
        model = ScriptedLLM(asked(), "out")
        paused = loop.run_sync(USER, model)
        watch.ledger.ended.clear()
        if way == "resume":
            anyio.run(lambda: loop.resume(paused, on(paused, {"k/s": approve}), model))
        else:
            loop.resume_sync(paused, on(paused, {"k/s": approve}), model)
        kid = ("invoke_agent kid", "execute_tool helper", "invoke_agent bot")
        assert ("execute_tool sign", *kid) in parents(watch)
        assert ("chat", *kid) in parents(watch)
        assert not any("error.type" in span.attributes for span in watch.spans)


class TestFinished:
    """A last answer is not a failure; the stop reason is ``finished``."""

    def test_the_calls_of_the_last_answer_have_spans(self, run, watch):
        run(
            calls(call("double", n=1)),
            calls(call("double", "late", n=2)),
            "so far",
            max_iterations=1,
            limits=Limits(on_limit="finish"),
        )
        agent = watch.one("invoke_agent")
        assert agent.attributes["treadle.stop_reason"] == "finished"
        assert agent.attributes["treadle.total_iterations"] == 3
        assert "error.type" not in agent.attributes
        assert len(watch.named("chat")) == 3
        assert len(watch.named("execute_tool double")) == 1


class TestNotRun:
    """A call that did not run has no span."""

    def test_suppressed_duplicate_deferred_and_over_budget(self, run, watch):
        batch = calls(call("double", "twin", n=2), call("double", "twin2", n=2))
        run(
            calls(call("double", "a", n=1)),
            calls(call("double", "again", n=1)),
            batch,
            calls(call("double", "b", n=3), call("double", "cut", n=4)),
            calls(call("double", "over", n=5), call("double", "over2", n=6)),
            limits=Limits(max_parallel_calls=1),
            max_tool_calls=4,
            dedupe="strict",
        )
        made = [s.attributes[names.TOOL_CALL_ID] for s in watch.named("execute_tool double")]
        assert made == ["a", "twin", "b", "over"]

    def test_a_call_that_cannot_get_its_lock_is_a_tool_error(self, run, watch):
        """Its node and its events say that it failed at once; it did not run."""

        locks = Locks()
        locks.enter("L")
        locked = tool(double, lock="L")
        child = Loop(tools=[locked], name="kid").as_tool(
            "helper", "h", ScriptedLLM(calls(call("double", "i", n=1)), "in"), lock="mine"
        )
        run(asked(), "out", tools=[child], locks=locks)
        assert watch.one("execute_tool double").attributes["error.type"] == "tool_error"
