"""A loop as a tool: its input, its result, its events and its state; it ends when its parent ends."""

import asyncio
import contextlib
import json
import threading

import anyio
import pytest
from pydantic import BaseModel

from treadle import (
    DeadlineExceeded,
    Limits,
    Loop,
    LoopDetected,
    ModelResponded,
    Ok,
    OptionError,
    RunCancelled,
    RunFinished,
    RunHandle,
    RunStarted,
    SubagentEvent,
    TextDelta,
    ToolDefinitionError,
    ToolFinished,
    ToolStarted,
    Usage,
    approve,
    tool,
)
from treadle.effects import map_effects
from treadle.loop.subagent import TASK_SCHEMA
from treadle.testing import ScriptedLLM, call, calls, check_history

from .children import add, asked, asked_each, helper, nested, subagent_run
from .conftest import SYNC, USER, answers, of
from .notes import note


class Answer(BaseModel):
    """Answer."""

    text: str
    score: int = 1


LAST_ANSWER = {"max_iterations": 1, "limits": Limits(on_limit="finish")}


def delegated(subagent, *script, way=SYNC):
    """The result of a run that asks a subagent once."""
    return way.run(Loop(tools=[subagent]), ScriptedLLM(*(script or (asked(),)), "outer"))


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
        result = delegated(subagent, way=way)
        assert json.loads(answers(result.messages)["k"]) == returned

    @pytest.mark.parametrize(
        ("script", "options", "text"),
        [
            ([{"role": "assistant", "content": None, "refusal": "No."}], {}, "No."),
            ([calls(call("add", a=1, b=1)), "so far 2"], LAST_ANSWER, "so far 2"),
            (["x" * 60_000], {}, "[cut: "),
        ],
        ids=["a refusal", "a last answer at a limit", "truncated like any result"],
    )
    def test_every_answer_is_the_result(self, script, options, text):
        result = delegated(helper(*script, loop=Loop(tools=[add], **options))[0])
        assert text in answers(result.messages)["k"]

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
        result = delegated(subagent, calls(call("helper", "k", **given)))
        assert answers(result.messages)["k"].startswith("Error: the call of 'helper' was not run")
        assert inner.sent == []

    def test_arguments_of_a_custom_schema_are_passed_as_json(self):
        schema = {"type": "object", "properties": {"x": {"type": "integer"}, "task": {}}}
        subagent, inner = helper("a", "b", "c", input_schema=schema)
        given = [{"x": 1, "task": "t"}, {"x": 1}, {"task": 5}]
        script = [calls(call("helper", f"k{n}", **one)) for n, one in enumerate(given)]
        delegated(subagent, *script)
        tasks = [sent.messages[0]["content"] for sent in inner.sent]
        assert [json.loads(task) for task in tasks] == given

    def test_instructions_come_before_the_task(self):
        subagent, inner = helper("in", instructions="Be brief.")
        delegated(subagent, asked("do"))
        assert inner.sent[0].messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "do"},
        ]

    def test_custom_messages(self):
        made = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]

        def messages(given):
            return [*made, {"role": "user", "content": given["task"].upper()}]

        subagent, inner = helper("in", messages=messages, instructions="Be brief.")
        delegated(subagent, asked("do"))
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
        result = delegated(subagent)
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
        result = delegated(subagent, asked("1", "k1"), asked("2", "k2"))
        assert answers(result.messages)["k2"].startswith(
            "Not run: 'helper' has reached its maximum number of uses in a run, 1"
        )
        assert len(inner.sent) == 1

    def test_a_repeated_task_is_suppressed(self):
        subagent, inner = helper("a", "a")
        result = delegated(subagent, asked("1"), asked("1", "k2"), asked("1", "k3"))
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
        result = delegated(subagent, batch, way=way)
        assert answers(result.messages) == {f"k{n}": f"did t{n}" for n in range(5)}


LABELS = {"chat", "execute_tool"}


class TestState:
    """Its state is in the node of its call."""

    def test_it_has_a_name_an_id_and_all_nodes(self, way):
        subagent, _ = helper(
            calls(call("add", "i", a=1, b=2)), "in", loop=Loop(tools=[add], name="adder")
        )
        result = way.run(Loop(tools=[subagent], name="outer"), ScriptedLLM(asked(), "outer"))
        node = result.run.nodes[0].tool_calls[0]
        assert node.run.agent_name == "adder"
        assert node.run.run_id == f"{result.run.run_id}/k"
        assert [len(one.tool_calls) for one in node.run.nodes] == [1, 0]
        assert node.run.nodes[0].tool_calls[0].name == "add"
        assert node.run.messages[-1] == {"role": "assistant", "content": "in"}
        assert (node.run.status, node.status) == ("success", "success")
        assert result.run.nodes[1].tool_calls == []

    def test_without_a_name_it_has_that_of_the_tool(self):
        subagent, _ = helper("in", loop=Loop())
        result = delegated(subagent)
        assert result.run.nodes[0].tool_calls[0].run.agent_name == "helper"

    def test_its_tokens_count_for_the_parent_at_every_exit(self):
        def answer(made, tokens):
            message = made if isinstance(made, dict) else {"role": "assistant", "content": made}
            usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
            return {"choices": [{"message": message}], "usage": usage}

        for most, ended in ((2, "budget_exhausted"), (9, "answered")):
            subagent, _ = helper(answer("in", 10))
            model = ScriptedLLM(answer(asked(), 1), answer("outer", 1))
            result = SYNC.run(Loop(tools=[subagent]), model, limits=Limits(max_requests=most))
            assert result.stop_reason == ended
            assert result.usage == Usage(11 + (ended == "answered"), 11 + (ended == "answered"))
            assert result.run.nodes[0].tool_calls[0].run.total_usage == Usage(10, 10)


class TestNested:
    """A subagent may have subagents."""

    def test_answers_events_and_states_are_nested(self, way):
        events = []
        script = calls(call("add", "i", a=1, b=2)), "three"
        loop, model = nested(Loop(tools=[add], name="level3"), 3, *script)
        result = way.run(loop, model, on_event=events.append)
        assert answers(result.messages) == {"k0": "answer 1"}
        state, ids = result.run, []
        while state.nodes[0].tool_calls:
            ids.append(state.run_id)
            check_history(state.messages)
            run = state.nodes[0].tool_calls[0].run
            if run is None:
                break
            state = run
        base = ids[0]
        assert ids == [base, f"{base}/k0", f"{base}/k0/k1", f"{base}/k0/k1/k2"]
        depths = {0: 0, 1: 0, 2: 0, 3: 0}
        for event in events:
            depth = 0
            while isinstance(event, SubagentEvent):
                event, depth = event.event, depth + 1  # noqa: PLW2901
            depths[depth] += isinstance(event, RunStarted)
        assert depths == {0: 1, 1: 1, 2: 1, 3: 1}


class TestEvents:
    """Its events are within those of its call."""

    def test_they_are_nested_and_its_own_observers_receive_them_too(self, way):
        outer, inner, contexts = [], [], []
        loop = Loop(tools=[add], on_event=inner.append, on_iteration=contexts.append)
        subagent, _ = helper(calls(call("add", "i", a=1, b=2)), "in", loop=loop)
        way.run(Loop(tools=[subagent], on_event=outer.append), ScriptedLLM(asked(), "outer"))
        inner_events = [event.event for event in of(outer, SubagentEvent)]
        assert inner_events == inner
        assert {event.call_id for event in of(outer, SubagentEvent)} == {"k"}
        assert (type(inner[0]), type(inner[-1])) == (RunStarted, RunFinished)
        assert len(of(inner, ToolFinished)) == 1
        assert [one.iteration for one in contexts] == [1, 2]
        kinds = [type(event).__name__ for event in outer]
        assert kinds.index("ToolStarted") < kinds.index("SubagentEvent")
        assert kinds[::-1].index("ToolFinished") < kinds[::-1].index("SubagentEvent")

    @pytest.mark.parametrize("is_async", [False, True])
    def test_its_observers_are_called_where_those_of_the_outer_run_are(self, way, is_async):
        """Also with the events that a model emits in a worker thread."""
        threads, pieces = [], []

        def observe(event):
            if isinstance(event, TextDelta):
                threads.append(threading.get_ident())
                pieces.append(event.text)

        async def observe_later(event):
            await anyio.sleep(0)
            observe(event)

        def streaming(messages):
            yield "he"
            yield "llo"

        loop = Loop(on_event=observe_later if is_async else observe)
        inner = Loop(tools=[loop.as_tool("innermost", "", streaming)], on_event=lambda _: None)
        model = ScriptedLLM(calls(call("innermost", task="t")), "in")
        subagent = inner.as_tool("helper", "", model)
        delegated(subagent, way=way)
        assert pieces == ["he", "llo"]
        if not is_async or way.name != "sync":  # where async functions run on a background loop
            assert set(threads) == {threading.get_ident()}

    @pytest.mark.parametrize("kind", [ModelResponded, RunFinished])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_cancellation_that_an_observer_raises_changes_nothing(self, way, kind, is_async):
        def observe(event):
            if isinstance(event, kind):
                raise asyncio.CancelledError

        async def observe_later(event):
            observe(event)

        loop = Loop(on_event=observe_later if is_async else observe)
        subagent, _ = helper("42", loop=loop)
        result = delegated(subagent, way=way)
        assert answers(result.messages)["k"] == "42"

    @pytest.mark.parametrize("is_async", [False, True])
    def test_its_observers_receive_events_although_the_parent_has_no_listener(self, way, is_async):
        seen = []

        async def observe_later(event):
            await anyio.sleep(0)
            seen.append(event)

        observe = observe_later if is_async else seen.append
        subagent, _ = helper("in", loop=Loop(on_event=observe))
        delegated(subagent, way=way)
        assert [type(event).__name__ for event in seen][-1] == "RunFinished"

    def test_an_observer_of_it_that_raises_changes_nothing(self, way, caplog):
        def observe(event):
            raise ValueError("observer")

        subagent, _ = helper("in", loop=Loop(on_event=observe))
        result = delegated(subagent, way=way)
        assert answers(result.messages) == {"k": "in"}
        assert "an observer raised at RunStarted" in caplog.text

    def test_a_loop_in_it_is_not_a_loop_of_the_parent(self):
        """The subagent repeats a call; the parent calls the subagent once."""
        subagent, _ = helper(*[calls(call("add", a=1, b=1))] * 4)
        result = delegated(subagent)
        assert isinstance(result, Ok)
        reason = result.run.nodes[0].tool_calls[0].run.error
        assert reason == str(LoopDetected(('add({"a": 1, "b": 1})',), 4, "x"))


def test_a_handle_in_the_options_of_a_subagent_is_not_used():
    """A handle belongs to one run, and a subagent runs once for each call."""
    handle = RunHandle()
    subagent, _ = helper("a", "b", loop=Loop(handle=handle))
    result = delegated(subagent, asked("1"), asked("2", "k2"))
    assert isinstance(result, Ok)
    assert handle.state is None


class TestEnd:
    """A subagent ends when its parent ends, and its state is complete."""

    def hanging(self, begin=lambda: None):
        @tool
        async def hang():
            begin()
            await anyio.sleep(30)

        inner = ScriptedLLM(calls(call("note", "n", n=1)), calls(call("hang", "h")))
        return Loop(tools=[hang, note]).as_tool("helper", "Helps.", inner)

    def check(self, state):
        """The state of the subagent: ended, its history valid, its call answered."""
        check_history(state.messages)
        texts = answers(state.messages)
        assert texts["n"] == "noted 1"
        assert texts["h"].startswith("Cancelled: ")
        assert (state.status, state.error) == ("failed", str(RunCancelled()))
        assert [node.status for node in state.nodes] == ["success", "failed"]
        assert state.nodes[1].tool_calls[0].status == "failed"

    def test_at_the_deadline(self, way, clock):
        subagent = self.hanging(clock.limit.strike)
        loop = Loop(tools=[subagent], max_seconds=9, middleware=[clock.middleware])
        result = way.run(loop, ScriptedLLM(asked_each()))
        assert result.reason == DeadlineExceeded(9)
        assert answers(result.messages)["k"].startswith("Cancelled: the run's time was up")
        self.check(subagent_run(result))

    def test_at_its_own_deadline(self, way, clock):
        @tool
        async def hang():
            clock.limit.strike()
            await anyio.sleep(30)

        inner = Loop(tools=[hang], max_seconds=9, middleware=[clock.middleware])
        subagent = inner.as_tool("helper", "h", ScriptedLLM(calls(call("hang", "h"))))
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked_each(), "outer"))
        assert isinstance(result, Ok)
        assert answers(result.messages)["k"].endswith("the run took longer than max_seconds=9")
        assert subagent_run(result).status == "timeout"

    def test_at_the_time_limit_of_its_call(self, way, clock):
        subagent = tool(self.hanging(clock.limit.strike), timeout=9)
        loop = Loop(tools=[subagent], middleware=[clock.middleware])
        result = way.run(loop, ScriptedLLM(asked_each(), "outer"))
        assert answers(result.messages)["k"] == "Error: 'helper' took longer than 9 s."
        self.check(subagent_run(result))

    def test_when_the_run_is_cancelled_through_its_handle(self, way):
        handle = RunHandle()
        loop = Loop(tools=[self.hanging(handle.cancel)])
        result = way.run(loop, ScriptedLLM(asked_each()), handle=handle)
        assert result.reason == RunCancelled()
        self.check(subagent_run(result))

    def test_when_the_tools_are_cancelled_and_the_run_continues(self, way):
        handle = RunHandle()
        loop = Loop(tools=[self.hanging(handle.cancel_all)])
        result = way.run(loop, ScriptedLLM(asked_each(), "then not"), handle=handle)
        assert result.unwrap().content == "then not"
        assert answers(result.messages)["k"].startswith("Cancelled: the call was stopped")
        self.check(subagent_run(result))

    def test_when_a_stage_of_the_parent_is_interrupted(self):
        def stop():
            raise KeyboardInterrupt

        handle = RunHandle()
        loop = Loop(tools=[self.hanging(stop)])
        with pytest.raises(KeyboardInterrupt):
            loop.run_sync(USER, ScriptedLLM(asked_each()), handle=handle)
        check_history(handle.messages)
        check_history(handle.state.nodes[0].tool_calls[0].run.messages)

    def test_siblings_are_ended_with_it(self, way):
        handle = RunHandle()
        inner = Loop(tools=[note])
        begun = []

        async def model(messages):
            begun.append(1)
            if len(begun) == 3:
                handle.cancel()
            await anyio.sleep(30)

        subagent = inner.as_tool("helper", "h", model)
        result = way.run(
            Loop(tools=[subagent]), ScriptedLLM(asked_each("a", "b", "c")), handle=handle
        )
        assert result.reason == RunCancelled()
        states = [subagent_run(result, place) for place in range(3)]
        assert [state.status for state in states] == ["failed"] * 3
        assert all(
            state.messages == [{"role": "user", "content": i}]
            for state, i in zip(states, "abc", strict=True)
        )


class TestWaiting:
    """A subagent that waits for a decision, in a run that ends before it."""

    @pytest.mark.parametrize(("bound", "ended"), [("handle", "failed"), ("time", "timeout")])
    def test_its_state_ends_with_that_of_its_parent(self, recorded, way, clock, bound, ended):
        """The run ends when its call starts again, before the subagent continues."""
        handle = RunHandle()
        ends = handle.cancel if bound == "handle" else clock.limit.strike

        def observe(event):
            if isinstance(event, ToolStarted):
                ends()

        inner = ScriptedLLM(calls(call("note", "n", n=1), call("wipe", "w", path="/")))
        loop = Loop(tools=[recorded.loop().as_tool("helper", "h", inner)])
        paused = way.run(loop, ScriptedLLM(asked_each()))
        assert [one.call_id for one in paused.pending] == ["k/w"]
        bounded = loop.with_options(
            max_seconds=9, middleware=[clock.middleware], handle=handle, on_event=observe
        )
        result = way.resume(bounded, paused, {"k/w": approve}, ScriptedLLM())
        node = result.run.nodes[0].tool_calls[0]
        assert (result.run.status, node.run.status) == (ended, ended)
        assert node.status == "failed"
        check_history(node.run.messages)
        assert recorded.done == ["note 1"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_event_of_a_cancelled_run_reaches_the_parent_too(backend):
    """An observer of the parent receives each start and end of the subagent."""
    events = []

    async def observe(event):
        if isinstance(event, RunStarted):
            scope.cancel()
            await anyio.sleep(30)

    async def main():
        nonlocal scope
        subagent = Loop(on_event=observe).as_tool("helper", "h", lambda m: "in")
        loop = Loop(tools=[subagent], on_event=events.append)
        with anyio.CancelScope() as scope:
            await loop.run(USER, ScriptedLLM(asked_each()))

    scope = None
    anyio.run(main, backend=backend)
    inner = [type(event.event).__name__ for event in of(events, SubagentEvent)]
    assert inner == ["RunStarted", "RunFinished"]
