"""The last answer: at a limit the model is called once more, to answer with what it has."""

import anyio
import pytest
from pydantic import BaseModel

from treadle import (
    BudgetExhausted,
    CircuitBroken,
    DeadlineExceeded,
    Err,
    IterationFinished,
    IterationStarted,
    LimitReached,
    Limits,
    Loop,
    LoopDetected,
    MaxIterationsReached,
    Ok,
    OutputMissing,
    Response,
    RunCancelled,
    RunHandle,
    Usage,
    stage,
    tool,
)
from treadle.loop.run import GUIDANCE, NO_ANSWER
from treadle.messages import for_sdk
from treadle.stages import ask_model, loop_decision
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, USER, answers, of
from .notes import note

GUIDED = GUIDANCE.format(reason="no answer within max_iterations=1", how="")
FIRST = calls(call("note", "a", n=1))


@tool
def fail(n: int = 0):
    raise ValueError("no")


def finished(way, *script, **options):
    """Run with a limit of one iteration; return the result and the model."""
    options = {
        "tools": [note, fail],
        "max_iterations": 1,
        "limits": Limits(on_limit="finish"),
        **options,
    }
    with ScriptedLLM(FIRST, *script) as model:
        return way.run(Loop(**options), model), model


PLAIN = NO_ANSWER.format(reason="no answer within max_iterations=1")


class Answer(BaseModel):
    """Answer."""

    text: str


class TestAnswers:
    """Whatever the model returns, the run ends with an answer."""

    def test_text_is_the_answer(self, way):
        result, model = finished(way, "so far: 1")
        assert isinstance(result, Ok)
        assert (result.unwrap().content, result.stop_reason) == ("so far: 1", "finished")
        assert result.limit == MaxIterationsReached(1)
        assert result.messages == [
            *USER,
            FIRST,
            {"role": "tool", "tool_call_id": "a", "content": "noted 1"},
            {"role": "assistant", "content": "so far: 1"},
        ]
        assert (result.iterations, result.tool_calls_count) == (2, 1)
        assert model.sent[1].opts["tools"] == model.sent[0].opts["tools"]
        assert "tool_choice" not in model.sent[1].opts

    def test_calls_do_not_run_and_unknown_and_invalid_ones_are_answered_as_such(self, way):
        more = calls(call("note", "b", n=2), call("nope", "c"), call("note", "d", n="x"))
        result, model = finished(way, more, "now then")
        texts = answers(result.messages)
        assert texts["b"].startswith("Not run: the budget for this task is spent.")
        assert "there is no tool named 'nope'" in texts["c"]
        assert "expected integer" in texts["d"]
        assert model.sent[2].opts["tools"] == model.sent[0].opts["tools"]
        assert (result.iterations, result.tool_calls_count) == (3, 1)

    def test_text_next_to_calls_is_the_answer_if_tools_were_disabled(self, way):
        """The calls are dropped, since they would never be answered."""
        more = calls(call("note", "b", n=2))
        result, _ = finished(way, more, calls(call("note", "c", n=3), text="then this"))
        assert result.messages[-1] == {"role": "assistant", "content": "then this"}
        assert result.unwrap() == Response("then this")

    @pytest.mark.parametrize(
        "script",
        [
            [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}],
            [calls(call("note", "b", n=2)), calls(call("note", "c", n=3), text=" ")],
        ],
        ids=["parts without text", "white and calls"],
    )
    def test_a_blank_last_answer_is_replaced_by_a_fixed_sentence(self, way, script):
        result, _ = finished(way, *script)
        assert result.messages[-1] == {"role": "assistant", "content": PLAIN}
        assert (result.unwrap().content, result.stop_reason) == (PLAIN, "finished")

    @pytest.mark.parametrize("content", [None, [{"type": "thinking", "thinking": "hm"}]])
    def test_a_refusal_is_an_answer_with_the_other_keys_of_its_message(self, way, content):
        refusal = {"role": "assistant", "content": content, "refusal": "No."}
        result, _ = finished(way, refusal)
        assert for_sdk(result.messages[-1:]) == [refusal]
        assert (result.unwrap().text, result.stop_reason) == ("No.", "finished")

    def test_the_text_of_parts_is_the_answer_and_unknown_keys_are_kept(self, way):
        parts = [{"type": "text", "text": "so "}, {"type": "text", "text": "far"}]
        result, _ = finished(way, {"role": "assistant", "content": parts, "reasoning": "r"})
        assert result.unwrap().content == "so far"
        assert result.messages[-1]["reasoning"] == "r"

    def test_the_answer_may_be_streamed(self, way):
        result, _ = finished(way, ["so", " far"])
        assert result.unwrap().content == "so far"

    def test_without_tools_no_tool_choice_is_sent(self, way):
        loop = Loop(max_iterations=1, limits=Limits(on_limit="finish"))
        with ScriptedLLM(calls(call("nope", "a")), calls(call("nope", "b")), "ok") as model:
            result = way.run(loop, model)
        assert result.unwrap().content == "ok"
        assert [sent.opts for sent in model.sent] == [{}, {}, {}]


class TestOutput:
    """At the limit, a call of a terminal tool is an answer as well."""

    def test_its_call_is_the_answer(self, way):
        ending = calls(call("note", "b", n=2), call("Answer", "c", text="42"))
        result, model = finished(way, ending, output=Answer)
        assert isinstance(result, Ok)
        assert (result.output, result.stop_reason) == (Answer(text="42"), "finished")
        assert model.sent[1].messages[-1]["content"].endswith(", by a call of Answer.")
        texts = answers(result.messages)
        assert texts["c"] == "Accepted: this is the final output."
        assert texts["b"] == "Not run: the call of 'Answer' ended the run."

    def test_an_invalid_call_is_reported_and_followed_by_another(self, way):
        wrong, right = (calls(call("Answer", "c", text=text)) for text in (5, "42"))
        result, model = finished(way, wrong, right, output=Answer)
        assert "expected string, got integer 5" in answers(result.messages)["c"]
        assert (result.output, result.stop_reason) == (Answer(text="42"), "finished")
        for sent in model.sent[1:]:
            assert sent.opts["tool_choice"] == {"type": "function", "function": {"name": "Answer"}}

    def test_without_a_valid_output_the_reason_names_the_limit(self, way):
        wrong = calls(call("Answer", "c", text=5))
        result, _ = finished(way, wrong, wrong, output=Answer)
        assert result.reason == OutputMissing(2, ("text: expected string, got integer 5",))
        assert result.reason.cause == MaxIterationsReached(1)

    def test_several_terminal_tools_are_named(self, way):
        ends = [tool(name=name)(lambda: 1) for name in ("stop", "halt")]
        ends = [tool(one, terminal=True) for one in ends]
        _, model = finished(way, "ok", tools=[note, *ends])
        assert model.sent[1].messages[-1]["content"].endswith("by a call of stop or halt.")


class TestWhen:
    """The reasons after which there is a last answer."""

    @pytest.mark.parametrize(
        ("script", "options", "limit"),
        [
            ([], {}, MaxIterationsReached(1)),
            (
                [calls(call("note", "b", n=2))],
                {"max_iterations": 9, "max_tool_calls": 1},
                BudgetExhausted("max_tool_calls", 1, 1),
            ),
            (
                [calls(call("note", n=1)), calls(call("note", n=1))],
                {"max_iterations": 9, "dedupe": "strict"},
                LoopDetected(('note({"n": 1})',), 3, "s", 1),
            ),
        ],
        ids=["iterations", "tool calls", "loop"],
    )
    def test_iterations_tool_calls_and_loops_do(self, way, script, options, limit):
        result, _ = finished(way, *script, "so far", **options)
        assert isinstance(result, Ok)
        assert str(result.limit) == str(limit)
        assert (type(result.limit), result.stop_reason) == (type(limit), "finished")

    @pytest.mark.parametrize(
        ("limit", "kind"),
        [
            ({"max_total_tokens": 5}, "max_total_tokens"),
            ({"max_input_tokens": 2}, "max_input_tokens"),
            ({"max_output_tokens": 3}, "max_output_tokens"),
            ({"max_cost": 0.5}, "max_cost"),
        ],
    )
    def test_tokens_and_cost_do(self, way, limit, kind):
        usage = {"prompt_tokens": 2, "completion_tokens": 3}
        model = ScriptedLLM({"choices": [{"message": FIRST}], "usage": usage}, "so far")
        loop = Loop(
            tools=[note], limits=Limits(on_limit="finish", cost_of=lambda response: 0.5, **limit)
        )
        result = way.run(loop, model)
        assert result.limit.kind == kind
        assert result.usage == Usage(2, 3, 5, is_lower_bound=True, cost=1.0)

    def test_a_broken_circuit_does_not(self, way):
        script = [calls(call("fail", n=n)) for n in range(3)]
        options = {"max_iterations": 9, "limits": Limits(on_limit="finish")}
        with ScriptedLLM(*script) as model:
            result = way.run(Loop(tools=[fail], **options), model)
        assert result.reason == CircuitBroken("fail", "Error: ValueError: no", 3)

    def test_the_time_limit_does_not(self, way, clock):
        @tool
        async def work():
            clock.limit.strike()
            await anyio.sleep(30)

        limits = Limits(max_seconds=9, on_limit="finish")
        with ScriptedLLM(calls(call("work"))) as model:
            result = way.run(
                Loop(tools=[work], limits=limits, middleware=[clock.middleware]), model
            )
        assert result.reason == DeadlineExceeded(9)
        assert len(model.sent) == 1

    def test_other_failures_do_not(self, way):
        """No limit was reached."""
        stages = [loop_decision(max_blank_stops=0), ...]
        loop = Loop(limits=Limits(on_limit="finish"), stages=stages)
        assert way.run(loop, ScriptedLLM("")).stop_reason == "empty_response"
        assert way.run(loop, ScriptedLLM(TypeError())).stop_reason == "llm_error"

    def test_an_answer_within_the_limits_is_an_ordinary_answer(self, way):
        result = way.run(Loop(limits=Limits(1, on_limit="finish")), ScriptedLLM("Hello"))
        assert (result.stop_reason, result.limit) == ("answered", None)

    def test_stop_is_the_default(self):
        result = SYNC.run(Loop(tools=[note], max_iterations=1), ScriptedLLM(FIRST))
        assert result.stop_reason == "max_iterations_reached"


# The events and the history of a last answer, and its failures.


class TestFailing:
    """The call for the last answer fails."""

    def test_a_failure_of_the_model_is_the_reason(self, way):
        events = []
        result, _ = finished(way, TypeError("gone"), on_event=events.append)
        assert (type(result), result.reason.message) == (Err, "gone")
        assert result.messages[-1]["content"] == "noted 1"
        assert (result.iterations, result.run.status) == (2, "failed")
        assert [one.reason for one in of(events, LimitReached)] == [MaxIterationsReached(1)]

    def test_a_failure_of_the_second_request(self, way):
        result, _ = finished(way, calls(call("note", "b", n=2)), TypeError("gone"))
        assert result.stop_reason == "llm_error"
        assert answers(result.messages) == {
            "a": "noted 1",
            "b": "Not run: the budget for this task is spent. Give your final answer with what you have.",
        }

    def test_a_temporary_failure_is_retried(self, way):
        result, _ = finished(way, ConnectionError(), "so far", retry_delay=0)
        assert result.unwrap().content == "so far"
        assert result.iterations == 2

    def test_the_time_limit_may_be_reached_meanwhile(self, way, clock):
        async def hang(messages):
            clock.limit.strike()
            await anyio.sleep(30)

        events = []
        options = {"max_seconds": 9, "middleware": [clock.middleware], "on_event": events.append}
        result, _ = finished(way, hang, **options)
        assert result.reason == DeadlineExceeded(9)
        reasons = [one.reason for one in of(events, LimitReached)]
        assert reasons == [MaxIterationsReached(1), DeadlineExceeded(9)]
        assert result.messages[-1]["content"] == "noted 1"

    def test_it_may_be_cancelled_meanwhile(self, way):
        handle = RunHandle()

        async def cancel(messages):
            handle.cancel()
            await anyio.sleep(30)

        result, _ = finished(way, cancel, handle=handle)
        assert (result.reason, result.iterations) == (RunCancelled(), 2)
        assert result.messages[-1]["content"] == "noted 1"

    @pytest.mark.parametrize("whose", ["run", "outer run"])
    def test_max_requests_is_exceeded_by_the_last_answers_only(self, whose):
        """Also by a stage that asks the model again and again: none of its texts is enough."""

        @stage(replaces=ask_model)
        def insist(ctx):
            while ctx.decision is None:
                ctx = yield from ask_model(ctx)
            return ctx

        limits, sent = Limits(on_limit="finish", max_requests=3), []
        loop = Loop(limits=limits if whose == "run" else Limits(on_limit="finish"))
        loop = loop.with_options(stages=[insist, ...])
        if whose == "run":
            result = SYNC.run(loop, lambda messages: sent.append(1) or "more")
            assert result.reason == BudgetExhausted("max_requests", 3, 5)
            assert len(sent) == 5
        else:
            inner = loop.as_tool("helper", "Helps.", lambda messages: sent.append(1) or "more")
            outer = ScriptedLLM(calls(call("helper", "h", task="x")), "one", "two")
            result = SYNC.run(Loop(tools=[inner], limits=limits), outer)
            assert result.limit == BudgetExhausted("max_requests", 3, 3)
            assert len(sent) == 2


class TestEvents:
    """The events of a last answer."""

    def test_the_limit_is_reported_once_and_its_requests_are_iterations(self, way):
        events, contexts = [], []
        result, _ = finished(
            way,
            calls(call("note", "b", n=2)),
            "so far",
            on_event=events.append,
            on_iteration=contexts.append,
        )
        assert [one.reason for one in of(events, LimitReached)] == [result.limit]
        assert [one.iteration for one in of(events, IterationStarted)] == [1, 2, 3]
        assert [one.iteration for one in of(events, IterationFinished)] == [1, 2, 3]
        assert [one.iteration for one in contexts] == [1, 2, 3]
        assert events[-1].result is result
        assert events[-1].stop_reason == "finished"
        names = [type(event).__name__ for event in events]
        assert names.index("LimitReached") == names.index("IterationFinished") + 1

    def test_its_nodes_are_in_the_run_state(self):
        result, _ = finished(SYNC, calls(call("note", "b", n=2)), "so far")
        assert [node.status for node in result.run.nodes] == ["success"] * 3
        assert [len(node.tool_calls) for node in result.run.nodes] == [1, 0, 0]
        assert result.run.status == "success"
        assert result.run.error is None

    def test_its_tokens_count(self):
        answer = Response("so far", usage=Usage(5, 6))
        result, _ = finished(SYNC, answer)
        assert result.usage == result.run.total_usage == Usage(5, 6, is_lower_bound=True)

    def test_its_request_shows_the_remaining_budget(self):
        limits = Limits(on_limit="finish", show_budget=True)
        _, model = finished(SYNC, "so far", limits=limits)
        asked = model.sent[1].messages[-1]["content"]
        assert asked == f"{GUIDED}\n\nLeft for this task: 0 model calls."

    def test_its_request_replaces_the_guidance_after_a_blank_response(self, way):
        """That guidance was for a request that is not sent."""
        loop = Loop(max_iterations=1, limits=Limits(on_limit="finish"))
        with ScriptedLLM("", "so far") as model:
            result = way.run(loop, model)
        assert model.sent[1].messages == [{"role": "user", "content": f"Hi\n\n{GUIDED}"}]
        assert result.unwrap().content == "so far"


def test_a_text_after_which_a_stage_continued_stays_a_message_before_the_guidance():
    """Two assistant messages never follow each other."""

    def more(ctx):
        return ctx.guide("Go on.") if ctx.iteration == 1 else ctx.done()

    loop = Loop(max_iterations=1, limits=Limits(on_limit="finish"))
    loop = loop.with_options(stages=loop.pipeline.replace("loop_decision", more))
    with ScriptedLLM("one", "two") as model:
        result = SYNC.run(loop, model)
    assert (result.unwrap().content, result.stop_reason) == ("two", "finished")
    one = {"role": "assistant", "content": "one"}
    assert model.sent[1].messages[1:] == [
        one,
        {"role": "user", "content": f"Go on.\n\n{GUIDED}"},
    ]
    assert result.messages[1:] == [
        one,
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": "two"},
    ]
