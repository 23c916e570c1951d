"""For any history, threshold and split: the view is valid, nothing that has to survive is lost, and it ends."""

import copy
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.events import HistoryCompacted
from treadle.messages import History
from treadle.sessions import StubResults, collapse_repeats, drop_superseded
from treadle.sessions.attachments import attachments_of, digest_of
from treadle.sessions.compaction.view import CompactionState, split_of, view_of
from treadle.testing import check_history

from .compacting import SYSTEM, blocks, histories, look, looks, run

strategies = st.lists(
    st.sampled_from([StubResults(200), drop_superseded, collapse_repeats]),
    max_size=3,
    unique_by=repr,
)


def digests(messages):
    return {digest_of(part) for message in messages for part in attachments_of(message)}


def systems(messages):
    return [message for message in messages if message["role"] in SYSTEM]


def same(first, second):
    """Whether two lists have the same objects."""
    return list(map(id, first)) == list(map(id, second))


def exchange_starts(messages):
    """The indices between exchanges."""
    return [n for n, one in enumerate(messages) if one["role"] != "tool"] + [len(messages)]


class TestSplits:
    """Where a history may be split, and the views of both sides."""

    @settings(max_examples=150)
    @given(histories(), st.integers(1, 8), st.integers(0, 20))
    def test_a_split_is_between_exchanges_and_keeps_the_recent_messages(self, given, keep, covered):
        covered = exchange_starts(given)[min(covered, len(exchange_starts(given)) - 1)]
        at = split_of(given, covered, keep)
        assert at in exchange_starts(given)
        assert covered <= at
        assert at == covered or at <= len(given) - keep
        assert split_of(given, at, keep) == at

    @settings(max_examples=150)
    @given(histories(), st.data())
    def test_a_view_at_any_split_is_valid_and_keeps_what_has_to_stay(self, given, data):
        history = History(given)
        starts = exchange_starts(given)
        covered = data.draw(st.sampled_from(starts))
        shortened = data.draw(st.sampled_from([one for one in starts if one >= covered]))
        chosen = data.draw(strategies)
        kept = data.draw(st.integers(0, 4))
        parts = tuple(p for one in history[:covered] for p in attachments_of(one))
        state = CompactionState(
            covered, shortened - covered, kept, summary="notes", attachments=parts
        )
        view = view_of(history, state, chosen)
        check_history(view)
        assert same(systems(view), systems(history))
        later = history[shortened:]
        assert same(view[len(view) - len(later) :], later)
        assert digests(view) == digests(given)
        assert len(blocks(view)) >= (covered > 0)
        assert history.to_list() == given


options = st.fixed_dictionaries(
    {
        "max_tokens": st.sampled_from([1, 30, 100, 300, 100_000]),
        "max_tokens_with_documents": st.sampled_from([1, 1_000, 3_000, 100_000]),
        "keep_recent": st.integers(1, 7),
        "strategies": strategies,
    },
    optional={"max_messages": st.integers(9, 20)},
)
scripts = st.lists(
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(lambda p: looks(*p)),
    max_size=5,
)
summaries = st.lists(st.sampled_from(["N", "notes " * 20, "", "long " * 3_000]), min_size=1)


class TestRuns:
    """A run whose history is given."""

    @settings(max_examples=100)
    @given(histories(), options, scripts, summaries)
    def test_any_history_and_any_options(self, given, options, script, summaries):
        before, made = copy.deepcopy(given), itertools.cycle(summaries)
        answers = iter([*copy.deepcopy(script), *["The end."] * 3])
        observed = run(
            lambda _: next(answers),
            summarize=lambda _: next(made),
            given=given,
            compaction=options,
            tools=[look([])],
            loop_threshold=None,
        )
        assert given == before
        result = observed.result
        assert result.stop_reason in {"answered", "compaction_stalled"}
        assert result.messages[: len(given) - 1] == given[:-1]  # a text may be joined to the last
        keep = options["keep_recent"]
        for view, record in zip(observed.views, observed.records, strict=True):
            check_history(view)
            check_history(record)
            assert record == result.messages[: len(record) - 1] + record[-1:]
            assert same(view[-keep:], record[-keep:])
            assert same(systems(view), systems(record))
            assert digests(view) == digests(record)
        is_summarized = any(event.is_summarized for event in observed.of(HistoryCompacted))
        assert len(blocks(observed.views[-1])) >= is_summarized

    @settings(max_examples=100)
    @given(histories(), options, st.booleans())
    def test_its_own_output_is_not_compacted_again(self, given, options, has_summaries):
        """The view as a new history is shown as it is: there is nothing to gain."""
        options = {**options, "strategies": options["strategies"] or [collapse_repeats]}
        summarize = (lambda _: "N") if has_summaries else None
        first = run("Yes.", given=given, summarize=summarize, compaction=options)
        view = copy.deepcopy(first.requests[0])
        again = run("Yes.", given=view, summarize=summarize, compaction=options)
        assert again.requests[0] == view
        assert again.compacted == []
