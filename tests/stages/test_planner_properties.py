"""Properties of every plan, for any calls, tools, limits and modes."""

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learning import learn

from treadle.context import Context, RunServices
from treadle.limits import Budget, Limits
from treadle.messages import History, ToolResult
from treadle.tools import PlanReason, Tool, toolset

from .planning import (
    BROKEN,
    CAP,
    DEFERRED,
    DUPLICATE,
    KNOWN,
    OVER,
    RECALLED,
    TOOLS,
    USED_UP,
    made,
    planned,
)

TOOL = toolset(TOOLS)
WORDS = [f"{name}{number}" for name in [*TOOL, "unknown", "p", "w"] for number in (1, 2)]
LEFT = st.sampled_from([None, None, 0, 1, 3, 5])


class Case:
    """A plan, its input, and the budget before it.

    Args:
        words: the calls.
        known: bits, by the place of the call.
        hidden: likewise: the calls whose results were compacted away, and those of which only a part is stored.
        broken: likewise.
        modes: whether it is in step, known calls were repeated, a tool has changed something since, and the run is
            a subagent.
        dedupe: of the loop.
        limits: parallel calls, calls in total, calls of the parent.
        used: the uses of ``once`` and ``twice`` so far.
    """

    def __init__(self, words, known, hidden, broken, modes, dedupe, limits, used):
        self.in_step, self.is_repeated, self.is_outdated, has_parent = modes
        self.dedupe = dedupe
        self.at_once, most, most_of_parent = limits
        self.calls = made(" ".join(words))
        self.known = {word for place, word in enumerate(words) if known >> place & 1}
        away, cut = (
            {word for place, word in enumerate(words) if bits >> place & 1} for bits in hidden
        )
        self.hidden = {word: word not in cut for word in away}
        self.broken = {call.id: "E" for place, call in enumerate(self.calls) if broken >> place & 1}
        self.uses = {"once": used[0], "twice": used[1]}
        bounds = Limits(max_parallel_calls=self.at_once, max_tool_calls=most)
        parent = Budget(Limits(max_tool_calls=most_of_parent)) if has_parent else None
        budget = Budget(bounds, parent)
        budget.uses.update(self.uses)
        self.left = budget.calls_left()
        ctx = Context(History(), TOOL, run=RunServices(budget=budget))
        self.fill(ctx.run.repeats)
        self.made = planned(
            ctx, self.calls, in_step=self.in_step, dedupe=self.dedupe, broken=self.broken
        )
        self.batches, self.not_run = self.made.batches, self.made.not_run
        self.runs = [call.id for call in self.made.calls]

    def fill(self, repeats):
        """What earlier iterations have left: results, some of them hidden, and at last perhaps a change."""
        learn(repeats, 0, [("change", "done", False)])
        for iteration in range(1, 2 + self.is_repeated):
            learn(repeats, iteration, [(word, result_of(word), False) for word in self.known])
        repeats.hide(self.hidden)
        if self.is_outdated:
            learn(repeats, 3, [("change", "done", False)], [Tool("change")])


def result_of(word):
    return f"the result of {word}"


def cases(words=WORDS, broken=(0, 0, 0, 1, 2, 6)):
    return st.builds(
        Case,
        words=st.lists(st.sampled_from(words), min_size=1, max_size=9),
        known=st.integers(0, 511),
        hidden=st.tuples(st.sampled_from([0, 0, 3, 85, 511]), st.sampled_from([0, 0, 6])),
        broken=st.sampled_from(broken),
        modes=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
        dedupe=st.sampled_from(["evidence", "strict", "off"]),
        limits=st.tuples(st.integers(1, 4), LEFT, LEFT),
        used=st.tuples(st.integers(0, 1), st.integers(0, 3)),
    )


CASES = cases()
READS_AND_WRITES = cases(["p1", "p2", "p3", "w1", "w2"], broken=(0,))


def mode_of(case, name):
    own = {"clock": "off", "again": "off", "strict": "strict", "patient": "evidence"}
    return own.get(name, case.dedupe)


def may_be_skipped(case, call):
    """Whether a call would return what is known, as far as its mode and its results go."""
    mode = mode_of(case, call.name)
    is_due = mode == "strict" or (mode == "evidence" and case.is_repeated)
    is_seen = call.fingerprint in case.known and call.fingerprint not in case.hidden
    return is_seen and is_due


def may_be_recalled(case, call):
    """Whether the model does not see the result of a call any more, and it is stored, whole, and still holds."""
    is_stored = call.fingerprint in case.known and case.hidden.get(call.fingerprint, False)
    return is_stored and not case.is_outdated and mode_of(case, call.name) != "off"


def runs_alone(call):
    tool = TOOL.get(call.name)
    return tool is not None and (not tool.parallel_safe or tool.requires_fresh_input)


SETTLED = {KNOWN, RECALLED, DUPLICATE, BROKEN, OVER, USED_UP}
"""Reasons of calls that will not run in this response, or after it."""


def is_first(case, place):
    """Whether no call that runs alone has to run before the one at a place."""
    return not any(
        runs_alone(before) and case.not_run.get(before.id) not in SETTLED
        for before in case.calls[:place]
    )


@given(CASES)
def test_every_call_runs_or_is_answered_or_duplicates_one_that_runs(case):
    duplicates = case.made.duplicates
    for call in case.calls:
        ways = [call.id in case.runs, call.id in case.made.results, call.id in duplicates]
        assert ways.count(True) == 1
        assert (call.id in case.not_run) is (call.id not in case.runs)
    assert {key for key, why in case.not_run.items() if why is BROKEN} == set(case.broken)
    assert len(case.runs) == len(set(case.runs))
    prints = {call.id: call.fingerprint for call in case.calls}
    for duplicate, first in duplicates.items():
        assert case.not_run[duplicate] is DUPLICATE
        assert first in case.runs
        assert prints[duplicate] == prints[first]


@given(CASES)
def test_the_order_of_the_request_is_kept(case):
    assert case.runs == [call.id for call in case.calls if call.id in case.runs]
    assert list(case.not_run) == [call.id for call in case.calls if call.id in case.not_run]


@given(CASES)
def test_no_more_calls_run_than_the_budgets_allow_and_exactly_these_are_counted(case):
    assert case.left is None or len(case.runs) <= case.left
    assert case.made.budget.tool_calls == len(case.runs)
    ran = Counter(call.name for call in case.made.calls)
    for name, most in (("once", 1), ("twice", 2)):
        before = case.uses.get(name, 0)
        assert ran[name] <= max(0, most - before)
        assert case.made.budget.uses.get(name, 0) == before + ran[name]


@given(CASES)
def test_calls_are_over_budget_only_if_a_budget_is_exhausted(case):
    ran = Counter(call.name for call in case.made.calls)
    if OVER in case.not_run.values():
        assert len(case.runs) == case.left
    for call in case.calls:
        if case.not_run.get(call.id) is USED_UP:
            assert case.uses.get(call.name, 0) + ran[call.name] >= TOOL[call.name].max_uses


@given(CASES)
def test_a_batch_respects_the_parallel_limit_and_calls_that_run_alone(case):
    assert case.in_step or len(case.batches) <= 1
    for batch in case.batches:
        assert 1 <= len(batch) <= case.at_once
        assert len(batch) == 1 or not any(map(runs_alone, batch))
        for name, count in Counter(call.name for call in batch).items():
            most = TOOL[name].max_parallel if name in TOOL else None
            assert most is None or count <= most


@given(CASES)
def test_a_batch_ends_only_before_a_call_that_cannot_run_with_it(case):
    for batch, following in pairwise(case.batches):
        names, after = [call.name for call in batch], following[0]
        most = TOOL[after.name].max_parallel if after.name in TOOL else None
        is_full = len(batch) == case.at_once or names.count(after.name) == most
        assert is_full or runs_alone(batch[0]) or runs_alone(after)


@given(CASES)
def test_a_call_that_requires_fresh_input_runs_first_or_not_and_in_step_no_other_is_deferred(case):
    assert "fresh" not in [call.name for call in case.made.calls[1:]]
    late = {call.name for call in case.calls if case.not_run.get(call.id) in {DEFERRED, CAP}}
    assert not case.in_step or late <= {"fresh"}


@settings(max_examples=250)
@given(READS_AND_WRITES)
def test_only_known_calls_with_no_active_write_before_them_are_suppressed(case):
    for place, call in enumerate(case.calls):
        if case.not_run.get(call.id) is KNOWN:
            assert may_be_skipped(case, call)
            assert is_first(case, place)


@settings(max_examples=250)
@given(st.one_of(CASES, READS_AND_WRITES))
def test_only_hidden_results_that_still_hold_are_recalled_before_any_active_write(case):
    """Not those of tools whose mode is off."""
    for place, call in enumerate(case.calls):
        if case.not_run.get(call.id) is RECALLED:
            assert may_be_recalled(case, call)
            assert is_first(case, place)


@given(CASES)
def test_a_call_that_may_be_recalled_is_whatever_is_left_of_the_budgets(case):
    """Unless a call that runs alone is involved."""
    for place, call in enumerate(case.calls):
        if may_be_recalled(case, call) and not any(map(runs_alone, case.calls[: place + 1])):
            assert case.not_run[call.id] is (BROKEN if call.id in case.broken else RECALLED)


@given(CASES)
def test_no_call_that_may_be_skipped_or_recalled_runs_in_the_first_batch(case):
    for call in case.batches[0] if case.batches else ():
        assert not may_be_skipped(case, call)
        assert not may_be_recalled(case, call)


@given(CASES)
def test_no_batch_has_the_same_call_twice_unless_its_tool_allows_it(case):
    for batch in case.batches:
        prints = [c.fingerprint for c in batch if mode_of(case, c.name) != "off"]
        assert len(prints) == len(set(prints))


@given(CASES)
def test_the_reason_agrees_with_the_plan(case):
    reason, count = case.made.reason, len(case.runs)
    is_short = any(why in {OVER, USED_UP} for why in case.not_run.values())
    assert (reason is PlanReason.OVER_BUDGET) is is_short
    assert (reason is PlanReason.ALL_SUPPRESSED) is (count == 0 and not is_short)
    if reason is PlanReason.SINGLE_CALL:
        assert count == 1
    if reason is PlanReason.PARALLEL_BATCH:
        assert count == len(case.batches[0]) > 1
    if len(case.batches) > 1 and not is_short:
        assert reason in {
            PlanReason.PARALLEL_BATCH_CUT,
            PlanReason.MIXED_BATCH_SEQUENCED,
            PlanReason.SEQUENTIAL_DEFERRED,
        }


@given(CASES)
def test_every_answer_is_for_its_call_and_only_a_stored_result_is_not_an_error(case):
    words = {call.id: call.fingerprint for call in case.calls}
    for call_id, result in case.made.results.items():
        assert isinstance(result, ToolResult)
        assert (result.tool_call_id, result.status) == (call_id, case.not_run[call_id])
        assert result.is_error is (case.not_run[call_id] not in {KNOWN, RECALLED})
        if not result.is_error:
            assert result_of(words[call_id]) in result.content.splitlines()
        if case.not_run[call_id] is RECALLED:
            assert result.content.startswith(result_of(words[call_id]))


def test_the_examples_reach_every_reason():
    """Otherwise the properties above could hold vacuously."""
    reasons, not_run = set(), set()

    @settings(max_examples=300, database=None)
    @given(CASES)
    def look(case):
        reasons.add(case.made.reason)
        not_run.update(case.not_run.values())

    look()
    planned = {KNOWN, RECALLED, DUPLICATE, CAP, DEFERRED, OVER, USED_UP, BROKEN}
    assert not_run == planned
    assert reasons == set(PlanReason) - {PlanReason.NO_CALLS}
