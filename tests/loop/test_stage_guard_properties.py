"""For any edits of stages, at any position and with any options: no work is lost, and every history is valid."""

import dataclasses
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import Err, Limits, Paused, PipelineFailed, approve, default_stages, deny, edit, stage
from treadle.testing import call, calls

from .edited_runs import (
    ASKING,
    EDITS,
    POSITIONS,
    REWRITES,
    TRIMS,
    WRONG_KINDS,
    EditedRun,
    performed,
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
OF_STAGES = ("sequential", "dedupe")


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


def edited(run, steps, **options):
    """The stages of the default list, with edits among them."""
    stages = list(default_stages(**options))
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
def test_no_edits_make_the_run_lose_work(replies, steps, options, decisions):
    names = {name for _, name, _ in steps}
    run = EditedRun(
        scripted(replies),
        rewrites=not REWRITES.isdisjoint(names),
        trims=not TRIMS.isdisjoint(names) and not names.isdisjoint(ASKING),
    )
    of_stages = {name: options.pop(name) for name in OF_STAGES if name in options}
    stages = edited(run, steps, **of_stages)
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
