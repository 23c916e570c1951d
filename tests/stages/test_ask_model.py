"""`ask_model`: sends the request of the iteration, with retries, and takes the response."""

import pytest

from treadle.context import Decision, Request
from treadle.effects import Call, drive_sync, map_effects
from treadle.events import (
    FirstChunk,
    HistoryRepaired,
    ModelRequested,
    ModelResponded,
    TextDelta,
)
from treadle.messages import Response, Usage
from treadle.model import ModelClient
from treadle.results import MaxIterationsReached
from treadle.stages import ask_model, parse_tool_calls, validate_calls
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import Tool

BUSY = ConnectionError("busy")
PART = {"type": "text", "text": "Hi"}
TOOLS = [Tool("add", fn=lambda: 3), Tool("look", fn=lambda: "here")]
ask_at_once = ask_model(retry_delay=0)


@pytest.fixture
def ready(context):
    """A context that is about to enter the stage, and its model, which follows a script."""

    def ready(*script, llm_opts=None, **more):
        model = ScriptedLLM(*script)
        more.setdefault("tools", TOOLS)
        client = ModelClient(model, llm_opts or {})
        return context(response=Response(), model=client, **more), model

    return ready


def texts(messages):
    return [message["content"] for message in messages]


def offered(sent):
    return [made["function"]["name"] for made in sent.opts.get("tools", ())]


class TestTheRequest:
    """What is sent is `ctx.request`."""

    def test_it_has_the_history_the_tools_and_the_options(self, ready, through):
        ctx, model = ready("Hello", llm_opts={"temperature": 0.5})
        through(ctx, ask_model)
        (sent,) = model.sent
        assert sent.messages == [{"role": "user", "content": "Hi"}]
        assert offered(sent) == ["add", "look"]
        assert sent.opts["temperature"] == 0.5
        assert "tool_choice" not in sent.opts

    def test_a_view_of_the_messages_is_sent_and_the_history_is_not_changed(self, ready, through):
        """Not even by a model that edits what it receives."""
        sent = []

        def spoil(messages):
            sent.append(messages[0]["content"][0]["text"])
            messages[0]["content"][0]["text"] = "spoilt"
            return "Hello"

        ctx, _ = ready(spoil)
        ctx = ctx.with_request(messages=[{"role": "user", "content": [PART]}])
        asked = through(ctx, ask_model)
        assert sent == ["Hi"]
        assert asked.request.messages[0]["content"] == [{"type": "text", "text": "Hi"}]
        assert asked.messages is ctx.messages

    def test_tools_and_options_of_the_request_are_sent(self, ready, through):
        ctx, model = ready("Hello", llm_opts={"temperature": 0.5, "seed": 1})
        through(ctx.with_request(tools=["look"], options={"temperature": 0}), ask_model)
        (sent,) = model.sent
        assert offered(sent) == ["look"]
        assert (sent.opts["temperature"], sent.opts["seed"]) == (0, 1)

    @pytest.mark.parametrize(
        ("choice", "sent_as"),
        [
            ("look", {"type": "function", "function": {"name": "look"}}),
            ("auto", "auto"),
            ("none", "none"),
            ("required", "required"),
            ({"type": "allowed_tools"}, {"type": "allowed_tools"}),
        ],
    )
    def test_a_tool_choice_by_name_is_sent_in_openai_form_and_others_as_they_are(
        self, ready, through, choice, sent_as
    ):
        ctx, model = ready("Hello")
        through(ctx.with_request(tool_choice=choice), ask_model)
        assert model.sent[0].opts["tool_choice"] == sent_as

    def test_a_tool_that_replaced_another_is_offered(self, ready, through):
        ctx, model = ready("One", "Two")
        through(ctx, ask_model)
        through(ctx.with_tools(add=[Tool("add", "Adds.", fn=lambda: 3)]), ask_model)
        described = [sent.opts["tools"][0]["function"].get("description") for sent in model.sent]
        assert described[1] == "Adds." != described[0]

    def test_a_context_without_a_model_is_an_error(self, context, through):
        with pytest.raises(RuntimeError, match="this context has no model to ask"):
            through(context(response=Response()), ask_model)


class TestInstructionsAndGuidance:
    """They are sent, and are not stored in the history."""

    def test_instructions_are_the_first_message_and_not_stored(self, ready, through):
        ctx, model = ready("Hello", instructions="Be brief.")
        asked = through(ctx, ask_model)
        assert model.sent[0].messages[0] == {"role": "system", "content": "Be brief."}
        assert texts(asked.messages) == ["Hi"]

    def test_instructions_may_depend_on_the_context(self, ready, through):
        ctx, model = ready("Hello", instructions=lambda ctx: f"Iteration {ctx.iteration}")
        through(ctx, ask_model)
        assert texts(model.sent[0].messages) == ["Iteration 1", "Hi"]

    def test_a_stage_may_change_the_instructions_of_one_request(self, ready, through):
        ctx, model = ready("Hello", instructions="Be brief.")
        through(ctx.with_request(instructions="Take your time."), ask_model)
        assert texts(model.sent[0].messages) == ["Take your time.", "Hi"]
        assert ctx.instructions == "Be brief."

    @pytest.mark.parametrize(
        ("last", "sent"),
        [
            ({"role": "user", "content": "Hi"}, {"role": "user", "content": "Hi\n\nHurry."}),
            ({"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Hurry."}),
            (
                {"role": "user", "content": [PART]},
                {"role": "user", "content": [PART, {"type": "text", "text": "Hurry."}]},
            ),
        ],
        ids=["a text", "another role", "parts"],
    )
    def test_guidance_is_joined_to_the_last_user_message_or_follows_another(
        self, ready, through, last, sent
    ):
        user = [] if last["role"] == "user" else [{"role": "user", "content": "Hi"}]
        ctx, model = ready("Hello", messages=[*user, last])
        asked = through(ctx.replace(guidance="Hurry."), ask_model)
        assert model.sent[0].messages[-1] == sent
        assert asked.guidance is None

    def test_guidance_is_not_stored_after_a_user_message(self, ready, through):
        ctx, _ = ready("Hello")
        assert texts(through(ctx.replace(guidance="Hurry."), ask_model).messages) == ["Hi"]


class TestTheResponse:
    """The outcome is in the context, and is counted."""

    def test_the_response_and_its_usage_are_in_the_context(self, ready, through):
        ctx, _ = ready(lambda messages: Response("Hello", usage=Usage(5, 2)))
        asked = through(ctx, ask_model)
        assert (asked.response.content, asked.is_asked, asked.decision) == ("Hello", True, None)
        assert asked.usage == ctx.run.budget.usage == Usage(5, 2)
        assert ctx.run.budget.iterations == 1
        assert ctx.run.ledger.clock > 0

    def test_calls_are_dropped_if_the_request_disables_tools(self, ready, through):
        ctx, _ = ready(calls(call("add"), text="So"))
        asked = through(ctx.with_request(tool_choice="none"), ask_model, parse_tool_calls)
        assert (asked.response.tool_calls, asked.tool_calls) == ((), ())
        assert asked.response.content == "So"

    @pytest.mark.parametrize("choice", ["add", "required", "auto"])
    def test_calls_are_kept_otherwise(self, ready, through, choice):
        ctx, _ = ready(calls(call("add")))
        asked = through(ctx.with_request(tool_choice=choice), ask_model)
        assert [made.name for made in asked.response.tool_calls] == ["add"]

    def test_without_an_iteration_left_the_model_is_not_asked(self, ready, through):
        ctx, model = ready(limits={"max_iterations": 1})
        ctx.run.budget.iterations += 1
        stopped = through(ctx, ask_model)
        assert (stopped.decision, stopped.error) == (Decision.STOP, MaxIterationsReached(1))
        assert model.sent == []

    def test_a_second_model_call_of_an_iteration_keeps_the_first_response(self, ready, through):
        ctx, model = ready("First", "Second")
        asked = through(ctx, ask_model, ask_model)
        assert texts(asked.messages) == ["Hi", "First"]
        assert asked.response.content == "Second"
        assert texts(model.sent[1].messages) == ["Hi", "First"]
        assert not asked.is_injected


class TestRetries:
    """A temporary failure is retried; the request is the same unless ``on_retry`` changes it."""

    def test_a_retry_has_the_label_and_key_of_the_first_attempt(self, ready):
        ctx, _ = ready(BUSY, "Hello", iteration=7)
        seen = []

        def see(effect):
            if isinstance(effect, Call) and effect.label == "chat":
                seen.append(effect.key)
            return effect

        drive_sync(map_effects(ask_at_once(ctx), see))
        assert seen == ["7", "7"]

    def test_on_retry_changes_the_request_of_the_next_attempt(self, ready, through):
        asked_with = []

        def on_retry(request, error, attempt):
            asked_with.append((error, attempt))
            return request.replace(
                options={"model": f"fallback {attempt}"},
                tools=["look"],
                messages=[{"role": "user", "content": "Short"}],
                instructions="Try harder.",
            )

        options = {"llm_opts": {"model": "big"}, "instructions": "Be brief."}
        ctx, model = ready(BUSY, BUSY, "Hello", **options)
        asked = through(ctx, ask_model(retry_delay=0, on_retry=on_retry))
        assert asked_with == [(BUSY, 1), (BUSY, 2)]
        assert [sent.opts["model"] for sent in model.sent] == ["big", "fallback 1", "fallback 2"]
        assert [offered(sent) for sent in model.sent] == [["add", "look"], ["look"], ["look"]]
        assert texts(model.sent[0].messages) == ["Be brief.", "Hi"]
        assert texts(model.sent[1].messages) == ["Try harder.", "Short"]
        assert texts(asked.messages) == ["Hi"]

    def test_on_retry_that_returns_none_leaves_the_request_as_it_is(self, ready, through):
        ctx, model = ready(BUSY, "Hello")
        through(ctx, ask_model(retry_delay=0, on_retry=lambda request, error, attempt: None))
        assert model.sent[0] == model.sent[1]

    def test_calls_are_dropped_if_on_retry_disabled_tools(self, ready, through):
        def on_retry(request, error, attempt):
            return request.replace(tool_choice="none")

        ctx, _ = ready(BUSY, calls(call("add")))
        assert through(ctx, ask_model(retry_delay=0, on_retry=on_retry)).response.tool_calls == ()

    def test_calls_are_checked_against_the_tools_that_on_retry_offered(self, ready, through):
        def on_retry(request, error, attempt):
            return request.replace(tools=["look"])

        ctx, _ = ready(BUSY, calls(call("add", a=1, b=2)))
        asking = ask_model(retry_delay=0, on_retry=on_retry)
        checked = through(ctx, asking, parse_tool_calls, validate_calls)
        (problems,) = checked.validation_errors.values()
        assert "'add' is not offered in this request" in problems[0]

    def test_invalid_messages_of_on_retry_are_repaired_and_the_repair_recorded(
        self, ready, through
    ):
        orphan = {"role": "tool", "tool_call_id": "c9", "content": "x"}

        def on_retry(request, error, attempt):
            assert isinstance(request, Request)
            return request.replace(messages=[*request.messages, orphan])

        ctx, model = ready(BUSY, "Hello", has_listeners=True)
        events = []
        through(ctx, ask_model(retry_delay=0, on_retry=on_retry), emit=events.append)
        assert all(message["role"] != "tool" for message in model.sent[1].messages)
        repaired = [event for event in events if isinstance(event, HistoryRepaired)]
        assert [event.stage for event in repaired] == ["on_retry"]


class TestEvents:
    """Listeners receive the request, the chunks, the retries and the response."""

    def test_a_response_that_is_streamed(self, ready, through):
        ctx, _ = ready(["Hel", "lo"], has_listeners=True, iteration=4)
        events = []
        through(ctx, ask_model, emit=events.append)
        assert [type(event) for event in events] == [
            ModelRequested,
            FirstChunk,
            TextDelta,
            TextDelta,
            ModelResponded,
        ]
        assert [event.text for event in events[2:4]] == ["Hel", "lo"]
        assert {event.iteration for event in events} == {4}
        assert events[-1].response.content == "Hello"
        assert events[-1].duration == events[-1].at - events[0].at

    def test_the_reported_request_is_the_one_that_is_sent(self, ready, through):
        ctx, _ = ready("Hello", has_listeners=True, instructions="Be brief.")
        events, view = [], [{"role": "user", "content": "Short"}]
        ctx = ctx.with_request(messages=view).replace(guidance="Hurry.")
        through(ctx, ask_model, emit=events.append)
        assert texts(events[0].messages) == ["Short"]
        assert (events[0].instructions, events[0].guidance) == ("Be brief.", "Hurry.")

    def test_repairs_of_edits_by_stages_are_reported_once(self, ready, through):
        ctx, _ = ready("One", "Two", has_listeners=True)
        ctx = ctx.noted("mine", ("a repair",))
        events = []
        asked = through(ctx, ask_model, emit=events.append)
        through(asked, ask_model, emit=events.append)
        repaired = [event for event in events if isinstance(event, HistoryRepaired)]
        assert [(event.stage, event.repairs) for event in repaired] == [("mine", ("a repair",))]

    def test_without_listeners_no_event_is_emitted(self, ready, through):
        ctx, _ = ready(["Hel", "lo"])
        events = []
        asked = through(ctx, ask_model, emit=events.append)
        assert (events, asked.response.content) == ([], "Hello")
