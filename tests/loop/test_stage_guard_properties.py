"""Whatever stages edit, wherever and with whichever options: no work is lost, and every history is valid."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import Err, Loop, Paused, PipelineFailed, RunHandle, approve, default_stages, stage
from treadle.testing import call, calls, check_history

from .edited_runs import EDITS, POSITIONS, WRONG_KINDS, EditedRun

NAMES = st.sampled_from(["note", "note", "note", "wipe", "nope", "other"])
REPLY = st.one_of(
    st.lists(st.tuples(NAMES, st.sampled_from(["a", "b", "c", None])), min_size=1, max_size=4),
    st.sampled_from(["Text", ""]),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "max_seconds": st.just(20),
        "on_limit": st.just("finish"),
        "sequential": st.just("in_step"),
        "max_tool_calls": st.integers(1, 4),
        "max_parallel_calls": st.integers(1, 2),
        "dedupe": st.just(False),
        "handle": st.just(True),
        "output": st.just({"type": "object", "properties": {"total": {"type": "integer"}}}),
    },
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(POSITIONS),
        st.sampled_from(sorted(EDITS)) | st.sampled_from(sorted(WRONG_KINDS)),
        st.sets(st.integers(1, 4), min_size=1),
    ),
    min_size=1,
    max_size=4,
)
OF_STAGES = ("sequential", "dedupe")


def scripted(replies):
    """The answers of a model; every call has another number, so that each run of a tool is told apart."""
    numbers = iter(range(1, 1000))
    made = []
    for reply in replies:
        if isinstance(reply, str):
            made.append(reply)
        else:
            made.append(calls(*(call(name, call_id, n=next(numbers)) for name, call_id in reply)))
    return (*made, "Done.")


def edited(run, steps, **options):
    """The stages of the default list, with edits among them."""
    stages = list(default_stages(**options))
    for place, (position, name, iterations) in sorted(
        enumerate(steps), key=lambda step: step[1][0], reverse=True
    ):
        stages.insert(position, stage(name=f"edit_{place}")(editing(run, name, iterations)))
    return stages


def editing(run, name, iterations):
    def edit(ctx):
        if ctx.iteration not in iterations:
            return ctx
        return EDITS[name](run, ctx) if name in EDITS else WRONG_KINDS[name](ctx)

    return edit


@settings(max_examples=400)
@given(st.lists(REPLY, max_size=3), STEPS, OPTIONS)
def test_no_edits_make_the_run_lose_work(replies, steps, options):
    run = EditedRun(scripted(replies))
    of_stages = {name: options.pop(name) for name in OF_STAGES if name in options}
    stages = edited(run, steps, **of_stages)
    if options.pop("handle", False):
        options["handle"] = RunHandle()
    result = run.run(stages, **options)
    for _ in range(2):
        if not isinstance(result, Paused):
            break
        options = {**options, "handle": RunHandle()} if "handle" in options else options
        # A call of a tool that a stage added can be resumed only where the loop has the tool.
        loop = Loop(
            stages=stages, tools=[*run.tools, run.other], **{"max_iterations": 5, **options}
        )
        decisions = {pending.id: approve for pending in result.pending}
        result = loop.resume_sync(result, decisions, run.model)
        check_history(result.messages)
        assert not run.faults, run.faults
    if isinstance(result, Err) and isinstance(result.reason, PipelineFailed):
        assert result.reason.stage.startswith("edit_"), dataclasses.asdict(result.reason)
