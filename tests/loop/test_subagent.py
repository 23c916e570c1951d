"""A loop as a tool: its input and its result."""

import asyncio
import contextlib
import json
import threading

import anyio
import pytest
from pydantic import BaseModel

from treadle import (
    Limits,
    Loop,
    Ok,
    OptionError,
    ToolDefinitionError,
    tool,
)
from treadle.effects import map_effects
from treadle.events import RunFinished
from treadle.loop.subagent import TASK_SCHEMA
from treadle.testing import ScriptedLLM, call, calls, check_history

from .children import add, asked, helper
from .conftest import SYNC, answers


class Answer(BaseModel):
    """Answer."""

    text: str
    score: int = 1


class TestAnswer:
    """The result of a call."""

    def test_the_text_is_the_result(self, way):
        subagent, inner = helper(calls(call("add", "i", a=1, b=2)), "It is 3.")
        with ScriptedLLM(asked("add them"), "outer") as model:
            result = way.run(Loop(tools=[subagent]), model)
        assert result.unwrap().content == "outer"
        assert answers(result.messages) == {"k": "It is 3."}
        assert inner.sent[0].messages == [{"role": "user", "content": "add them"}]
        assert (result.iterations, result.tool_calls_count, inner.left) == (2, 1, 0)

    @pytest.mark.parametrize(
        ("output", "arguments", "returned"),
        [
            (Answer, {"text": "42"}, {"text": "42", "score": 1}),
            (Answer.model_json_schema(), {"text": "42"}, {"text": "42"}),
            ({"type": "object"}, {}, {}),
        ],
        ids=["a model", "a schema", "nothing in it"],
    )
    def test_the_output_is_the_result(self, way, output, arguments, returned):
        name = "Answer" if arguments else "final_answer"
        subagent, _ = helper(calls(call(name, **arguments)), loop=Loop(output=output))
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert json.loads(answers(result.messages)["k"]) == returned

    def test_a_refusal_is_the_result(self):
        subagent, _ = helper({"role": "assistant", "content": None, "refusal": "No."})
        result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert answers(result.messages) == {"k": "No."}

    @pytest.mark.parametrize(
        ("script", "options", "text"),
        [
            ([TypeError("broken")], {}, "the model failed: TypeError: broken"),
            ([calls(call("add", a=1, b=1))], {"max_iterations": 1}, "no answer within"),
            ([calls(call("add", a=1, b=1))] * 4, {}, "the same calls with the same results in 4"),
            ([""] * 4, {}, "4 consecutive empty responses"),
        ],
        ids=["model", "limit", "loop", "blank"],
    )
    def test_a_failure_is_an_ordinary_tool_error(self, way, script, options, text):
        events = []
        subagent, _ = helper(*script, loop=Loop(tools=[add], **options))
        loop = Loop(tools=[subagent], on_event=events.append)
        result = way.run(loop, ScriptedLLM(asked(), "sorry"))
        assert isinstance(result, Ok)
        assert answers(result.messages)["k"].startswith(f"Error: 'helper' gave no answer: {text}")
        node = result.run.nodes[0].tool_calls[0]
        assert (node.status, node.run.status) == ("failed", "failed")

    def test_a_repeated_failure_breaks_the_circuit(self):
        subagent, _ = helper(*[TypeError("broken")] * 3)
        model = ScriptedLLM(*(asked(str(n), f"k{n}") for n in range(3)))
        result = SYNC.run(Loop(tools=[subagent]), model)
        assert (result.stop_reason, result.reason.tool) == ("circuit_broken", "helper")

    def test_a_last_answer_at_a_limit_is_an_answer(self):
        loop = Loop(tools=[add], max_iterations=1, limits=Limits(on_limit="finish"))
        subagent, _ = helper(calls(call("add", a=1, b=1)), "so far 2", loop=loop)
        result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert answers(result.messages) == {"k": "so far 2"}

    def test_a_long_answer_is_truncated_like_any_result(self):
        subagent, _ = helper("x" * 60_000)
        result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert "[cut: " in answers(result.messages)["k"]


class TestInput:
    """Its arguments, and the messages that its run starts with."""

    def test_it_is_a_tool_with_one_text(self):
        subagent, _ = helper()
        assert subagent.as_openai()["function"] == {
            "name": "helper",
            "description": "Helps.",
            "parameters": TASK_SCHEMA,
        }
        assert subagent.has_implementation

    @pytest.mark.parametrize("given", [{}, {"task": 5}, {"task": "t", "more": 1}])
    def test_with_invalid_arguments_it_does_not_start(self, given):
        subagent, inner = helper()
        model = ScriptedLLM(calls(call("helper", "k", **given)), "outer")
        result = SYNC.run(Loop(tools=[subagent]), model)
        assert answers(result.messages)["k"].startswith("Error: the call of 'helper' was not run")
        assert inner.sent == []

    def test_arguments_of_a_custom_schema_are_passed_as_json(self):
        schema = {"type": "object", "properties": {"x": {"type": "integer"}, "task": {}}}
        subagent, inner = helper("a", "b", "c", input_schema=schema)
        given = [{"x": 1, "task": "t"}, {"x": 1}, {"task": 5}]
        script = [calls(call("helper", f"k{n}", **one)) for n, one in enumerate(given)]
        SYNC.run(Loop(tools=[subagent]), ScriptedLLM(*script, "outer"))
        tasks = [sent.messages[0]["content"] for sent in inner.sent]
        assert [json.loads(task) for task in tasks] == given

    def test_instructions_come_before_the_task(self):
        subagent, inner = helper("in", instructions="Be brief.")
        SYNC.run(Loop(tools=[subagent]), ScriptedLLM(asked("do"), "outer"))
        assert inner.sent[0].messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "do"},
        ]

    def test_custom_messages(self):
        made = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]

        def messages(given):
            return [*made, {"role": "user", "content": given["task"].upper()}]

        subagent, inner = helper("in", messages=messages, instructions="Be brief.")
        SYNC.run(Loop(tools=[subagent]), ScriptedLLM(asked("do"), "outer"))
        assert [m["content"] for m in inner.sent[0].messages] == ["Be brief.", "one", "two", "DO"]
        assert len(made) == 2

    @pytest.mark.parametrize(
        ("messages", "text"),
        [
            (lambda given: given["nope"], "Error: KeyError: 'nope'"),
            (lambda given: [], "Error: 'helper' gave no answer: messages: "),
            (lambda given: [{"role": "nobody"}], "Error: 'helper' gave no answer: messages[0]"),
        ],
    )
    def test_a_failure_to_make_the_messages_is_an_error_result(self, messages, text):
        subagent, inner = helper(messages=messages)
        result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert answers(result.messages)["k"].startswith(text)
        assert inner.sent == []

    @pytest.mark.parametrize("option", [{"timeout": -1}, {"max_uses": "many"}, {"lock": 5}])
    def test_an_invalid_option_of_the_tool_is_an_error(self, option):
        with pytest.raises(ToolDefinitionError):
            helper(**option)

    def test_an_invalid_model_is_an_error_at_once(self):
        with pytest.raises(OptionError, match=r"^llm_send_fn: expected a callable"):
            Loop().as_tool("helper", "Helps.", 5)


def test_an_option_of_the_loop_is_not_an_option_of_the_tool():
    with pytest.raises(TypeError, match="max_iterations"):
        helper(max_iterations=3)


# A loop as a tool has the options of a tool, and keeps those of the loop.


class TestOptions:
    """It is a tool like any other, with the same options."""

    def test_max_uses_limits_its_calls(self):
        subagent, inner = helper("a", "b", max_uses=1)
        script = asked("1", "k1"), asked("2", "k2")
        result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(*script, "outer"))
        assert answers(result.messages)["k2"].startswith(
            "Not run: 'helper' has reached its maximum number of uses in a run, 1"
        )
        assert len(inner.sent) == 1

    def test_a_repeated_task_is_suppressed(self):
        subagent, inner = helper("a", "a")
        script = [asked("1"), asked("1", "k2"), asked("1", "k3"), "outer"]
        result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(*script))
        texts = answers(result.messages)
        assert [texts[key][:13] for key in ("k", "k2", "k3")] == ["a", "a", "Not run again"]
        assert len(inner.sent) == 2

    def test_it_is_retried_after_its_time_limit(self, way, clock):
        attempts = []

        async def slow_once(messages):
            attempts.append(messages)
            if len(attempts) == 1:
                clock.limit.strike()
                await anyio.sleep(30)
            return "in time"

        subagent = Loop().as_tool("helper", "Helps.", slow_once, timeout=9, retries=1)
        loop = Loop(tools=[subagent], middleware=[clock.middleware])
        result = way.run(loop, ScriptedLLM(asked(), "outer"))
        assert answers(result.messages) == {"k": "in time"}
        node = result.run.nodes[0].tool_calls[0]
        assert (node.status, node.run.status) == ("success", "success")

    @pytest.mark.parametrize("bound", ["of its call", "of the parent"])
    def test_its_time_limit_applies_even_if_its_tools_ignore_cancellation(self, way, clock, bound):
        """As for any tool: one that ignores its cancellation is abandoned."""
        over = threading.Event()

        @tool
        async def stubborn():
            clock.limit.strike()
            while not over.is_set():
                with anyio.CancelScope(shield=True), contextlib.suppress(asyncio.CancelledError):
                    await anyio.sleep(0.01)

        def observe(event):
            if isinstance(event, RunFinished):
                over.set()  # only now, so that the run cannot have waited for the tool

        options = {"timeout": 9} if bound == "of its call" else {}
        subagent, _ = helper(calls(call("stubborn")), loop=Loop(tools=[stubborn]), **options)
        parent_options = {"middleware": [clock.middleware], "on_event": observe}
        loop = Loop(tools=[subagent], max_seconds=None if options else 9, **parent_options)
        result = way.run(loop, ScriptedLLM(asked(), "outer"))
        text = "Error: 'helper' took longer than 9 s." if options else "Cancelled: the run's time"
        assert answers(result.messages)["k"].startswith(text)
        check_history(result.run.nodes[0].tool_calls[0].run.messages)

    def test_options_of_the_subagent_apply_to_it_only(self):
        """Its limits, the options of its model, its retries."""
        loop = Loop(tools=[add], max_iterations=1, llm_opts={"temperature": 1}, max_retries=0)
        subagent, inner = helper(calls(call("add", a=1, b=1)), loop=loop)
        model = ScriptedLLM(asked(), "outer")
        result = SYNC.run(Loop(tools=[subagent], max_iterations=9), model)
        assert "no answer within max_iterations=1" in answers(result.messages)["k"]
        assert inner.sent[0].opts["temperature"] == 1
        assert "temperature" not in model.sent[0].opts

    def test_middleware_of_the_subagent_sees_only_its_effects(self, way):
        seen, seen_by_parent = [], []

        def middleware(into):
            return lambda steps: map_effects(steps, lambda e: into.append(e) or e)

        subagent, _ = helper(
            calls(call("add", "i", a=1, b=1)),
            "in",
            loop=Loop(tools=[add], middleware=[middleware(seen)]),
        )
        way.run(
            Loop(tools=[subagent], middleware=[middleware(seen_by_parent)]),
            ScriptedLLM(asked(), "outer"),
        )

        def made(effects):
            return [(e.label, e.key) for e in effects if getattr(e, "label", None) in LABELS]

        assert made(seen) == [("chat", "1"), ("execute_tool", "i"), ("chat", "2")]
        assert made(seen_by_parent) == [
            ("chat", "1"),
            ("chat", "k/1"),
            ("execute_tool", "k/i"),
            ("chat", "k/2"),
            ("chat", "2"),
        ]

    def test_an_unknown_option_is_an_error_with_a_suggestion(self):
        with pytest.raises(
            OptionError, match=r"^as_tool: unknown option 'retrys'; did you mean 'retries'"
        ):
            Loop().as_tool("helper", "Helps.", len, retrys=2)

    def test_one_subagent_may_run_concurrently(self, way):
        def model(messages):
            return f"did {messages[0]['content']}"

        subagent = Loop().as_tool("helper", "Helps.", model)
        batch = calls(*(call("helper", f"k{n}", task=f"t{n}") for n in range(5)))
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(batch, "outer"))
        assert answers(result.messages) == {f"k{n}": f"did t{n}" for n in range(5)}


LABELS = {"chat", "execute_tool"}
