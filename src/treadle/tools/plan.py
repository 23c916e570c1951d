"""The plan of an iteration: which calls run, which do not, and why."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from treadle.fast_dataclass import fast_dataclass
from treadle.messages import NOTHING, ToolCall
from treadle.tools.unrun_calls import NotRun


class PlanReason(StrEnum):
    """The reason for a plan."""

    NO_CALLS = "no_calls"
    SINGLE_CALL = "single_call"
    PARALLEL_BATCH = "parallel_batch"
    PARALLEL_BATCH_CUT = "parallel_batch_cut"
    """More calls than may run at the same time."""
    MIXED_BATCH_SEQUENCED = "mixed_batch_sequenced"
    """Calls that may run together, and others that may not."""
    SEQUENTIAL_DEFERRED = "sequential_deferred"
    """The first call has to run alone."""
    ALL_SUPPRESSED = "all_suppressed"
    """No call runs: they are duplicates, or their circuit breakers are open."""
    OVER_BUDGET = "over_budget"


@fast_dataclass
class Plan:
    """Which calls run in an iteration, together or one after another.

    Args:
        batches: the calls that run: one batch after another, the calls of a batch at the same time.
        reason: the reason for the plan.
        not_run: why the other calls do not run, by id of the call.
        duplicates: the ids of calls that get the result of another call of the plan, each with that call's id.
        approvals: the questions to ask for calls that need approval, by id of the call.
    """

    batches: tuple[tuple[ToolCall, ...], ...] = ()
    reason: PlanReason = PlanReason.NO_CALLS
    not_run: Mapping[str, NotRun] = field(default_factory=lambda: NOTHING)
    duplicates: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    approvals: Mapping[str, str] = field(default_factory=lambda: NOTHING)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All calls that run."""
        if len(self.batches) == 1:
            return self.batches[0]
        return tuple(itertools.chain.from_iterable(self.batches))
