"""No stage can make the run lose work: edits of every kind, at every position of the default list."""

import json
from dataclasses import replace

import pytest
from tests.time_limit import TimeLimit

from treadle import (
    Err,
    Limits,
    Loop,
    Ok,
    Paused,
    PipelineFailed,
    approve,
    default_stages,
    stage,
    tool,
)
from treadle.effects import Sleep
from treadle.events import BreakerChanged, CallRefused, HistoryRepaired, IterationFinished
from treadle.messages import History, Response, ToolCall, ToolResult
from treadle.stages import (
    ask_model,
    dispatch_tools,
    inject_results,
    parse_tool_calls,
    plan_calls,
    validate_calls,
)
from treadle.testing import call, calls
from treadle.tools import CircuitBreaker, NotRunReason, Plan, Tool

from .edited_runs import (
    ASKING,
    EDITS,
    POSITIONS,
    REFUSED,
    REWRITES,
    SCRIPTS,
    USER,
    WRONG_KINDS,
    EditedRun,
    at,
    performed,
    through,
    with_handle,
)


def replace_tool(old, **options):
    return Tool(old.name, old.description, old.input_schema, fn=lambda n: f"noted {n}", **options)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("edit", EDITS)
def test_no_edit_makes_the_run_lose_work(edit, position, script):
    run, entered = EditedRun(SCRIPTS[script], rewrites=edit in REWRITES), []

    def edited(ctx):
        entered.append(ctx)
        return EDITS[edit](run, ctx)

    result = run.run(at(position, edited))
    assert refused_by(result) == ("edit" if entered and position in REFUSED[edit] else None)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("name", ASKING)
def test_no_stage_that_calls_the_model_or_dispatches_makes_the_run_lose_work(
    name, position, script
):
    run = EditedRun(SCRIPTS[script])
    result = run.run(at(position, lambda ctx: (yield from performed(ASKING[name](run, ctx)))))
    assert refused_by(result) in (None, "edit")


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", WRONG_KINDS)
def test_an_invalid_value_is_refused_with_the_name_of_the_stage(kind, position, script):
    run = EditedRun(SCRIPTS[script])
    entered = []

    def edit(ctx):
        entered.append(ctx)
        return WRONG_KINDS[kind](ctx)

    result = run.run(at(position, edit))
    assert refused_by(result) == ("edit" if entered else None)


def test_the_error_of_an_invalid_response_or_call_names_the_field():
    for edit, text in (
        (lambda ctx: ctx.replace(response=Response(5)), "Response.content: expected text, got int"),
        (
            lambda ctx: ctx.replace(tool_calls=[replace(ctx.tool_calls[0], name=5)]),
            "ToolCall.name: expected text, got int",
        ),
    ):
        assert EditedRun(ONE).run(at(2, edit)).reason.message.startswith(text)


def refused_by(result):
    """The stage whose edit was refused; None if none was."""
    failed = isinstance(result, Err) and isinstance(result.reason, PipelineFailed)
    return result.reason.stage if failed else None


SEVERAL = SCRIPTS["several calls"]
ONE = SCRIPTS["one call"]


def answer_to(result, call_id):
    """The one tool message that answers a call."""
    (message,) = [m for m in result.messages if m.get("tool_call_id") == call_id]
    return message["content"]


def refused(run):
    """The calls that were reported as refused, each with the reason, in order."""
    return [(event.call.id, event.reason) for event in run.events if isinstance(event, CallRefused)]


def repairs(run):
    return [event for event in run.events if isinstance(event, HistoryRepaired)]


def first_only(edit):
    """An edit of the first iteration."""
    return lambda ctx: edit(ctx) if ctx.iteration == 1 else ctx


@pytest.mark.parametrize("position", [2, 3, 4, 5])
def test_a_call_that_is_removed_before_dispatch_is_answered_and_does_not_run(position):
    run = EditedRun(SEVERAL)
    kept = first_only(lambda ctx: ctx.replace(tool_calls=ctx.tool_calls[1:]))
    result = run.run(at(position, kept))
    assert sorted(run.ran) == [2, 3, 4]
    answers = [message["content"] for message in result.messages if message["role"] == "tool"]
    assert answers[:3] == ["Not run: removed by edit.", "noted 2", "noted 3"]
    assert refused(run) == [("a", NotRunReason.REMOVED)]


def test_if_all_calls_are_removed_each_is_answered():
    run = EditedRun(SEVERAL)
    result = run.run(at(5, first_only(lambda ctx: ctx.replace(tool_calls=[]))))
    assert run.ran == [4]
    assert [answer_to(result, i) for i in "abc"] == ["Not run: removed by edit."] * 3
    assert refused(run) == [(i, NotRunReason.REMOVED) for i in "abc"]


def test_a_call_that_is_removed_from_the_plan_is_answered_and_does_not_run():
    run = EditedRun(SEVERAL)
    result = run.run(
        at(5, first_only(lambda ctx: ctx.replace(plan=Plan.of_one(ctx.tool_calls[2]))))
    )
    assert sorted(run.ran) == [3, 4]
    assert answer_to(result, "b") == "Not run: removed by edit."
    assert refused(run) == [("a", NotRunReason.REMOVED), ("b", NotRunReason.REMOVED)]


def test_the_reasons_of_calls_that_do_not_run_are_kept_in_a_plan_of_a_stage():
    run = EditedRun((calls(*(call("note", call_id, n=1) for call_id in "ab")), "Done."))
    planned = first_only(lambda ctx: ctx.replace(plan=Plan.of_one(ctx.tool_calls[0])))
    result = run.run(at(5, planned))
    assert answer_to(result, "b").startswith("Not run twice: ")
    assert answer_to(result, "b").endswith("\nnoted 1")
    plan = next(e.context.plan for e in run.events if isinstance(e, IterationFinished))
    assert plan.not_run == {"b": NotRunReason.DUPLICATE_IN_BATCH}


def test_results_of_a_stage_that_dispatches_are_kept_if_it_returns_the_old_context():
    run = EditedRun(ONE)

    def edit(ctx):
        yield from dispatch_tools(ctx)
        return ctx

    result = run.run(at(5, edit))
    assert run.ran == [1]
    assert answer_to(result, "a") == "noted 1"


@pytest.mark.parametrize("position", [6, 7, 8, 9])
def test_a_result_that_is_dropped_is_restored_and_reported(position):
    run = EditedRun(ONE)
    result = run.run(at(position, first_only(lambda ctx: ctx.replace(tool_results={}))))
    assert answer_to(result, "a") == "noted 1"
    (event,) = repairs(run)
    assert event.stage == "edit"
    assert event.repairs == ("iteration 1: results of a were restored",)


def test_a_call_that_ran_is_restored_and_reported():
    run = EditedRun(ONE)
    result = run.run(at(6, first_only(lambda ctx: ctx.replace(tool_calls=()))))
    assert answer_to(result, "a") == "noted 1"
    assert repairs(run)[0].stage == "edit"


def test_a_history_that_is_trimmed_within_the_iteration_keeps_the_iteration_once():
    run = EditedRun(ONE)
    run.run(at(7, first_only(lambda ctx: EDITS["trim"](run, ctx))))
    assert [m["role"] for m in run.requests[1]] == ["assistant", "tool"]


def test_arguments_that_a_stage_redacted_in_the_history_stay_redacted():
    def hide(ctx):
        user, made, *results = ctx.messages
        (one,) = made["tool_calls"]
        hidden = {**one, "function": {**one["function"], "arguments": "{}"}}
        return ctx.replace(messages=[user, {**made, "tool_calls": [hidden]}, *results])

    run = EditedRun(ONE)
    run.run(at(7, first_only(hide)))
    assert run.requests[1][1]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("position", "edit", "repair"),
    [
        (7, "trim_to_first", "the messages of this iteration were restored"),
        (2, "change_everything", None),
    ],
)
def test_restored_messages_of_the_history_are_reported(position, edit, repair):
    run = EditedRun(ONE)
    run.run(at(position, first_only(lambda ctx: EDITS[edit](run, ctx))))
    assert [event.repairs for event in repairs(run)] == ([(repair,)] if repair else [])


def test_the_model_receives_the_edited_result():
    run = EditedRun(ONE, rewrites=True)
    result = run.run(at(6, lambda ctx: EDITS["edit_results"](run, ctx)))
    assert answer_to(result, "a") == "edited a"
    assert run.requests[1][-1]["content"] == "edited a"


def test_a_call_runs_with_edited_arguments_and_the_history_has_them():
    run = EditedRun(ONE)
    run.run(at(5, lambda ctx: EDITS["edit_input"](run, ctx)))
    assert run.ran == [100]
    made = run.requests[1][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(made) == {"n": 100}


def test_edited_arguments_are_validated_again():
    run = EditedRun(ONE)
    wrong = first_only(
        lambda ctx: ctx.replace(tool_calls=[replace(c, input={"n": "x"}) for c in ctx.tool_calls])
    )
    result = run.run(at(5, wrong))
    assert run.ran == []
    assert "was not run" in answer_to(result, "a")
    (finished, *_) = (one for one in run.events if isinstance(one, IterationFinished))
    assert finished.context.validation_errors.keys() == {"a"}


@pytest.mark.parametrize("position", [2, 3, 4, 5])
def test_arguments_that_a_stage_broke_are_not_in_the_history(position):
    run = EditedRun(ONE)
    broken = first_only(
        lambda ctx: ctx.replace(tool_calls=[replace(c, arguments="{") for c in ctx.tool_calls])
    )
    result = run.run(at(position, broken))
    assert run.ran == []
    assert "not valid JSON" in answer_to(result, "a")


@pytest.mark.parametrize("position", [2, 3, 4])
def test_an_added_call_is_validated_like_calls_of_the_model(position):
    run = EditedRun(ONE)
    extra = ToolCall("extra", "note", '{"n": "x"}', {"n": "x"}, "x")
    added = first_only(lambda ctx: ctx.replace(tool_calls=(*ctx.tool_calls, extra)))
    result = run.run(at(position, added))
    assert run.ran == [1]
    assert "expected integer" in answer_to(result, "extra")


@pytest.mark.parametrize("call_id", ["", "a"])
def test_an_added_call_needs_an_id_that_is_unique_in_the_history(call_id):
    run = EditedRun(SEVERAL)
    extra = ToolCall(call_id, "note", '{"n": 9}')
    result = run.run(
        at(2, lambda ctx: ctx.replace(tool_calls=(extra,)) if ctx.iteration == 2 else ctx)
    )
    assert "an id that is unique in the history" in result.reason.message


@pytest.mark.parametrize("iteration", [1, 2])
def test_a_run_cannot_be_done_without_a_request_or_an_answer(iteration):
    done = lambda ctx: ctx.done() if ctx.iteration == iteration else ctx  # noqa: E731
    result = EditedRun(ONE).run(at(0, done))
    assert result.reason.stage == "edit"
    assert "the model was not asked yet, and there is no answer" in result.reason.message


END = Tool("end", "End.", {"type": "object", "required": ["n"]}, terminal=True)
INTO_CALLS_OF_END = {
    "added": lambda first: (first, ToolCall("extra", "end", '{"n": 9}')),
    "renamed": lambda first: (replace(first, name="end"),),
    "corrected": lambda first: (replace(first, arguments='{"n": 9}', input=None),),
}


@pytest.mark.parametrize("how", INTO_CALLS_OF_END)
def test_a_call_of_a_terminal_tool_is_the_answer_only_before_loop_decision(how):
    name = "end" if how == "corrected" else "note"
    script = calls(call(name, "a", **({} if name == "end" else {"n": 1}))), "Done."
    edit = first_only(lambda ctx: ctx.replace(tool_calls=INTO_CALLS_OF_END[how](*ctx.tool_calls)))
    for position in (3, 4):
        run = EditedRun(script)
        result = run.run(at(position, edit), tools=[*run.tools, END])
        if position == 3:
            assert result.output == {"n": 1 if how == "renamed" else 9}
        else:
            assert "calls the terminal tool 'end'" in result.reason.message
        assert run.ran == []


def test_an_edit_of_a_call_that_ran_is_undone_and_reported():
    run = EditedRun(ONE)
    result = run.run(at(6, lambda ctx: EDITS["edit_input"](run, ctx)))
    assert json.loads(result.messages[1]["tool_calls"][0]["function"]["arguments"]) == {"n": 1}
    assert repairs(run)[0].repairs == (
        "iteration 1: call a has run; its name and input were restored",
    )


INVALID = (calls(call("note", "a", n="invalid"), call("note", "b", n=2)), "Done.")
CORRECTED = {"arguments": '{"n": 5}'}, {"input": {"n": 5}}, {"arguments": '{"n": 5}', "input": None}


def corrected(changes, **fields):
    """An edit of the first, invalid call of an iteration."""
    return first_only(
        lambda ctx: ctx.replace(
            tool_calls=[replace(ctx.tool_calls[0], **changes), *ctx.tool_calls[1:]], **fields
        )
    )


@pytest.mark.parametrize("changes", CORRECTED)
@pytest.mark.parametrize("fields", [{}, {"tool_results": {}, "validation_errors": {}}])
@pytest.mark.parametrize("position", [3, 4])
def test_an_invalid_call_that_a_stage_corrects_before_the_plan_runs(position, changes, fields):
    run = EditedRun(INVALID)
    result = run.run(at(position, corrected(changes, **fields)))
    assert sorted(run.ran) == [2, 5]
    assert answer_to(result, "a") == "noted 5"
    made = result.messages[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(made) == {"n": 5}
    first = next(e.context for e in run.events if isinstance(e, IterationFinished))
    assert first.validation_errors == {}
    assert repairs(run) == []


def test_a_call_that_is_still_invalid_after_an_edit_is_answered_with_its_problems():
    run = EditedRun(INVALID)
    result = run.run(at(4, corrected({"name": "nota", "arguments": "{}"})))
    assert run.ran == [2]
    assert answer_to(result, "a").startswith("Error: the call of 'nota' was not run:")
    assert "expected integer" not in answer_to(result, "a")


def test_an_invalid_call_that_a_stage_both_edits_and_answers_has_that_answer():
    run, own = EditedRun(INVALID), ToolResult("a", "I know: 5.")
    result = run.run(at(4, corrected(CORRECTED[0], tool_results={"a": own})))
    assert run.ran == [2]
    assert answer_to(result, "a") == "I know: 5."


@pytest.mark.parametrize("script", [INVALID, (calls(call("note", "a", n="invalid")), "Done.")])
@pytest.mark.parametrize("position", [5, 6])
def test_an_edit_of_an_invalid_call_after_the_plan_is_undone_and_reported(position, script):
    run = EditedRun(script)
    result = run.run(at(position, corrected({"input": {"n": 5}})))
    assert 5 not in run.ran
    assert "expected integer" in answer_to(result, "a")
    (event,) = repairs(run)
    assert event.repairs == ("iteration 1: call a was answered; its name and input were restored",)


def test_arguments_of_a_call_that_ran_may_be_redacted_before_they_are_in_the_history():
    run = EditedRun(ONE)

    def redact(ctx):
        return ctx.replace(tool_calls=[replace(ctx.tool_calls[0], arguments='{"n": 0}')])

    result = run.run(at(6, first_only(redact)))
    (made,) = result.messages[1]["tool_calls"]
    assert made["function"]["arguments"] == '{"n": 0}'
    assert (run.ran, answer_to(result, "a"), repairs(run)) == ([1], "noted 1", [])


def test_calls_that_a_stage_plans_count_as_uses_of_their_tool():
    run = EditedRun(ONE)
    run.tools = [tool(run.note, max_uses=2)]  # one use is that of the removed call

    def add(ctx):
        added = [ToolCall(name, "note", json.dumps({"n": n})) for n, name in enumerate("xy", 8)]
        return ctx.replace(tool_calls=added, plan=Plan((tuple(added),)))

    result = run.run(at(5, first_only(add)))
    assert run.ran == [8]
    assert answer_to(result, "y").startswith("Not run: the budget of tool calls is spent.")


def test_a_planned_call_that_a_stage_renames_counts_as_a_use_of_the_other_tool():
    run = EditedRun(SEVERAL)
    run.tools.append(tool(run.other, max_uses=1))

    def rename(ctx):
        return ctx.replace(tool_calls=[replace(one, name="other") for one in ctx.tool_calls])

    run.run(at(5, rename))
    assert run.ran == [1]


def test_counters_cannot_be_changed():
    run, seen = EditedRun(ONE), []
    stages = at(6, lambda ctx: ctx.evolve(is_asked=False))
    stages.insert(7, stage(name="see")(lambda ctx: seen.append(ctx) or ctx))
    run.run(stages)
    assert seen[0].is_asked
    for field in ("usage", "tool_calls_count"):
        result = EditedRun(ONE).run(at(6, lambda ctx, field=field: ctx.replace(**{field: 99})))
        assert f"no field {field!r}" in result.reason.message


def test_tools_without_a_function_are_accepted_if_they_need_none():
    bare = {"type": "object", "properties": {}}
    end, look = Tool("end", "End.", bare, terminal=True), Tool("look", "Look.", bare)
    swap = lambda ctx: ctx.replace(tools={"end": end, "look": look})  # noqa: E731
    run = EditedRun((calls(call("look", "l")), calls(call("end", "e"))))
    result = run.run(at(0, swap), resolve_tool=lambda _call: run.returns("seen", 1))
    assert result.stop_reason == "output"
    assert answer_to(result, "l") == "seen 1"
    assert "there is no resolve_tool" in EditedRun(ONE).run(at(0, swap)).reason.message


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5])
def test_the_calls_of_a_replaced_response_do_not_run(position):
    run = EditedRun(ONE)
    said = first_only(lambda ctx: ctx.replace(response=Response("Replaced.")))
    result = run.run(at(position, said))
    assert run.ran == []
    assert isinstance(result, Ok)
    assert result.response.content == "Replaced."
    assert result.messages == [USER, {"role": "assistant", "content": "Replaced."}]


@pytest.mark.parametrize(("position", "ran"), [(1, [100]), (2, [100]), (4, [100]), (5, [])])
def test_the_calls_of_the_new_response_run_unless_it_comes_too_late(position, ran):
    run = EditedRun(ONE)
    result = run.run(
        at(position, first_only(lambda ctx: EDITS["replace_response_by_call"](run, ctx)))
    )
    assert run.ran == ran
    assert answer_to(result, "new") == (
        "noted 100" if ran else "Not run: edit replaced the response."
    )


def test_the_budget_of_the_calls_of_a_replaced_response_is_released():
    run = EditedRun(SEVERAL)
    run.run(
        at(5, first_only(lambda ctx: EDITS["replace_response_by_call"](run, ctx))), max_tool_calls=3
    )
    assert run.requests[1][-1]["content"] == "Not run: edit replaced the response."
    assert run.ran == [4]


@pytest.mark.parametrize("position", [6, 7, 8, 9])
def test_calls_that_ran_stay_in_the_history_if_the_response_is_replaced_later(position):
    run = EditedRun(ONE)
    said = first_only(lambda ctx: ctx.replace(response=Response("Replaced.")))
    result = run.run(at(position, said))
    assert run.ran == [1]
    assert answer_to(result, "a") == "noted 1"


@pytest.mark.parametrize("position", [7, 8, 9])
def test_a_response_that_replaces_one_in_the_history_adds_no_calls(position):
    run = EditedRun((calls(call("note", "a", n="invalid")), "Done."))
    result = run.run(
        at(position, first_only(lambda ctx: EDITS["replace_response_by_call"](run, ctx)))
    )
    first = next(e.context for e in run.events if isinstance(e, IterationFinished))
    assert [made.id for made in first.tool_calls] == ["a"]
    assert run.ran == []
    assert result.response.content == "Done."


def test_editing_a_message_in_place_raises_and_does_not_change_the_history():
    run = EditedRun(("Done.",))

    def spoil(ctx):
        ctx.messages[0]["content"] = "[gone]"
        return ctx

    result = run.run(at(0, spoil))
    assert result.reason.stage == "edit"
    assert "read-only" in result.reason.message
    assert result.messages == [USER]
    assert run.requests == []


def spoil_call(ctx):
    ctx.tool_calls[0].input["n"] = 100


IN_PLACE = {
    "memo": lambda ctx: ctx.memo.setdefault("user", "ann"),
    "tools": lambda ctx: ctx.tools.pop("note"),
    "tool_results": lambda ctx: ctx.tool_results.update(b=ToolResult("b", "other")),
    "validation_errors": lambda ctx: ctx.validation_errors.clear(),
    "approvals": lambda ctx: ctx.approvals.setdefault("a", approve),
    "request": lambda ctx: ctx.request.options.update(temperature=0),
    "request_changes": lambda ctx: ctx.request_changes.update(n=1),
    "plan": lambda ctx: ctx.plan.not_run.update(a=NotRunReason.DEFERRED),
    "response": lambda ctx: ctx.response.extra.update(reasoning="none"),
    "input": spoil_call,
    "result_messages": lambda ctx: ctx.result_messages[0].update(content="[gone]"),
}
FROM = {"input": 3, "result_messages": 7}
"""The first position at which there is something to edit."""


@pytest.mark.parametrize("form", ["plain", "generator", "async"])
@pytest.mark.parametrize("field", IN_PLACE)
def test_an_edit_in_place_is_refused_and_reaches_no_other_run(field, form):
    def spoil(ctx):
        IN_PLACE[field](ctx)
        return ctx

    def spoil_in_steps(ctx):
        yield Sleep(0)
        return spoil(ctx)

    async def spoil_later(ctx):
        return spoil(ctx)

    edit = {"plain": spoil, "generator": spoil_in_steps, "async": spoil_later}[form]
    for position in range(FROM.get(field, 0), len(default_stages()) + 1):
        run = EditedRun(ONE)
        result = run.run(at(position, edit))
        assert refused_by(result) == "edit"
        assert "read-only" in result.reason.message
        assert run.ran == ([1] if position > 5 else [])
    later = EditedRun(ONE)
    assert later.run(at(0, lambda ctx: ctx)).unwrap().content == "Done."


def test_tools_of_a_loop_cannot_be_edited():
    loop = Loop(tools=[EditedRun(ONE).note])
    with pytest.raises(TypeError, match="read-only"):
        loop.tools.pop("note")


def test_a_redaction_before_the_model_call_is_in_the_request_and_in_the_history():
    run = EditedRun(ONE)
    hidden = lambda ctx: ctx.replace(  # noqa: E731
        messages=[
            {**m, "content": "[gone]"} if m["content"] == "noted 1" else m for m in ctx.messages
        ]
    )
    result = run.run(at(0, hidden))
    assert answer_to(result, "a") == "[gone]"
    assert run.requests[1][-1]["content"] == "[gone]"


def test_an_approval_cannot_be_removed_from_the_plan():
    run = EditedRun((calls(call("wipe", "w", n=1)), "Done."))
    result = run.run(at(5, lambda ctx: ctx.replace(plan=replace(ctx.plan, approvals={}))))
    assert isinstance(result, Paused)
    assert run.ran == []


@pytest.mark.parametrize(("most", "waits"), [(5, False), (0, True)])
def test_the_rule_of_a_planned_call_receives_its_arguments(most, waits):
    run = EditedRun(ONE)
    note = tool(name="note", requires_approval=lambda given: given["n"] > most)(
        lambda n: run.returns("noted", n)
    )
    result = run.run(at(5, lambda ctx: EDITS["plan_all"](run, ctx)), tools=[note])
    assert isinstance(result, Paused) == waits


def test_a_plan_without_plan_calls_still_requires_approval():
    run = EditedRun((calls(call("wipe", "w", n=1)), "Done."))

    def plan(ctx):
        return ctx.replace(plan=Plan(tuple((c,) for c in ctx.tool_calls)))

    stages = [one for one in default_stages() if one.name != "plan_calls"]
    stages.insert(4, stage(name="edit", provides=("plan",))(plan))
    assert isinstance(run.run(stages), Paused)
    assert run.ran == []


@pytest.mark.parametrize("position", [2, 3, 4, 5])
def test_a_call_that_is_edited_into_one_that_needs_approval_waits_for_it(position):
    run = EditedRun(ONE)

    def rename(ctx):
        return ctx.replace(tool_calls=[replace(c, name="wipe") for c in ctx.tool_calls])

    assert isinstance(run.run(at(position, rename)), Paused)
    assert run.ran == []


def test_a_tool_that_is_replaced_by_one_that_needs_approval_waits_for_it():
    run = EditedRun(ONE)
    asking = replace_tool(run.note, requires_approval=True)
    result = run.run(at(5, lambda ctx: ctx.replace(tools={"note": asking})))
    assert isinstance(result, Paused)
    assert run.ran == []


def test_a_tool_that_is_removed_after_it_was_put_in_the_request_is_not_offered():
    run = EditedRun(("Done.",))
    stages = at(0, lambda ctx: ctx.with_tools(remove=["wipe"]) if "wipe" in ctx.tools else ctx)
    stages.insert(0, stage(name="both")(lambda ctx: ctx.with_request(tools=["note", "wipe"])))
    assert isinstance(run.run(stages), Ok)


@pytest.mark.parametrize("position", [3, 4, 5])
def test_a_call_whose_tool_is_removed_does_not_run(position):
    run = EditedRun(ONE)
    result = run.run(at(position, first_only(lambda ctx: ctx.replace(tools={}))))
    assert run.ran == []
    assert "there is no tool named 'note'" in answer_to(result, "a")


def test_a_plan_of_a_stage_cannot_exceed_the_budget():
    run = EditedRun(SEVERAL)

    def plan(ctx):
        return ctx.replace(plan=Plan((ctx.tool_calls,)))

    stages = [one for one in default_stages() if one.name != "plan_calls"]
    stages.insert(4, stage(name="edit", provides=("plan",))(plan))
    result = run.run(stages, max_tool_calls=2)
    assert run.ran == [1, 2]
    assert "budget" in answer_to(result, "c")
    assert ("c", NotRunReason.OVER_BUDGET) in refused(run)


def test_the_budget_of_a_removed_call_is_released():
    run = EditedRun(SEVERAL)
    drop = first_only(lambda ctx: ctx.replace(tool_calls=ctx.tool_calls[2:]))
    run.run(at(5, drop), max_tool_calls=3)
    assert run.ran == [3, 4]


@pytest.mark.parametrize("edit", ["drop_calls", "empty_plan", "replace_response", "ask"])
def test_after_a_stage_removed_the_probe_of_a_breaker_the_next_call_is_the_probe(edit):
    breaker = CircuitBreaker(threshold=1, cool_down=0)
    breaker.record("note", "failed", "no", 0.0)
    run = EditedRun(ONE)

    def first(ctx):
        made = {**EDITS, **ASKING}[edit](run, ctx) if ctx.iteration == 1 else ctx
        return (yield from performed(made))

    run.run(at(5, first), breaker=breaker)
    assert run.ran == []
    changed = [one.after for one in run.events if isinstance(one, BreakerChanged)]
    assert changed == ["half_open", "open"]


def wrapping(inner, edit=lambda ctx: ctx):
    """The default list, one stage of which is wrapped by one called ``edit``, which edits what it returned."""

    def wrap(ctx):
        return edit((yield from performed(inner.fn(ctx))))

    wrapper = stage(name="edit", provides=inner.provides)(wrap)
    return [wrapper if one.name == inner.name else one for one in default_stages()]


WRAPPED = [parse_tool_calls, validate_calls, plan_calls, dispatch_tools, inject_results]


@pytest.mark.parametrize("inner", WRAPPED)
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_stage_that_wraps_a_built_in_one_changes_nothing(inner, script):
    plain, wrapped = EditedRun(SCRIPTS[script]), EditedRun(SCRIPTS[script])
    expected = plain.run(list(default_stages()))
    assert wrapped.run(wrapping(inner)).messages == expected.messages
    assert wrapped.ran == plain.ran
    assert not repairs(wrapped)


@pytest.mark.parametrize("inner", WRAPPED)
@pytest.mark.parametrize("edit", EDITS)
def test_no_edit_of_the_result_of_a_wrapped_stage_loses_work(edit, inner):
    run = EditedRun(ONE, rewrites=edit in REWRITES)
    stages = wrapping(inner, lambda ctx: EDITS[edit](run, ctx))
    result = run.run(stages)
    for _ in range(3):
        if isinstance(result, Paused):
            result = run.resume(result, stages, {})
    assert refused_by(result) in (None, "edit")


@pytest.mark.parametrize("dedupe", ["evidence", "strict", "off"])
def test_calls_that_a_stage_ran_are_kept_if_a_later_stage_drops_a_response(dedupe):
    def early(ctx):
        return (yield from through(ctx, *TO_RESULTS[1:])) if ctx.iteration == 1 else ctx

    def asks_and_forgets(ctx):
        if ctx.iteration == 1:
            yield from through(ctx, ask_model)
        return ctx

    run = EditedRun((calls(call("note", "a", n=1)), "Forgotten.", "Done."))
    stages = at(1, asks_and_forgets, dedupe=dedupe)
    stages.insert(1, stage(name="early")(early))
    result = run.run(stages)
    assert run.ran == [1]
    assert answer_to(result, "a") == "noted 1"


def test_the_result_of_a_call_that_a_stage_ran_is_kept_if_its_tool_is_removed():
    def early(ctx):
        return (yield from through(ctx, *TO_RESULTS[1:]))

    run = EditedRun(ONE)
    stages = at(1, first_only(lambda ctx: ctx.replace(tools={})))
    stages.insert(1, stage(name="early")(early))
    result = run.run(stages)
    assert run.ran == [1]
    assert answer_to(result, "a") == "noted 1"


@pytest.mark.parametrize("name", ["note", "nope"])
def test_the_answer_of_a_stage_to_an_invalid_call_is_kept(name):
    run = EditedRun((calls(call(name, "a", n="invalid")), "Done."))
    answer = {"a": ToolResult("a", "from the stage")}
    result = run.run(at(2, first_only(lambda ctx: ctx.replace(tool_results=answer))))
    assert answer_to(result, "a") == "from the stage"


def test_the_first_response_is_in_the_history_if_a_stage_calls_the_model_again():
    def again(ctx):
        return (yield from ask_model.fn(ctx))

    run = EditedRun((calls(call("note", "a", n=1)), "Done."))
    result = run.run(at(1, again))
    assert run.ran == []
    assert answer_to(result, "a").startswith("Not run")
    assert result.messages[-1]["content"] == "Done."


@pytest.mark.parametrize("position", [*range(2, 5)])
def test_the_calls_of_a_second_request_run_if_it_is_made_before_the_plan(position):
    run = EditedRun((calls(call("note", "a", n=1)), calls(call("note", "b", n=2)), "Done."))
    result = run.run(at(position, ask_again_once))
    assert run.ran == [2]
    assert answer_to(result, "a").startswith("Not run")
    assert answer_to(result, "b") == "noted 2"


@pytest.mark.parametrize("position", [*range(6, 10)])
def test_a_second_request_after_the_calls_ran_keeps_their_results_and_its_answer(position):
    run = EditedRun((calls(call("note", "a", n=1)), "Done.", "Not asked for."))
    result = run.run(at(position, ask_again_once))
    assert [message["content"] for message in result.messages[1:]] == [None, "noted 1", "Done."]
    assert (result.stop_reason, repairs(run)) == ("answered", [])


@pytest.mark.parametrize("position", [*range(6, 10)])
def test_calls_of_a_second_request_that_come_too_late_are_answered_and_do_not_run(position):
    run = EditedRun((calls(call("note", "a", n=1)), calls(call("note", "b", n=2)), "Done."))
    result = run.run(at(position, ask_again_once))
    assert run.ran == [1]
    assert answer_to(result, "a") == "noted 1"
    assert answer_to(result, "b").startswith("Not run")


def ask_again_once(ctx):
    return (yield from ask_model.fn(ctx)) if ctx.iteration == 1 and ctx.tool_calls else ctx


# Stages that dispatch calls themselves


def in_place_of(inner, steps, **options):
    """The default list with a stage called ``edit`` in place of another."""
    edit = stage(steps, name="edit", requires=inner.requires, provides=inner.provides)
    return [edit if one.name == inner.name else one for one in default_stages(**options)]


def part_of(ctx, batches):
    return ctx.replace(plan=replace(ctx.plan, batches=batches))


TWO = (calls(call("note", "a", n=1), call("note", "b", n=2)), "Done.")


def test_a_stage_that_dispatches_twice_runs_each_call_once():
    def twice(ctx):
        ctx = yield from dispatch_tools.fn(ctx)
        return (yield from dispatch_tools.fn(ctx.replace(tool_results={})))

    run = EditedRun(TWO)
    result = run.run(in_place_of(dispatch_tools, twice))
    assert sorted(run.ran) == [1, 2]
    assert [answer_to(result, one) for one in "ab"] == ["noted 1", "noted 2"]


def test_a_stage_that_dispatches_the_same_context_again_runs_each_call_once():
    def thrice(ctx):
        for _ in range(3):
            made = yield from dispatch_tools.fn(ctx)
        return made

    run = EditedRun(TWO)
    result = run.run(in_place_of(dispatch_tools, thrice))
    assert sorted(run.ran) == [1, 2]
    assert [answer_to(result, one) for one in "ab"] == ["noted 1", "noted 2"]


@pytest.mark.parametrize("end", ["returns", "raises", "is interrupted"])
def test_a_stage_that_dispatches_the_plan_in_two_parts_keeps_the_results_of_both(end):
    limit = TimeLimit()

    def in_two_parts(ctx):
        first, *rest = ctx.plan.batches
        yield from dispatch_tools.fn(part_of(ctx, (first,)))
        made = yield from dispatch_tools.fn(part_of(ctx, tuple(rest)))
        if end == "raises":
            raise ValueError(end)
        if end == "is interrupted":
            limit.strike()
            yield Sleep(30)
        return made

    run = EditedRun(TWO)
    stages = in_place_of(dispatch_tools, in_two_parts, sequential="in_step")
    result = run.run(
        stages, limits=Limits(max_parallel_calls=1), max_seconds=9, middleware=[limit.middleware]
    )
    assert [answer_to(result, one) for one in "ab"] == ["noted 1", "noted 2"]
    ends = {"returns": "answered", "raises": "pipeline_failed"}
    assert result.stop_reason == ends.get(end, "deadline_exceeded")


@pytest.mark.parametrize("fails", [False, True])
def test_a_result_of_an_earlier_iteration_does_not_answer_a_call_with_the_same_id(fails):
    def fresh(ctx):
        return ctx.replace(messages=[USER])  # so the ids of earlier calls are unused again

    def edit(ctx):
        if fails and ctx.iteration == 2:
            raise ValueError("no")
        return ctx.remember("edited", ctx.iteration)

    run = EditedRun((calls(call("note", "a", n=1)), calls(call("note", "a", n=2)), "Done."))
    stages = at(5, edit)
    stages.insert(0, stage(name="fresh")(fresh))
    result = run.run(stages)
    assert run.ran == ([1] if fails else [1, 2])
    if fails:
        assert answer_to(result, "a") == "Cancelled: the run failed before this call was done."


@pytest.mark.parametrize("how", ["plans", "answers"])
def test_a_duplicate_that_a_stage_plans_or_answers_has_that_result(how):
    run = EditedRun((calls(*(call("note", call_id, n=1) for call_id in "ab")), "Done."))
    run.tools = [tool(name="note")(lambda n: run.returns("noted", next(run.numbers)))]

    def edit(ctx):
        if how == "plans":
            return ctx.replace(plan=Plan((ctx.tool_calls,)))
        return ctx.replace(tool_results={"b": ToolResult("b", "from the stage")})

    result = run.run(at(5, first_only(edit)))
    expected = {"plans": "noted 101", "answers": "from the stage"}
    assert answer_to(result, "a").startswith("noted 100")
    assert answer_to(result, "b").startswith(expected[how])


def test_a_call_can_be_removed_from_the_plan_after_another_stage_dispatched_one():
    run = EditedRun(TWO)
    stages = at(5, first_only(lambda ctx: ctx.replace(plan=Plan())))
    first = stage(name="first")(lambda ctx: (yield from dispatched_alone(ctx)))
    stages.insert(3, first)
    result = run.run(stages)
    assert run.ran == [1]
    assert answer_to(result, "b") == "Not run: removed by edit."


def dispatched_alone(ctx):
    """The steps that dispatch the first call only."""
    if not ctx.tool_calls:
        return ctx
    return (yield from through(ctx.replace(plan=Plan.of_one(ctx.tool_calls[0])), dispatch_tools))


def test_calls_that_are_parsed_twice_keep_their_ids_if_the_history_is_trimmed():
    def parsed(ctx):
        return (
            yield from through(ctx, parse_tool_calls, validate_calls, plan_calls, dispatch_tools)
        )

    def trim(ctx):
        return ctx.replace(messages=[USER])  # so the id of the first call is unused again

    run = EditedRun((calls(call("note", "a", n=1)), calls(call("note", "a", n=2)), "Done."))
    stages = at(1, trim)
    stages.insert(1, stage(name="parsed")(parsed))
    run.run(stages)
    assert run.ran == [1, 2]


# An answer that a stage decides on after the iteration is in the history


def says(text, **fields):
    return first_only(lambda ctx: ctx.replace(response=Response(text, **fields)).done())


@pytest.mark.parametrize("position", [7, 8, 9, 10])
def test_an_answer_in_place_of_the_response_follows_the_calls_that_ran(position):
    run = EditedRun((calls(call("note", "a", n=1), text="Thinking"), "Done."))
    result = run.run(at(position, says("Enough.")))
    contents = [message["content"] for message in result.messages[1:]]
    assert contents == ["Thinking", "noted 1", "Enough."]
    assert result.unwrap().content == "Enough."


TEXT_ONLY = (ask_model, parse_tool_calls, validate_calls, inject_results)


@pytest.mark.parametrize("decides", [True, False])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([USER], "Enough."),
        ([USER, {"role": "assistant", "content": "As I said,"}], "As I said,\n\nEnough."),
    ],
)
def test_an_answer_in_place_of_a_text_replaces_it(given, expected, decides):
    def guard(ctx):
        ctx = ctx.replace(response=Response("Enough."))
        return ctx.done() if decides else ctx

    result = Loop.run_sync(given, lambda _: "Too much.", stages=[*TEXT_ONLY, guard])
    assert result.messages == [USER, {"role": "assistant", "content": expected}]
    assert result.unwrap().content == "Enough."


def test_an_answer_that_a_stage_put_in_the_history_itself_is_not_repeated():
    def guard(ctx):
        messages = [*ctx.messages[:-1], {"role": "assistant", "content": "Enough."}]
        return ctx.replace(messages=messages, response=Response("Enough.")).done()

    result = Loop.run_sync([USER], lambda _: "Too much.", stages=[*TEXT_ONLY, guard])
    assert result.messages == [USER, {"role": "assistant", "content": "Enough."}]


def test_a_refusal_in_place_of_a_text_replaces_it():
    guard = says(None, refusal="No.")
    result = Loop.run_sync([USER], lambda _: "Too much.", stages=[*TEXT_ONLY, guard])
    assert result.messages[1] == {"role": "assistant", "content": None, "refusal": "No."}


# Stages that call the model themselves


TO_PLAN = (ask_model, parse_tool_calls, validate_calls, plan_calls)
TO_RESULTS = (*TO_PLAN, dispatch_tools)
ASKED_TWICE = (calls(call("note", "a", n=1)), calls(call("note", "b", n=2)), "Done.")


def again_by(*stages):
    """A stage that applies some stages to another response of the model, in the first iteration."""

    def again(ctx):
        return (yield from through(ctx, *stages)) if ctx.iteration == 1 else ctx

    return again


def test_a_second_model_call_after_the_plan_keeps_both_exchanges_in_the_history():
    run = EditedRun(ASKED_TWICE)
    result = run.run(at(5, again_by(*TO_PLAN)), max_tool_calls=1)
    assert run.ran == []
    assert answer_to(result, "a") == "Not run: the model was asked again first."
    assert answer_to(result, "b") == "Not run: it was not planned."
    assert isinstance(result, Ok)


def test_the_budget_of_calls_that_a_second_request_replaces_is_released():
    run = EditedRun((*ASKED_TWICE[:2], calls(call("note", "c", n=3)), "Done."))
    run.run(at(5, again_by(*TO_RESULTS)), max_tool_calls=2)
    assert run.ran == [2, 3]


@pytest.mark.parametrize(("position", "ran"), [(2, [2]), (5, [2]), (7, [1, 2])])
def test_a_stage_that_calls_the_model_and_dispatches_adds_the_result_to_the_history(position, ran):
    run = EditedRun(ASKED_TWICE)
    result = run.run(at(position, again_by(*TO_RESULTS)))
    assert run.ran == ran
    assert answer_to(result, "b") == "noted 2"


@pytest.mark.parametrize("position", [2, 7])
@pytest.mark.parametrize("more", [(), (inject_results,), (ask_model,)], ids=["", "in", "again"])
def test_a_stage_that_dispatches_and_drops_the_result_is_refused_and_the_result_kept(
    position, more
):
    run = EditedRun(ASKED_TWICE)

    def forgetting(ctx):
        yield from through(ctx, *TO_RESULTS, *more)
        return ctx

    result = run.run(at(position, forgetting))
    assert refused_by(result) == "edit"
    assert result.reason.message == (
        "calls b ran, and the returned context does not have them; "
        "return the context that dispatch_tools returned"
    )
    assert answer_to(result, "b") == "noted 2"


@pytest.mark.parametrize("position", [1, 2])
def test_a_stage_that_edits_the_response_and_dispatches_adds_the_results(position):
    run = EditedRun(ONE)

    def edit(ctx):
        if not ctx.response.tool_calls:
            return ctx
        ctx = ctx.replace(response=replace(ctx.response, content="Edited"))
        return (yield from through(ctx, *TO_RESULTS[1:]))

    result = run.run(at(position, edit))
    assert run.ran == [1]
    assert answer_to(result, "a") == "noted 1"
    assert result.messages[1]["content"] == "Edited"


@pytest.mark.parametrize(
    ("position", "first"),
    [(0, ASKED_TWICE[0]), (2, ASKED_TWICE[0]), (2, "Hm."), (7, ASKED_TWICE[0])],
)
@pytest.mark.parametrize("end", ["pipeline_failed", "deadline_exceeded"])
def test_the_results_of_a_stage_that_dispatches_are_kept_if_it_is_interrupted(end, position, first):
    limit = TimeLimit()

    def edit(ctx):
        yield from through(ctx, *TO_RESULTS)
        if end == "pipeline_failed":
            raise ValueError("later")
        limit.strike()
        yield Sleep(30)

    run = EditedRun((first, *ASKED_TWICE[1:]))
    options = {"max_seconds": 9, "middleware": [limit.middleware]}
    result = run.run(at(position, edit), **options)
    assert run.ran
    assert result.stop_reason == end
    for n in run.ran:
        assert answer_to(result, " ab"[n]) == f"noted {n}"


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


def test_a_custom_stage_may_replace_inject_results():
    run = EditedRun(SEVERAL, rewrites=True)

    def put(ctx):
        if not ctx.tool_calls:
            return ctx
        made = calls(*(call(c.name, c.id, **c.input) for c in ctx.tool_calls))
        results = [
            {
                "role": "tool",
                "tool_call_id": c.id,
                "content": ctx.tool_results[c.id].content.upper(),
            }
            for c in ctx.tool_calls
        ]
        return ctx.replace(messages=[*ctx.messages, made, *results])

    stages = [
        stage(name="edit")(put) if one.name == "inject_results" else one for one in default_stages()
    ]
    result = run.run(stages)
    assert answer_to(result, "a") == "NOTED 1"
    assert sorted(run.ran) == [1, 2, 3, 4]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_list_without_inject_results_has_the_same_history(script):
    plain, without = EditedRun(SCRIPTS[script]), EditedRun(SCRIPTS[script])
    stages = [one for one in default_stages() if one.name != "inject_results"]
    assert without.run(stages).messages == plain.run(list(default_stages())).messages
    assert without.ran == plain.ran


PAUSING = (calls(call("note", "a", n=1), call("wipe", "w", n=2)), calls(call("note", "b", n=3)))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("edit", EDITS)
def test_no_edit_of_a_resumed_run_loses_work(edit, position):
    run, is_resumed = EditedRun((*PAUSING, "Done."), rewrites=edit in REWRITES), []
    stages = at(position, lambda ctx: EDITS[edit](run, ctx) if is_resumed else ctx)
    options = {"max_seconds": 20, "handle": True}
    paused = run.run(stages, **with_handle(options))
    assert isinstance(paused, Paused)
    assert run.ran == [1]
    is_resumed.append(True)
    result = run.resume(paused, stages, {"w": approve}, **with_handle(options))
    assert 2 in run.ran
    assert refused_by(result) == ("edit" if position in REFUSED[edit] else None)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("edit", EDITS)
def test_no_edit_before_a_pause_loses_work(edit, position):
    run = EditedRun(ONE, rewrites=edit in REWRITES)
    stages = at(position, lambda ctx: EDITS[edit](run, ctx))
    stages.insert(position + 1, stage(name="wait")(lambda ctx: EDITS["pause_once"](run, ctx)))
    result = run.run(stages)
    for _ in range(3):
        if isinstance(result, Paused):
            result = run.resume(result, stages, {})
    assert refused_by(result) == ("edit" if position in REFUSED[edit] else None)


@pytest.mark.parametrize("name", ["note", "wipe"], ids=["between iterations", "in the iteration"])
def test_a_tool_that_a_stage_removed_stays_removed_after_a_pause(name):
    run = EditedRun((calls(call("wipe", "w", n=1)), calls(call(name, "a", n=2)), "Done."))

    def remove(ctx):
        return ctx.with_tools(remove=[name]) if ctx.iteration == 1 and name in ctx.tools else ctx

    stages = at(5 if name == "note" else 0, remove)
    stages.insert(1, stage(name="wait")(lambda ctx: EDITS["pause_once"](run, ctx)))
    result = run.run(stages)
    while isinstance(result, Paused):
        result = run.resume(result, stages, {one.id: approve for one in result.pending})
    assert 2 not in run.ran
    assert isinstance(result, Ok)


def test_a_call_that_is_removed_before_a_pause_is_reported_before_it():
    run = EditedRun((calls(call("note", "a", n=1), call("wipe", "w", n=2)), "Done."))
    keep = first_only(lambda ctx: ctx.replace(tool_calls=ctx.tool_calls[-1:]))
    assert isinstance(run.run(at(5, keep)), Paused)
    assert refused(run) == [("a", NotRunReason.REMOVED)]
