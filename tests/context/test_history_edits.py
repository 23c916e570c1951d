"""``replace(messages=...)``: a stage rewrites the history, which stays valid and has each exchange whole."""

import pytest
from tests.loop.edited_runs import (
    EDITS,
    ONE,
    SCRIPTS,
    SEVERAL,
    USER,
    EditedRun,
    answer_to,
    at,
    custom,
    first_only,
    providing,
    refused_by,
    repairs,
    through,
)

from treadle import Loop, default_stages
from treadle.messages import History
from treadle.stages import ask_model, inject_results, parse_tool_calls, validate_calls
from treadle.testing import call, calls


def rewritten(edit):
    """An edit of each message of the history."""
    return lambda ctx: ctx.replace(messages=[edit(dict(one)) for one in ctx.messages])


def hide_results(message):
    return {**message, "content": "[gone]"} if message["role"] == "tool" else message


def as_user(message):
    return {**message, "role": "user"} if message["role"] == "tool" else message


def with_function(function):
    """An edit of the calls in a message."""

    def edit(message):
        made = [
            {**one, "function": {**one["function"], **function}}
            for one in message.get("tool_calls", ())
        ]
        return {**message, "tool_calls": made} if made else message

    return edit


@pytest.mark.parametrize("position", [0, 7])
def test_redacted_results_are_in_the_request_and_in_the_history(position):
    run = EditedRun(ONE, rewrites=True)
    result = run.run(at(position, rewritten(hide_results)))
    assert answer_to(result, "a") == "[gone]"
    assert run.requests[1][-1]["content"] == "[gone]"
    assert repairs(run) == []


def test_redacted_arguments_stay_redacted_and_the_name_of_the_call_is_restored():
    for function, restored in (({}, 0), ({"name": "other"}, 1)):
        run = EditedRun(ONE)
        edit = with_function({"arguments": '{"n": "[gone]"}', **function})
        run.run(at(7, first_only(rewritten(edit))))
        (made,) = run.requests[1][1]["tool_calls"]
        assert made["function"] == {"name": "note", "arguments": '{"n": "[gone]"}'}
        assert len(repairs(run)) == restored


def test_a_history_that_is_trimmed_within_the_iteration_keeps_the_exchange_once():
    run = EditedRun(ONE)
    run.run(at(7, first_only(lambda ctx: EDITS["trim"](run, ctx))))
    assert [m["role"] for m in run.requests[1]] == ["assistant", "tool"]


@pytest.mark.parametrize(
    "edit",
    [lambda ctx: EDITS["trim_to_first"](None, ctx), rewritten(as_user)],
    ids=["trimmed", "other role"],
)
def test_the_exchange_of_the_iteration_is_restored_and_the_repair_reported(edit):
    run = EditedRun(ONE)
    result = run.run(at(7, first_only(edit)))
    assert answer_to(result, "a") == "noted 1"
    (event,) = repairs(run)
    assert event.stage == "edit"
    assert event.repairs == ("the messages of this iteration were restored",)


def test_a_history_that_a_stage_breaks_as_it_injects_is_repaired():
    run = EditedRun(ONE)
    orphan = {"role": "tool", "tool_call_id": "nobody", "content": "orphan"}

    def edit(ctx):
        if not ctx.tool_calls:
            return ctx
        ctx = yield from through(ctx, inject_results)
        return ctx.replace(messages=History([orphan, *ctx.messages.raw()[1:]]))

    result = run.run(at(6, edit))
    answered = [one["tool_call_id"] for one in result.messages if one["role"] == "tool"]
    assert answered == ["a"]
    (event,) = repairs(run)
    assert event.stage == "edit"


def test_an_answer_that_a_stage_put_in_the_history_itself_is_not_repeated():
    def guard(ctx):
        messages = [*ctx.messages[:-1], {"role": "assistant", "content": "Enough."}]
        return ctx.replace(messages=messages).done("Enough.")

    stages = [ask_model, parse_tool_calls, validate_calls, inject_results, guard]
    result = Loop.run_sync([USER], lambda _: "Too much.", stages=stages)
    assert result.messages == [USER, {"role": "assistant", "content": "Enough."}]
    assert result.output == "Enough."


# The stage that injects


def put(ctx):
    """Append the exchange of the iteration, with the results in capitals."""
    if not ctx.tool_calls:
        return ctx
    made = calls(*(call(one.name, one.id, **one.input) for one in ctx.tool_calls))
    results = [
        {"role": "tool", "tool_call_id": key, "content": one.content.upper()}
        for key, one in ctx.tool_results.items()
    ]
    return ctx.replace(messages=[*ctx.messages, made, *results])


def test_a_custom_stage_may_replace_inject_results():
    run = EditedRun(SEVERAL, rewrites=True)
    result = run.run(Loop().pipeline.replace("inject_results", put).components)
    assert answer_to(result, "a") == "NOTED 1"
    assert sorted(run.ran) == [1, 2, 3, 4]


def test_a_stage_that_does_not_inject_may_not_append_the_calls_of_the_iteration():
    result = EditedRun(ONE).run(at(6, put))
    assert refused_by(result) == "edit"
    assert "the calls of this iteration are not in the history yet" in result.reason.message
    assert answer_to(result, "a") == "noted 1"
    injecting = EditedRun(ONE, rewrites=True).run(providing("result_messages", put, 6))
    assert answer_to(injecting, "a") == "NOTED 1"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_list_without_inject_results_has_the_same_history(script):
    plain, without = EditedRun(SCRIPTS[script]), EditedRun(SCRIPTS[script])
    stages = [one for one in default_stages() if one.name != "inject_results"]
    assert without.run(stages).messages == plain.run(list(default_stages())).messages
    assert without.ran == plain.ran


def test_a_message_cannot_be_edited_in_place():
    run = EditedRun(("Done.",))

    def spoil(ctx):
        ctx.messages[0]["content"] = "[gone]"
        return ctx

    result = run.run([custom(spoil, "edit"), *default_stages()])
    assert refused_by(result) == "edit"
    assert "read-only" in result.reason.message
    assert result.messages == [USER]
    assert run.requests == []
