"""The iteration is added to the history: one tool message for each call, in order."""

import json

import pytest

from treadle.effects import drive_sync
from treadle.messages import Response, ToolCall, ToolResult
from treadle.stages import dispatch_tools, inject, inject_results, parse_tool_calls, plan_calls
from treadle.testing import check_history
from treadle.tools import approve, edit, tool

from .dispatching import PLANNED, broken, double

STAGES = (*PLANNED, dispatch_tools, inject_results)
WITHOUT_DEDUPE = (*PLANNED[:2], plan_calls(dedupe="off"), dispatch_tools, inject_results)
USER = {"role": "user", "content": "Hi"}


def added(ctx):
    check_history(ctx.messages.to_list())
    return ctx.messages[1:]


PARTS = [{"type": "text", "text": "Hi"}, {"type": "thinking", "thinking": "hm"}]


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (Response("Hello"), {"content": "Hello"}),
        (Response("Hi", extra={"content": PARTS}), {"content": PARTS}),
        (
            Response(None, refusal="No.", extra={"refusal": "Something else"}),
            {"content": None, "refusal": "No."},
        ),
    ],
    ids=["text", "parts", "a refusal"],
)
def test_a_response_without_calls_becomes_the_assistant_message(
    context, through, response, message
):
    ctx = through(context(response=response), inject_results)
    assert added(ctx) == [{"role": "assistant", **message}]
    assert ctx.result_messages == tuple(added(ctx))


def test_a_blank_response_adds_nothing(context, through):
    ctx = context(response=Response("  "))
    assert through(ctx, inject_results).messages is ctx.messages


def test_every_call_has_exactly_one_answer_in_order_whatever_its_outcome(context, through):
    ctx = through(
        context(
            ("nope", {}),
            ("double", {"n": 1}),
            ("broken", {"n": 1}),
            ("double", {"n": 2}),
            tools=[double, broken],
            limits={"max_tool_calls": 2},
        ),
        *STAGES,
    )
    assistant, *answers = added(ctx)
    assert [call["id"] for call in assistant["tool_calls"]] == ["c1", "c2", "c3", "c4"]
    assert [m["tool_call_id"] for m in answers] == ["c1", "c2", "c3", "c4"]
    assert [m["content"].split(":")[0] for m in answers] == [
        "Error", "2", "Error", "Not run",
    ]  # fmt: skip


@pytest.mark.parametrize("response", [Response("Hello"), None])
def test_an_iteration_is_injected_only_once(context, through, response):
    calls = [] if response else [("double", {"n": 1})]
    once = through(context(*calls, response=response, tools=[double]), *STAGES)
    assert once.is_injected
    assert through(once, inject_results, inject_results) is once
    assert inject(inject(once)) is once
    assert len(added(once)) == len(once.result_messages) == (1 if response else 2)


def test_a_call_without_a_result_is_answered_as_not_run(context):
    ctx = parse_tool_calls(context(("double", {"n": 1})))
    assert added(inject(ctx))[1]["content"] == "Not run: it was not planned."
    assert added(inject(ctx, "Cancelled."))[1]["content"] == "Cancelled."


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ('{"n":   1}', '{"n":   1}'),
        ("", "{}"),
        ("  \n", "{}"),
        ('{"n":', '{"invalid_arguments": "{\\"n\\":"}'),
        ("[1]", '{"invalid_arguments": "[1]"}'),
    ],
)
@pytest.mark.parametrize("tools", [[double], [tool(name="double")(lambda: 1)], []])
def test_arguments_are_sent_back_unchanged_if_they_parse(context, through, arguments, kept, tools):
    """A server that parses past calls would refuse every request after one that it cannot parse."""
    ctx = through(context(ToolCall("c1", "double", arguments), tools=tools), *STAGES)
    assert added(ctx)[0]["tool_calls"][0]["function"]["arguments"] == kept
    assert isinstance(json.loads(kept), dict)


def test_unknown_keys_are_sent_back_to_the_provider(context, through):
    call = ToolCall("c1", "double", '{"n": 1}', extra={"signature": {"x": [1]}})
    response = Response("Let me see", (call,), extra={"reasoning": "because"})
    message = added(through(context(response=response, tools=[double]), *STAGES))[0]
    assert message["reasoning"] == "because"
    assert message["content"] == "Let me see"
    assert message["tool_calls"][0]["signature"] == {"x": [1]}
    assert message["tool_calls"][0]["signature"] is not call.extra["signature"]


def test_a_response_after_an_assistant_message_is_joined_to_it(context, through):
    """Roles alternate: the input may end with an assistant message, or a stage may continue after a text."""
    given = [USER, {"role": "assistant", "content": "So far"}]
    ctx = through(context(messages=given, response=Response("and on")), inject_results)
    assert added(ctx) == [{"role": "assistant", "content": "So far\n\nand on"}]
    ctx = through(context(("double", {"n": 1}), messages=given, tools=[double]), *STAGES)
    assert [m["role"] for m in added(ctx)] == ["assistant", "tool"]
    assert added(ctx)[0]["content"] == "So far"


@pytest.mark.parametrize(
    "response",
    [
        Response("Let me see", (ToolCall("c1", "double", '{"n": 1}'),)),
        Response(None, (ToolCall("c1", "double", '{"n": 1}', extra={"signature": {"x": [1]}}),)),
        Response(
            "Hi",
            (ToolCall("c1", "double", '{"n": 1}'),),
            extra={"content": [{"type": "text", "text": "Hi"}], "reasoning": {"why": [1]}},
        ),
        Response("Hello"),
        Response(None, refusal="No."),
    ],
    ids=["calls", "a signature", "parts", "text", "a refusal"],
)
@pytest.mark.parametrize("given", [[USER], [USER, {"role": "assistant", "content": "So far"}]])
def test_the_messages_that_a_backend_receives_are_deep_copies(context, through, response, given):
    """A backend that changes them does not change the history."""
    ctx = through(context(response=response, messages=given, tools=[double]), *STAGES)
    before = json.dumps(ctx.messages.to_list())
    assert json.dumps(ctx.messages.for_model()) == before
    for message in ctx.messages.for_model():
        spoil(message)
    assert json.dumps(ctx.messages.to_list()) == before


def spoil(value):
    for part in list(value.values() if isinstance(value, dict) else value):
        if isinstance(part, (dict, list)):
            spoil(part)
    value.clear()


def next_iteration(ctx):
    """The context of another iteration with the same response."""
    return ctx.evolve(tool_calls=(), parsed=None, tool_results={}, result_messages=())


class TestRepeatNote:
    """From the third identical call of a turn on, the result has a note."""

    @pytest.fixture
    def repeat(self, context, through):
        """Make the same call again and again, as if it returned something new each time."""

        def repeat(name, arguments, times, tools=(double, broken)):
            ctx = context((name, arguments), tools=list(tools))
            for _ in range(times):
                ctx = through(next_iteration(ctx), *WITHOUT_DEDUPE)
            return ctx

        return repeat

    @pytest.mark.parametrize(("times", "has_note"), [(2, False), (3, True)])
    def test_a_suppressed_call_has_it_too(self, context, through, times, has_note):
        ctx = context(("double", {"n": 1}), tools=[tool(double, dedupe="strict")])
        for _ in range(times):
            ctx = through(next_iteration(ctx), *STAGES)
        assert ctx.tool_results[ctx.tool_calls[0].id].status == "no_new_evidence"
        content = ctx.messages[-1]["content"]
        assert content.startswith("Not run again: you made the same call in iteration 1")
        assert (f"[note: this is call number {times} of 'double'" in content) is has_note

    def test_it_is_not_in_the_tool_results(self, repeat):
        ctx = repeat("double", {"n": 1}, 3)
        assert ctx.tool_results[ctx.tool_calls[0].id].content == "2"

    def test_errors_and_volatile_tools_have_no_note(self, repeat):
        assert "[note" not in repeat("broken", {"n": 1}, 4).messages[-1]["content"]
        clock = tool(name="clock", volatile=True)(lambda: "now")
        assert repeat("clock", {}, 4, [clock]).messages[-1]["content"] == "now"


class TestEditedCalls:
    """The history keeps the model's arguments of an edited call, and its result has a note."""

    NOTE = "[note: a person changed the arguments of this call before it ran, to: "

    @pytest.fixture
    def ran(self, context):
        """A call that ran with other arguments than the model's, as after a pause."""

        def ran(decision, *, result=None, count=0, call_input=None):
            ctx = context(tools=[double])
            call = ToolCall("c1", "double", '{"n": 1}', call_input or {"n": 7}, "print")
            ctx.run.repeats.counts["print"] = count
            result = result or ToolResult("c1", "14")
            ctx = ctx.replace(
                response=Response(tool_calls=(call,)),
                tool_calls=(call,),
                tool_results={"c1": result},
                approvals={"c1": decision},
            )
            return drive_sync(inject_results(ctx))

        return ran

    def test_the_note_is_not_in_the_tool_results(self, ran):
        assert ran(edit({"n": 7})).tool_results["c1"].content == "14"

    @pytest.mark.parametrize(
        ("decision", "result", "start"),
        [
            (approve, ToolResult("c1", "14"), "14"),
            (edit({"n": 7}), ToolResult("c1", "E", True), f"E\n\n{NOTE}"),
            *(
                (edit({"n": 7}), ToolResult("c1", "no", True, status), "no")
                for status in ("cancelled", "locked", "timeout")
            ),
        ],
    )
    def test_only_an_edited_call_that_finished_has_it(self, ran, decision, result, start):
        content = added(ran(decision, result=result))[1]["content"]
        assert content.startswith(start)
        assert (self.NOTE in content) is (self.NOTE in start)

    def test_a_result_can_have_both_notes(self, ran):
        content = added(ran(edit({"n": 7}), count=3))[1]["content"]
        first, edit_note, repeat_note = content.split("\n\n")
        assert (first, edit_note[:13]) == ("14", self.NOTE[:13])
        assert repeat_note.startswith("[note: this is call number 3 of 'double'")

    def test_a_call_without_a_result_or_a_decision_is_answered_as_usual(self, context):
        ctx = parse_tool_calls(context(("double", {"n": 1}), ("double", {"n": 2})))
        ctx = ctx.replace(
            approvals={"c1": edit({"n": 7})}, tool_results={"c2": ToolResult("c2", "4")}
        )
        contents = [message["content"] for message in added(drive_sync(inject_results(ctx)))[1:]]
        assert contents == ["Not run: it was not planned.", "4"]
