"""For any edits of stages, at any position and with any options: no work is lost, and every history is valid."""

import dataclasses
import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from treadle import Err, Limits, Paused, PipelineFailed, approve, default_stages, deny, edit, stage
from treadle.stages import (
    dispatch_tools,
    inject_results,
    parse_tool_calls,
    plan_calls,
    validate_calls,
)
from treadle.testing import call, calls

from .edited_runs import (
    ASKING,
    EDITS,
    ONE,
    POSITIONS,
    REFUSED,
    REFUSED_AFTER_CALLS,
    REWRITES,
    SCRIPTS,
    TRIMS,
    WRONG_KINDS,
    EditedRun,
    at,
    calls_of,
    custom,
    performed,
    refused_by,
    repairs,
    with_handle,
)

INVALID = "note with a text"
NAMES = st.sampled_from(["note", "note", "note", "wipe", "nope", "other", INVALID])
CALLS = st.lists(st.tuples(NAMES, st.sampled_from(["a", "b", "c", None])), min_size=1, max_size=4)
REPLIES = st.builds(
    lambda first, rest: [first, *rest],  # without a call there is little to lose
    CALLS,
    st.lists(CALLS | CALLS | st.sampled_from(["Text", ""]), max_size=2),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "max_seconds": st.just(20),
        "limits": st.builds(
            Limits,
            on_limit=st.sampled_from(["stop", "finish"]),
            max_parallel_calls=st.integers(1, 8),
        ),
        "sequential": st.just("in_step"),
        "max_tool_calls": st.integers(1, 4),
        "dedupe": st.just("off"),
        "handle": st.just(True),
        "output": st.just({"type": "object", "properties": {"total": {"type": "integer"}}}),
    },
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(POSITIONS),
        st.sampled_from([*EDITS, *EDITS, *EDITS, *ASKING, *ASKING, *WRONG_KINDS]),
        st.sets(st.integers(1, 4), min_size=1),
    ),
    min_size=1,
    max_size=4,
)


DECISIONS = st.lists(st.sampled_from(["approve", "deny", "edit"]), min_size=1, max_size=4)


def scripted(replies):
    """The answers of a model; each call and each text has a different number, to distinguish them."""
    numbers = itertools.count(1)
    made = []
    for reply in replies:
        if isinstance(reply, str):
            made.append(reply and f"{reply} {next(numbers)}")
        else:
            made.append(
                calls(*(made_call(name, call_id, next(numbers)) for name, call_id in reply))
            )
    return (*made, "Done.")


def made_call(name, call_id, number):
    return (
        call("note", call_id, n=str(number)) if name == INVALID else call(name, call_id, n=number)
    )


def edited(run, steps):
    """The stages of the default list, with edits among them."""
    stages = list(default_stages())
    for place, (position, name, iterations) in sorted(
        enumerate(steps), key=lambda step: step[1][0], reverse=True
    ):
        edit = editing(run, f"edit_{place}", name, iterations)
        stages.insert(position, stage(name=f"edit_{place}")(edit))
    return stages


def editing(run, own, name, iterations):
    def edit(ctx):
        if ctx.iteration not in iterations:
            return ctx
        run.latest = own
        return EDITS[name](run, ctx) if name in EDITS else WRONG_KINDS[name](ctx)

    def perform(ctx):
        if ctx.iteration not in iterations:
            return ctx
        run.latest = own
        return (yield from performed(ASKING[name](run, ctx)))

    return perform if name in ASKING else edit


def decided(run, pending, kinds):
    """A decision on each pending call; a denied or edited call does not run as the model made it."""
    decisions = {}
    for one, kind in zip(pending, itertools.cycle(kinds)):
        if kind != "approve":
            run.taken_out.add(one.arguments["n"])
        by_kind = {"approve": approve, "deny": deny("no"), "edit": edit({"n": next(run.numbers)})}
        decisions[one.id] = by_kind[kind]
    return decisions


@settings(max_examples=600)
@given(REPLIES, STEPS, OPTIONS, DECISIONS)
@example(  # guidance joins the user message with which a stage ends the request
    [[("note", "a")]],
    [(0, "append", {1}), (0, "change_request", {3})],
    {"max_seconds": 20, "output": {"type": "object"}},
    ["approve"],
)
def test_no_edits_of_any_stages_make_the_run_lose_work(replies, steps, options, decisions):
    names = {name for _, name, _ in steps}
    run = EditedRun(
        scripted(replies),
        rewrites=not REWRITES.isdisjoint(names),
        trims=not TRIMS.isdisjoint(names) and not names.isdisjoint(ASKING),
    )
    stages = edited(run, steps)
    result = run.run(stages, **with_handle(options))
    for _ in range(4):
        if not isinstance(result, Paused):
            break
        made = decided(run, result.pending, decisions)
        # A call of a tool that a stage added can be resumed only where the loop has the tool.
        tools = [*run.tools, run.other]
        result = run.resume(result, stages, made, **with_handle({**options, "tools": tools}))
    if isinstance(result, Err) and isinstance(result.reason, PipelineFailed):
        assert result.reason.stage == run.latest, dataclasses.asdict(result.reason)


# Each edit at each position


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("name", EDITS)
def test_no_edit_makes_the_run_lose_work(name, position, script):
    run, entered = EditedRun(SCRIPTS[script], rewrites=name in REWRITES), []

    def edited(ctx):
        entered.append(ctx)
        return EDITS[name](run, ctx)

    result = run.run(at(position, edited, EDITS[name]))
    is_refused = bool(entered) and position in REFUSED[name]
    is_refused |= any(map(calls_of, entered)) and position in REFUSED_AFTER_CALLS.get(name, ())
    assert refused_by(result) == ("edit" if is_refused else None)


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
    run, entered = EditedRun(SCRIPTS[script]), []

    def edited(ctx):
        entered.append(ctx)
        return WRONG_KINDS[kind](ctx)

    result = run.run(at(position, edited))
    assert refused_by(result) == ("edit" if entered else None)


def resumed(run, stages):
    """The result of a run that is resumed when it pauses."""
    result = run.run(stages)
    for _ in range(3):
        if isinstance(result, Paused):
            result = run.resume(result, stages, {})
    return result


PAUSING = (calls(call("note", "a", n=1), call("wipe", "w", n=2)), calls(call("note", "b", n=3)))


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("name", EDITS)
def test_no_edit_of_a_resumed_run_loses_work(name, position):
    run, is_resumed = EditedRun((*PAUSING, "Done."), rewrites=name in REWRITES), []
    stages = at(position, lambda ctx: EDITS[name](run, ctx) if is_resumed else ctx, EDITS[name])
    options = {"max_seconds": 20, "handle": True}
    paused = run.run(stages, **with_handle(options))
    assert isinstance(paused, Paused)
    assert run.ran == [1]
    is_resumed.append(True)
    result = run.resume(paused, stages, {"w": approve}, **with_handle(options))
    assert refused_by(result) in (None, "edit")


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("name", EDITS)
def test_no_edit_before_a_pause_loses_work(name, position):
    run = EditedRun(ONE, rewrites=name in REWRITES)
    stages = at(position, lambda ctx: EDITS[name](run, ctx), EDITS[name])
    stages.insert(position + 1, custom(lambda ctx: EDITS["pause_once"](run, ctx), "wait"))
    assert refused_by(resumed(run, stages)) in (None, "edit")


# Stages that wrap a built-in one


def wrapping(inner, edit=lambda ctx: ctx):
    """The default list, one stage of which is wrapped by one called ``edit``, which edits what it returned."""

    def wrap(ctx):
        return edit((yield from performed(inner.fn(ctx))))

    wrapper = stage(wrap, "edit", replaces=inner)
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
@pytest.mark.parametrize(
    "name", sorted(EDITS.keys() - {"forget_injection"})
)  # `evolve` is unchecked
def test_no_edit_of_the_result_of_a_wrapped_stage_loses_work(name, inner):
    run = EditedRun(ONE, rewrites=name in REWRITES)
    stages = wrapping(inner, lambda ctx: EDITS[name](run, ctx))
    assert refused_by(resumed(run, stages)) in (None, "edit")
