"""The runs of a view: which go on, which are over, which are shown within others."""

import pytest

from treadle import Loop
from treadle.events import RunFinished, RunStarted
from treadle.messages import Usage
from treadle.reports.live.board import KEPT, Board, RunObserver
from treadle.run_state import RunState
from treadle.testing import ScriptedLLM, call, calls

GO = [{"role": "user", "content": "Go."}]


@pytest.fixture
def board():
    return Board(lambda: 0.0)


class Watching:
    """A view without a picture, as far as a loop can tell."""

    def __init__(self, board):
        self.board = board

    def __call__(self, event):
        raise AssertionError("each run is to have an observer of its own")

    def for_run(self):
        return RunObserver(self.board)


def started(run_id="r", **more):
    return RunStarted(agent_name="", run_id=run_id, at=0.0, **more)


def finished(**more):
    facts = {"stop_reason": "answered", "total_iterations": 1, "tool_calls_count": 0}
    return RunFinished(**facts, result=None, at=1.0, **more)


def test_what_comes_before_a_run_has_begun_is_not_shown(board):
    RunObserver(board)(finished())
    assert board.count == 0


def test_only_the_last_runs_are_kept_one_by_one_and_the_sums_are_those_of_all(board):
    watcher = RunObserver(board)
    for number in range(KEPT + 5):
        watcher(started(str(number)))
        watcher(finished(usage=Usage(1, 1, cost=0.5)))
    assert [run.run_id for run in board.finished] == [str(n) for n in range(5, KEPT + 5)]
    assert (board.forgotten, board.count) == (5, KEPT + 5)
    assert (board.tokens, board.cost) == (2 * (KEPT + 5), 0.5 * (KEPT + 5))


def test_what_nobody_told_the_cost_of_costs_nothing_known(board):
    watcher = RunObserver(board)
    watcher(started())
    watcher(finished(usage=Usage(1, 1)))
    assert board.cost is None


def test_a_run_that_is_over_holds_on_to_nothing(board):
    watcher = RunObserver(board)
    watcher(started(state=RunState()))
    watcher(finished())
    assert board.finished[0].state is None


def test_a_run_within_one_that_is_not_watched_is_a_run_of_its_own(board):
    inner = Loop(name="inner", on_event=Watching(board)).as_tool("dig", "Dig.", ScriptedLLM("x"))
    Loop(name="outer", tools=[inner]).run_sync(
        GO, ScriptedLLM(calls(call("dig", task="x")), "Done.")
    )
    assert [run.name for run in board.finished] == ["inner"]
