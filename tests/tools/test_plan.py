"""Plans: which calls run, which do not, and why; the names of reasons are stable."""

from treadle.tools import PlanReason


def test_the_names_of_reasons_are_stable():
    """They occur in events and paused states, and in programs that read those."""
    assert [str(reason) for reason in PlanReason] == [
        "no_calls",
        "single_call",
        "parallel_batch",
        "parallel_batch_cut",
        "mixed_batch_sequenced",
        "sequential_deferred",
        "all_suppressed",
        "over_budget",
    ]
