"""The verbs of a context on calls, results, tools, the plan and the response, and where they are refused."""

import json
from dataclasses import replace

import pytest
from tests.loop.edited_runs import (
    ASKING,
    EDITS,
    ONE,
    SEVERAL,
    USER,
    EditedRun,
    answer_to,
    at,
    first_only,
    performed,
    providing,
    refused,
    refused_by,
    repairs,
)

from treadle import CircuitBreaker, Limits, Loop, Ok, Paused, approve, default_stages, stage, tool
from treadle.context import Decision
from treadle.events import (
    BreakerChanged,
    HistoryRepaired,
    IterationFinished,
    ModelResponded,
    RunFinished,
)
from treadle.messages import Response, ToolCall, ToolResult
from treadle.stages import ask_model, inject_results, parse_tool_calls, validate_calls
from treadle.testing import call, calls
from treadle.tools import NotRun, Plan, Tool

BROKEN = [USER, {"role": "tool", "tool_call_id": "x", "content": "An orphan."}]
TWINS = (calls(*(call("note", call_id, n=1) for call_id in "ab")), "Done.")
"""Two identical calls."""


# Where a verb or a field is refused

OWN = {"role": "user", "content": "Hi"}
OWN["itself"] = OWN
"""A message that contains itself."""


@pytest.mark.parametrize(
    ("field", "verb"),
    [
        ("tools", "ctx.with_tools"),
        ("response", "ctx.with_response"),
        ("tool_calls", "ctx.drop"),
        ("plan", "ctx.drop"),
        ("tool_results", "ctx.answer"),
        ("validation_errors", "ctx.answer"),
        ("decision", "ctx.done"),
        ("error", "ctx.stop"),
        ("output", "ctx.done"),
        ("waiting", "ctx.pause"),
        ("guidance", "ctx.guide"),
        ("memo", "ctx.remember"),
    ],
)
def test_a_field_that_the_stage_does_not_provide_is_refused_with_its_verb(field, verb):
    result = EditedRun(ONE).run(at(5, lambda ctx: ctx.replace(**{field: getattr(ctx, field)})))
    assert refused_by(result) == "edit"
    text = f"replace: {field}: stage 'edit' does not provide it; use {verb}"
    assert result.reason.message.startswith(text)


@pytest.mark.parametrize(
    ("field", "position", "made", "text"),
    [
        ("tool_calls", 3, lambda ctx: (), "calls a are missing; ctx.drop(call, why)"),
        ("tool_calls", 3, lambda ctx: (*ctx.tool_calls, ToolCall("", "note", "{}")), "or empty"),
        ("tool_calls", 3, lambda ctx: ctx.tool_calls * 2, "the id 'a' is used twice"),
        (
            "tool_calls",
            3,
            lambda ctx: [replace(ctx.tool_calls[0], name=5)],
            "ToolCall.name: expected text, got int",
        ),
        ("messages", 6, lambda ctx: [OWN], "expected JSON, got a message that contains itself"),
        ("tool_results", 6, lambda ctx: {}, "the results of a are missing; ctx.edit_result"),
        ("tool_results", 5, lambda ctx: {"a": 5}, "expected a ToolResult, got int 5"),
        ("tool_results", 5, lambda ctx: {"b": ToolResult("b", "x")}, "the id of a call"),
        ("plan", 5, lambda ctx: Plan(((ToolCall("b", "note", "{}"),),)), "no call of this"),
        ("plan", 5, lambda ctx: Plan(ctx.tool_calls), "expected batches of calls, got ToolCall"),
        ("plan", 5, lambda ctx: None, "expected a Plan, got nothing"),
        ("plan", 5, lambda ctx: Plan(None), "expected batches of calls, got nothing"),
        ("plan", 5, lambda ctx: Plan(duplicates=5), "plan.duplicates: expected a mapping by id"),
        (
            "tool_calls",
            3,
            lambda ctx: [*ctx.tool_calls, ToolCall("a/b", "note", "{}")],
            "a text without '/', not str 'a/b'",
        ),
        (
            "validation_errors",
            3,
            lambda ctx: {"a": "text"},
            "expected a mapping of tuples of texts",
        ),
        (
            "decision",
            4,
            lambda ctx: "done",
            "decision: expected a Decision or None, got str 'done'",
        ),
        ("decision", 4, lambda ctx: Decision.STOP, "stops for a reason; use ctx.stop(reason)"),
        ("error", 4, lambda ctx: "text", "expected a Reason or None, got str 'text'"),
        ("guidance", 4, lambda ctx: 5, "guidance: expected a text or None, got int 5"),
        ("memo", 4, lambda ctx: None, "memo: expected a mapping of values by name, got nothing"),
        (
            "memo",
            4,
            lambda ctx: {5: 1},
            "remember: name: expected a text that is not empty, got int",
        ),
        ("waiting", 4, lambda ctx: ["a"], "waiting: expected a tuple of PendingCalls, got list"),
        ("is_asked", 4, lambda ctx: False, "is_asked: only a built-in stage sets it"),
        ("response", 0, lambda ctx: Response(5), "Response.content: expected text, got int"),
    ],
)
def test_a_wrong_value_of_a_field_that_the_stage_provides_is_refused(field, position, made, text):
    stages = providing(field, lambda ctx: ctx.replace(**{field: made(ctx)}), position)
    result = EditedRun(ONE).run(stages)
    assert refused_by(result) == "edit"
    assert text in result.reason.message


VERBS = {
    "drop": lambda ctx: ctx.drop("a", "no."),
    "answer": lambda ctx: ctx.answer("a", "text"),
    "edit_call": lambda ctx: ctx.edit_call("a", {"n": 5}),
    "add_call": lambda ctx: ctx.add_call("note", {"n": 5}),
    "edit_result": lambda ctx: ctx.edit_result("a", "text"),
    "with_response": lambda ctx: ctx.with_response("text"),
}


@pytest.mark.parametrize(
    ("verb", "position", "text"),
    [
        *((verb, 0, "put the stage 'edit' after ask_model") for verb in list(VERBS)[:4]),
        ("edit_result", 5, "call 'a' has no result yet"),
        *((verb, 6, "call 'a' has run; ctx.edit_result") for verb in list(VERBS)[:3]),
        ("add_call", 6, "calls a of the response have run"),
        ("with_response", 6, "calls a of the response have run"),
        *((verb, 7, "put the stage 'edit' before inject_results") for verb in list(VERBS)[:4]),
        ("edit_result", 7, "in the history, which ctx.replace(messages=...) rewrites"),
        ("with_response", 7, "the response is in the history"),
    ],
)
def test_a_verb_at_the_wrong_place_is_refused_with_the_reason(verb, position, text):
    run = EditedRun(ONE)
    result = run.run(at(position, VERBS[verb]))
    assert refused_by(result) == "edit"
    assert result.reason.message.startswith(f"{verb}: ")
    assert text in result.reason.message
    assert run.ran == ([1] if position > 5 else [])


@pytest.mark.parametrize("call_id", ["a", "c", "", "x/y", "\ud800", 1.5, b"x", ["x"]])
def test_an_added_call_needs_an_id_that_is_unique_in_the_history(call_id):
    add = lambda ctx: ctx.add_call("note", {"n": 9}, call_id=call_id)  # noqa: E731
    result = EditedRun(SEVERAL).run(at(2, lambda ctx: add(ctx) if ctx.iteration == 2 else ctx))
    assert "an id that is unique in the history" in result.reason.message


@pytest.mark.parametrize("iteration", [1, 2])
def test_a_run_cannot_be_done_without_a_request_or_an_answer(iteration):
    done = lambda ctx: ctx.done() if ctx.iteration == iteration else ctx  # noqa: E731
    result = EditedRun(ONE).run(at(0, done))
    assert refused_by(result) == "edit"
    assert "the model was not asked yet, and there is no answer" in result.reason.message


# Calls that are taken out or answered


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dropped", ["a", "abc"])
def test_a_dropped_call_is_answered_and_does_not_run(dropped, position):
    def drop(ctx):
        for call_id in dropped:
            ctx = ctx.drop(call_id, "it is not needed.")
        return ctx

    run = EditedRun(SEVERAL)
    result = run.run(at(position, first_only(drop)))
    assert sorted(run.ran) == [
        n for n, call_id in enumerate("abc", 1) if call_id not in dropped
    ] + [4]
    assert {answer_to(result, one) for one in dropped} == {"Not run: it is not needed."}
    assert refused(run) == [(one, NotRun.REMOVED) for one in dropped]


@pytest.mark.parametrize("position", [1, 2])
def test_a_call_of_the_response_whose_id_is_not_unique_is_found_by_the_object(position):
    run = EditedRun((calls(call("note", "a", n=1), call("note", "a", n=2)), "Done."))
    drop = first_only(lambda ctx: ctx.drop(ctx.response.tool_calls[1], "no."))
    result = run.run(at(position, drop))
    assert run.ran == [1]
    assert [m["content"] for m in result.messages[2:4]] == ["noted 1", "Not run: no."]


def test_the_budget_of_a_dropped_call_is_released():
    run = EditedRun(SEVERAL)
    drop = first_only(lambda ctx: ctx.drop("a", "no.").drop("b", "no."))
    run.run(at(5, drop), max_tool_calls=3)
    assert run.ran == [3, 4]


def test_a_call_that_is_dropped_before_a_pause_is_reported_before_it():
    run = EditedRun((calls(call("note", "a", n=1), call("wipe", "w", n=2)), "Done."))
    assert isinstance(run.run(at(5, first_only(lambda ctx: ctx.drop("a", "no.")))), Paused)
    assert refused(run) == [("a", NotRun.REMOVED)]


def dropped_twice(ctx):
    ctx.drop("b", "discarded.")
    return ctx.drop("b", "no.")


@pytest.mark.parametrize(
    ("edit", "position", "limits", "reason"),
    [
        (lambda ctx: ctx.drop("b", "no."), 5, {}, NotRun.DUPLICATE_IN_BATCH),
        (lambda ctx: ctx.drop("b", "no."), 3, {}, NotRun.REMOVED),
        (lambda ctx: ctx.edit_call("a", {"n": 5}), 5, {}, NotRun.DUPLICATE_IN_BATCH),
        (lambda ctx: ctx.drop("b", "no."), 5, {"max_parallel_calls": 1}, NotRun.PARALLEL_CAP),
        (dropped_twice, 3, {}, NotRun.REMOVED),
    ],
)
def test_a_call_that_does_not_run_is_reported_once_with_its_first_reason(
    edit, position, limits, reason
):
    run = EditedRun(TWINS if not limits else SEVERAL)
    run.run(at(position, first_only(edit)), limits=Limits(**limits))
    assert [one for one in refused(run) if one[0] == "b"] == [("b", reason)]


def test_a_call_that_was_reported_before_a_pause_is_not_reported_after_it():
    twins = [call("note", call_id, n=1) for call_id in "ab"]
    run = EditedRun((calls(*twins, call("wipe", "w", n=2)), "Done."))
    run.resume(run.run(default_stages()), default_stages(), {"w": approve})
    assert refused(run) == [("b", NotRun.DUPLICATE_IN_BATCH)]


@pytest.mark.parametrize(
    ("position", "edit"),
    [
        (0, lambda ctx: ctx.with_request(messages=BROKEN)),
        (0, lambda ctx: ctx.replace(messages=BROKEN)),
        (1, lambda ctx: ctx.replace(messages=BROKEN)),
    ],
)
def test_a_repair_of_a_history_that_a_stage_discarded_is_not_reported(position, edit):
    for discards in (True, False):
        stages = at(position, lambda ctx, chosen=discards: (edit(ctx), ctx)[chosen])
        events = []
        Loop.run_sync([USER], lambda messages: "Done.", stages=stages, on_event=events.append)
        assert [type(one) for one in events].count(HistoryRepaired) == (not discards)


def test_a_response_that_a_stage_discarded_is_not_reported():
    @stage(replaces=ask_model)
    def respond(ctx):
        ctx.with_response("A draft.")
        return ctx.with_response("Done.").with_response("Done!")

    run = EditedRun(())
    result = run.run([respond, *default_stages()[1:]])
    said = [one.response.text for one in run.events if isinstance(one, ModelResponded)]
    assert (result.output, said) == ("Done!", ["Done."])


@pytest.mark.parametrize(("name", "n"), [("note", 1), ("note", "invalid"), ("nope", 1)])
@pytest.mark.parametrize("position", [2, 3, 4, 5])
def test_the_answer_of_a_stage_is_kept_and_the_call_does_not_run(position, name, n):
    run = EditedRun((calls(call(name, "a", n=n)), "Done."))
    result = run.run(at(position, first_only(lambda ctx: ctx.answer("a", "from the stage"))))
    assert answer_to(result, "a") == "from the stage"
    assert run.ran == []
    assert refused(run) == [("a", NotRun.ANSWERED)]


def plan_by_hand(ctx):
    return ctx.replace(plan=Plan((ctx.tool_calls,)))


@pytest.mark.parametrize("edit", [lambda ctx: ctx.drop("a", "no."), lambda ctx: ctx.answer("a", 5)])
def test_a_call_that_a_stage_took_out_is_reported_also_if_a_custom_stage_plans(edit):
    run = EditedRun(SEVERAL)
    stages = providing("plan", first_only(plan_by_hand), 4)
    stages[5:6] = []  # `plan_calls`
    run.run([*stages[:3], stage(first_only(edit), "take out"), *stages[3:]])
    assert [call_id for call_id, _ in refused(run)] == ["a"]
    assert run.ran[:2] == [2, 3]


@pytest.mark.parametrize("position", [2, 3, 4])
@pytest.mark.parametrize("taken_out", ["drop", "answer"])
def test_after_a_stage_took_a_call_out_before_the_plan_it_may_correct_another(taken_out, position):
    def edit(ctx):
        return getattr(ctx, taken_out)("a", "no.").edit_call("b", {"n": 7})

    run = EditedRun((calls(call("note", "a", n=1), call("note", "b", n="invalid")), "Done."))
    result = run.run(at(position, first_only(edit)))
    assert run.ran == [7]
    assert answer_to(result, "b") == "noted 7"


def test_after_a_stage_dropped_a_call_before_the_plan_it_may_replace_the_response():
    other = calls(call("note", "b", n=2))
    run = EditedRun(ONE)
    run.run(at(3, first_only(lambda ctx: ctx.drop("a", "no.").with_response(other))))
    assert run.ran == [2]


@pytest.mark.parametrize(
    "edit",
    [
        lambda ctx: ctx.stop("no."),
        lambda ctx: ctx.done("yes"),
        lambda ctx: ctx.drop("a", "no.").stop("no."),
        lambda ctx: 1 / 0,
    ],
)
@pytest.mark.parametrize("position", [2, 3, 4, 5])
def test_calls_that_the_run_no_longer_reaches_are_answered_and_not_reported(position, edit):
    run = EditedRun(SEVERAL)
    result = run.run(at(position, edit))
    assert run.ran == []
    assert answer_to(result, "b").startswith(("Not run.", "Cancelled: the run failed"))
    assert {call_id for call_id, _ in refused(run)} <= {"a"}
    assert isinstance(run.events[-1], RunFinished)


def test_the_calls_of_a_last_answer_are_reported():
    script = (calls(call("note", "a", n=1)), calls(call("note", "b", n=2)), "Done.")
    run = EditedRun(script)
    run.run(default_stages(), max_iterations=1, limits=Limits(on_limit="finish"))
    assert refused(run) == [("b", NotRun.OVER_BUDGET)]


@pytest.mark.parametrize(
    "edit", ["drop_calls", "answer_calls", "empty_plan", "replace_response", "ask"]
)
def test_after_a_stage_removed_the_probe_of_a_breaker_the_next_call_is_the_probe(edit):
    breaker = CircuitBreaker(threshold=1, cool_down=0)
    breaker.record("note", "failed", "no", 0.0)
    run = EditedRun(ONE)

    def first(ctx):
        made = {**EDITS, **ASKING}[edit](run, ctx) if ctx.iteration == 1 else ctx
        return (yield from performed(made))

    run.run(at(5, first, EDITS.get(edit)), breaker=breaker)
    assert run.ran == []
    changed = [one.after for one in run.events if isinstance(one, BreakerChanged)]
    assert changed == ["half_open", "open"]


# Calls that are edited or added


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5])
def test_a_call_runs_with_edited_arguments_and_the_history_has_them(position):
    run = EditedRun(ONE)
    run.run(at(position, first_only(lambda ctx: ctx.edit_call("a", {"n": 100}))))
    assert run.ran == [100]
    made = run.requests[1][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(made) == {"n": 100}


@pytest.mark.parametrize("position", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("arguments", "problem"), [({"n": "x"}, "expected integer"), ("{", "not valid JSON")]
)
def test_edited_arguments_are_validated_again(arguments, problem, position):
    run = EditedRun(ONE)
    result = run.run(at(position, first_only(lambda ctx: ctx.edit_call("a", arguments))))
    assert run.ran == []
    assert problem in answer_to(result, "a")
    first = next(e.context for e in run.events if isinstance(e, IterationFinished))
    assert first.validation_errors.keys() == {"a"}


def test_a_duplicate_of_a_call_that_a_stage_changed_is_deferred():
    run = EditedRun(TWINS)
    result = run.run(at(5, first_only(lambda ctx: ctx.edit_call("a", {"n": 100}))))
    assert run.ran == [100]
    assert answer_to(result, "b").startswith("Not run yet: the identical call was changed.")


INVALID = (calls(call("note", "a", n="invalid"), call("note", "b", n=2)), "Done.")


@pytest.mark.parametrize("position", [2, 3, 4])
def test_an_invalid_call_that_a_stage_corrects_before_the_plan_runs(position):
    run = EditedRun(INVALID)
    result = run.run(at(position, first_only(lambda ctx: ctx.edit_call("a", {"n": 5}))))
    assert sorted(run.ran) == [2, 5]
    assert answer_to(result, "a") == "noted 5"
    made = result.messages[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(made) == {"n": 5}
    first = next(e.context for e in run.events if isinstance(e, IterationFinished))
    assert first.validation_errors == {}
    assert repairs(run) == []


def test_a_validator_may_set_the_input_of_a_call_itself():
    def coerce(ctx):
        made = (
            replace(one, input={"n": int(json.loads(one.arguments)["n"])}) for one in ctx.tool_calls
        )
        return ctx.replace(tool_calls=tuple(made))

    run = EditedRun((calls(call("note", "a", n="5"), call("note", "b", n=5)), "Done."))
    result = run.run(Loop().pipeline.replace("validate_calls", coerce).components)
    assert run.ran == [5]
    assert answer_to(result, "b").startswith("Not run twice: ")


def test_an_invalid_call_is_answered_after_the_plan():
    run = EditedRun(INVALID)
    result = run.run(at(5, first_only(lambda ctx: ctx.edit_call("a", {"n": 5}))))
    assert "edit_call: call 'a' was answered: 'Error: " in result.reason.message
    assert "expected integer" in answer_to(result, "a")
    assert run.ran == []


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5])
def test_an_added_call_is_treated_like_one_of_the_model(position):
    def add(ctx):
        ctx = ctx.add_call("note", {"n": "x"}, call_id="invalid").add_call("note", {"n": 5})
        return ctx.add_call("nope", "{}", call_id="unknown")

    run = EditedRun(ONE)
    result = run.run(at(position, first_only(add)))
    assert sorted(run.ran) == [1, 5]
    assert "expected integer" in answer_to(result, "invalid")
    assert "there is no tool named 'nope'" in answer_to(result, "unknown")
    made = [one["id"] for one in result.messages[1]["tool_calls"]]
    assert made == ["a", "invalid", "added_1_3", "unknown"]


@pytest.mark.parametrize("position", [2, 5])
@pytest.mark.parametrize("limit", ["max_tool_calls", "max_uses"])
def test_an_added_call_counts_as_a_use_of_its_tool(limit, position):
    run = EditedRun(ONE)
    options = {"max_tool_calls": 2} if limit == "max_tool_calls" else {}
    if limit == "max_uses":
        run.tools = [tool(run.note, max_uses=2)]
    add = lambda ctx: ctx.add_call("note", {"n": 8}).add_call("note", {"n": 9}, call_id="y")  # noqa: E731
    result = run.run(at(position, first_only(add)), **options)
    assert sorted(run.ran) == [1, 8]
    assert answer_to(result, "y").startswith("Not run")


ASKS = tool(name="note", requires_approval=lambda given: given["n"] > 5)(lambda n: f"noted {n}")
WAITING = {
    "an edited call": lambda ctx: ctx.edit_call("a", {"n": 9}),
    "an added call": lambda ctx: ctx.drop("a", "no.").add_call("note", {"n": 9}),
    "another tool": lambda ctx: ctx.with_tools(add=[tool(ASKS, requires_approval=True)]),
}


@pytest.mark.parametrize("position", [2, 3, 4, 5])
@pytest.mark.parametrize("edit", WAITING)
def test_a_call_that_needs_approval_since_a_stage_changed_it_waits(edit, position):
    run = EditedRun(ONE)
    result = run.run(at(position, first_only(WAITING[edit])), tools=[ASKS])
    assert isinstance(result, Paused)
    assert [one.name for one in result.pending] == ["note"]


END = Tool("end", "End.", {"type": "object", "required": ["n"]}, terminal=True)


@pytest.mark.parametrize("how", ["added", "corrected"])
def test_a_call_of_a_terminal_tool_is_the_answer_only_before_loop_decision(how):
    def edit(ctx):
        if how == "added":
            return ctx.add_call("end", {"n": 9})
        return ctx.edit_call("a", {"n": 9})

    first = call("note", "a", n=1) if how == "added" else call("end", "a")
    for position in (3, 4):
        run = EditedRun((calls(first), "Done."))
        result = run.run(at(position, first_only(edit)), tools=[*run.tools, END])
        if position == 3:
            assert result.output == {"n": 9}
        else:
            assert "calls the terminal tool 'end'" in result.reason.message
        assert run.ran == []


# Results


def test_the_model_receives_the_edited_result():
    run = EditedRun(ONE, rewrites=True)
    result = run.run(at(6, lambda ctx: EDITS["edit_results"](run, ctx)))
    assert answer_to(result, "a") == "edited a"
    assert run.requests[1][-1]["content"] == "edited a"


# The plan of a stage that provides it


def planning(plan):
    """The default stages with one that plans in place of `plan_calls`."""
    made = stage(lambda ctx: ctx.replace(plan=plan(ctx)), "edit", provides=("plan",))
    return [made if one.name == "plan_calls" else one for one in default_stages()]


def each(ctx):
    return Plan(tuple((one,) for one in ctx.tool_calls))


def test_a_call_that_a_stage_does_not_plan_is_answered():
    run = EditedRun(SEVERAL)
    third = lambda ctx: ctx.replace(plan=Plan((ctx.tool_calls[2:],)))  # noqa: E731
    result = run.run(providing("plan", first_only(third), 5))
    assert sorted(run.ran) == [3, 4]
    assert [answer_to(result, one) for one in "ab"] == ["Not run: it was not planned."] * 2


def test_the_reasons_of_calls_that_do_not_run_are_kept_in_an_edited_plan():
    run = EditedRun(TWINS)
    edited = lambda ctx: ctx.replace(plan=replace(ctx.plan, batches=each(ctx).batches[:1]))  # noqa: E731
    result = run.run(providing("plan", first_only(edited), 5))
    assert answer_to(result, "b").startswith("Not run twice: ")
    assert answer_to(result, "b").endswith("\nnoted 1")
    plan = next(e.context.plan for e in run.events if isinstance(e, IterationFinished))
    assert plan.not_run == {"b": NotRun.DUPLICATE_IN_BATCH}


@pytest.mark.parametrize("how", ["plans", "answers"])
def test_a_duplicate_that_a_stage_plans_or_answers_has_that_result(how):
    run = EditedRun(TWINS)
    run.tools = [tool(name="note")(lambda n: run.returns("noted", next(run.numbers)))]

    def edit(ctx):
        if how == "plans":
            return ctx.replace(plan=Plan((ctx.tool_calls,)))
        return ctx.answer("b", "from the stage")

    result = run.run(providing("plan", first_only(edit), 5))
    expected = {"plans": "noted 101", "answers": "from the stage"}
    assert answer_to(result, "a").startswith("noted 100")
    assert answer_to(result, "b").startswith(expected[how])


@pytest.mark.parametrize("how", ["in place of plan_calls", "after it"])
def test_an_approval_cannot_be_left_out_of_a_plan(how):
    run = EditedRun((calls(call("wipe", "w", n=1)), "Done."))
    stages = planning(each)
    if how == "after it":
        edit = lambda ctx: ctx.replace(plan=replace(ctx.plan, approvals={}))  # noqa: E731
        stages = providing("plan", edit, 5)
    assert isinstance(run.run(stages), Paused)
    assert run.ran == []


@pytest.mark.parametrize(("most", "waits"), [(5, False), (0, True)])
def test_the_rule_of_a_planned_call_receives_its_arguments(most, waits):
    run = EditedRun(ONE)
    note = tool(name="note", requires_approval=lambda given: given["n"] > most)(
        lambda n: run.returns("noted", n)
    )
    assert isinstance(run.run(planning(each), tools=[note]), Paused) == waits


def test_a_plan_of_a_stage_cannot_exceed_the_budget():
    run = EditedRun(SEVERAL)
    result = run.run(planning(each), max_tool_calls=2)
    assert run.ran == [1, 2]
    assert "budget" in answer_to(result, "c")
    assert ("c", NotRun.OVER_BUDGET) in refused(run)


# Tools


def test_tools_without_a_function_are_accepted_if_they_need_none():
    bare = {"type": "object", "properties": {}}
    tools = Tool("end", "End.", bare, terminal=True), Tool("look", "Look.", bare)
    swap = lambda ctx: ctx.with_tools(add=tools, remove=list(ctx.tools))  # noqa: E731
    run = EditedRun((calls(call("look", "l")), calls(call("end", "e"))))
    result = run.run(at(0, swap), resolve_tool=lambda _call: run.returns("seen", 1))
    assert result.stop_reason == "output"
    assert answer_to(result, "l") == "seen 1"
    assert "there is no resolve_tool" in EditedRun(ONE).run(at(0, swap)).reason.message


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5])
def test_a_call_whose_tool_is_removed_does_not_run(position):
    run = EditedRun(ONE)
    result = run.run(at(position, first_only(lambda ctx: ctx.with_tools(remove=["note"]))))
    assert run.ran == []
    assert "there is no tool named 'note'" in answer_to(result, "a")


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


# The response


@pytest.mark.parametrize("position", [1, 2, 3, 4, 5])
def test_the_calls_of_a_replaced_response_do_not_run(position):
    run = EditedRun(ONE)
    result = run.run(at(position, first_only(lambda ctx: ctx.with_response("Replaced."))))
    assert run.ran == []
    assert result.output == result.response.content == "Replaced."
    assert result.messages == [USER, {"role": "assistant", "content": "Replaced."}]


@pytest.mark.parametrize(("position", "ran"), [(1, [100]), (2, [100]), (4, [100]), (5, [])])
def test_the_calls_of_the_new_response_run_unless_it_comes_too_late(position, ran):
    run = EditedRun(SEVERAL)
    edit = first_only(lambda ctx: EDITS["replace_response_by_call"](run, ctx))
    result = run.run(at(position, edit), max_tool_calls=3)
    assert run.ran == [*ran, 4]  # the budget of the calls of the first response is released
    text = "noted 100" if ran else "Not run: edit replaced the response."
    assert answer_to(result, "new") == text


TEXT_ONLY = (ask_model, parse_tool_calls, validate_calls)


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
        ctx = ctx.with_response("Enough.")
        return ctx.done() if decides else ctx

    stages = [*TEXT_ONLY, guard, inject_results]
    result = Loop.run_sync(given, lambda _: "Too much.", stages=stages)
    assert result.messages == [USER, {"role": "assistant", "content": expected}]
    assert result.output == "Enough."


def test_a_refusal_in_place_of_a_text_replaces_it():
    guard = lambda ctx: ctx.with_response(Response(None, refusal="No.")).done()  # noqa: E731
    stages = [*TEXT_ONLY, guard, inject_results]
    result = Loop.run_sync([USER], lambda _: "Too much.", stages=stages)
    assert result.messages[1] == {"role": "assistant", "content": None, "refusal": "No."}


@pytest.mark.parametrize("position", [7, 8, 9])
def test_an_output_that_a_stage_decides_on_follows_the_calls_that_ran(position):
    run = EditedRun((calls(call("note", "a", n=1), text="Thinking"), "Done."))
    result = run.run(at(position, first_only(lambda ctx: ctx.done("Enough."))))
    assert [message["content"] for message in result.messages[1:3]] == ["Thinking", "noted 1"]
    assert result.output == "Enough."
