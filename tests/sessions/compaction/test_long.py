"""Long conversations and a long task, smaller than in `make bench-compaction`."""

import sys
from pathlib import Path

import pytest

from treadle.testing import check_history

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import compaction as benchmark


class TestConversations:
    """However long it is, each request stays short, and a late turn takes no longer than an early one."""

    def test_the_turns_of_a_session(self, tmp_path):
        grown = benchmark.conversation(80, str(tmp_path), 1_000)
        self.check(grown, 8, 1_000)

    def test_the_iterations_of_a_run(self):
        grown = benchmark.one_run(600)
        self.check(grown, 15, benchmark.CEILING)

    def check(self, grown, compactions, ceiling):
        assert max(grown.sizes) <= ceiling
        assert grown.compactions >= compactions
        quarter = len(grown.sizes) // 4
        early, late = sum(grown.sizes[quarter : 2 * quarter]), sum(grown.sizes[-quarter:])
        assert late < 1.3 * early
        assert grown.ratio < 2  # of CPU time, with room for a busy machine; it is about 1


@pytest.fixture(scope="module")
def tasks():
    """The task with `compact_history`, and by summarising alone."""
    return benchmark.both(300)


class TestTask:
    """300 calls in a window for a fraction of their results."""

    def test_every_fact_is_found_once_and_no_tool_runs_twice(self, tasks):
        task, _ = tasks
        assert task.result.stop_reason == "answered"
        assert set(task.ran.values()) == {1}
        assert len(task.ran) == 300
        assert task.facts == dict.fromkeys(benchmark.facts_of(300), 1)
        assert task.compactions >= 3
        assert task.recalled >= 5
        assert task.made == 300 + task.recalled
        assert task.largest <= benchmark.WINDOW
        check_history(task.result.messages)

    def test_summarising_alone_repeats_calls(self, tasks):
        """With the same threshold, summariser and model."""
        _, alone = tasks
        assert sum(count > 1 for count in alone.ran.values()) > 100
        assert alone.ran.total() > 600
        assert alone.result.stop_reason == "max_iterations_reached"
        assert not alone.facts

    def test_with_a_summariser_that_keeps_nothing(self):
        """What was learned does not depend on it; the errors have to be read again from the store."""
        task = benchmark.task(
            "nothing",
            [
                benchmark.compact_history(lambda _: "Some files.", max_tokens=benchmark.WINDOW),
                *benchmark.default_stages(),
            ],
            120,
        )
        assert set(task.ran.values()) == {1}
        assert len(task.ran) == 120
