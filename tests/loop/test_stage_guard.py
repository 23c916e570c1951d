"""No stage can make the run lose work: edits of every kind, at every position of the default list."""

import pytest

from treadle import Err, PipelineFailed

from .edited_runs import EDITS, POSITIONS, SCRIPTS, WRONG_KINDS, EditedRun, at


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("max_seconds", [None, 20], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("edit", EDITS)
def test_no_edit_makes_the_run_lose_work(edit, position, max_seconds, script):
    run = EditedRun(SCRIPTS[script])
    stages = at(position, lambda ctx: EDITS[edit](run, ctx))
    result = run.run(stages, max_seconds=max_seconds)
    if isinstance(result, Err) and isinstance(result.reason, PipelineFailed):
        assert result.reason.stage == "edit"


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", WRONG_KINDS)
def test_a_wrong_kind_is_refused_with_the_name_of_the_stage(kind, position, script):
    run = EditedRun(SCRIPTS[script])
    entered = []

    def edit(ctx):
        entered.append(ctx)
        return WRONG_KINDS[kind](ctx)

    result = run.run(at(position, edit))
    if entered:
        assert isinstance(result, Err), result
        assert isinstance(result.reason, PipelineFailed), result.reason
        assert result.reason.stage == "edit"
