"""The same call again: what is known of its result, how it is answered, and when it is a loop."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.learning import learn

from treadle.codec import decode, encode
from treadle.messages import ToolCall, ToolResult
from treadle.tools import NotRun, Repeats, Tool

WRITE = Tool("w", parallel_safe=False)


def call(name):
    return ToolCall(name, name, "{}", {}, name)


class Turn(Repeats):
    """A memory in which a known call is skipped at once."""

    def __init__(self, threshold=None):
        super().__init__(threshold)
        self.mode = "strict"
        self.iteration = 0

    def made(self, *iterations, tools=()):
        """Add iterations: each ``{call: content}``; content with ``!`` is an error."""
        for results in iterations:
            self.iteration += 1
            answered = [(key, text, text.startswith("!")) for key, text in results.items()]
            learn(self, self.iteration, answered, tools)
        return self

    def reason(self, name):
        """Why a call would not run; None if it would."""
        repeat = self.before(call(name), None)
        return None if repeat is None else repeat.reason

    def restored(self):
        """A copy from JSON, as in a pause."""
        kept = {spec.name: getattr(self, spec.name) for spec in dataclasses.fields(Repeats)}
        other = Turn()
        vars(other).update(vars(decode(json.loads(json.dumps(encode(Repeats(**kept)))))))
        other.iteration = self.iteration
        return other

    def known(self, names="abc"):
        """The calls that would be skipped."""
        return "".join(name for name in names if self.reason(name) is NotRun.NO_NEW_EVIDENCE)


@pytest.mark.parametrize(
    ("iterations", "version", "known"),
    [
        ([], 0, ""),
        ([{"a": "1"}], 1, "a"),
        ([{"a": "1"}, {}], 1, "a"),
        ([{"a": "1"}, {"b": "2"}], 2, "b"),
        ([{"a": "1", "b": "2", "c": "3"}], 1, "abc"),
        ([{"a": "1"}, {"b": "1"}], 2, "b"),
        ([{"a": "1"}, {"b": "2"}, {"a": "1"}], 2, "ab"),
        ([{"a": "1"}, {"b": "2"}, {"a": "other"}], 3, "a"),
        ([{"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": "1"}, {"a": "2"}, {"a": "3"}], 3, "a"),
        ([{"a": "1", "b": "2"}, {"a": "1", "b": "new"}], 2, "ab"),
        ([{"a": "!broken"}], 1, ""),
        ([{"a": "1"}, {"b": "!broken"}], 2, ""),
        ([{"a": "1"}, {"b": "!broken"}, {"a": "1"}, {"b": "!broken"}], 2, "a"),
        ([{"a": "1"}, {"a": "!broken"}], 2, ""),
    ],
)
def test_a_result_is_known_until_another_result_is_new(iterations, version, known):
    """New is a result that its call has not returned before in this turn; an error is never known."""
    turn = Turn().made(*iterations)
    assert (turn.version, turn.known()) == (version, known)


@pytest.mark.parametrize(
    ("results", "times"),
    [("1", 1), ("11", 2), ("12", 1), ("122", 2), ("121", 1), ("1!1", 1), ("111", 3)],
)
def test_it_counts_how_often_in_a_row_a_call_returned_the_same(results, times):
    """Other calls in between do not matter."""
    turn = Turn()
    for number, content in enumerate(results):
        turn.made({"a": content}, {"b": f"in between {number}"})
    assert turn.answers["a"].times == times
    turn.made({"a": results[-1]})  # now nothing is new since
    turn.mode = "evidence"
    assert turn.known("a") == ("" if results[-1] == "!" else "a")


def test_a_tool_that_runs_alone_makes_what_was_known_before_it_old():
    """read, read another, write, read another, in one iteration: only the first two are from before the write."""
    turn = Turn().made({"r": "1", "w": "ok", "s": "2"}, tools=[WRITE])
    assert turn.known("rws") == "ws"
    turn.made({"w": "ok"}, tools=[WRITE])
    assert turn.known("rws") == "w"
    turn.made({"w": "!no"}, {"w": "!no"}, tools=[WRITE])
    assert turn.version == 3  # the failure was new once


@pytest.mark.parametrize(
    ("status", "is_read_only", "is_known"),
    [
        ("cancelled", False, False),
        ("unknown", False, False),
        ("cancelled", True, True),
        ("denied", False, True),
    ],
)
def test_a_call_without_a_result_that_may_have_changed_something_makes_all_old(
    status, is_read_only, is_known
):
    turn = Turn().made({"a": "1"})
    tools = {"x": Tool("x", read_only=is_read_only)}
    turn.learn(2, [call("x")], {"x": ToolResult("x", "no", True, status)}, tools)
    assert (turn.answers.get("x"), bool(turn.known())) == (None, is_known)


def test_a_new_turn_forgets_everything_and_its_results_are_new():
    turn = Turn(3).made({"a": "1"}, {"a": "2"})
    turn.count(call("a"))
    turn.new_turn()
    assert (turn.answers.get("a"), turn.counts, turn.version) == (None, {}, 3)
    assert turn.made({"a": "2"}).version == 4


def test_calls_that_are_answered_with_another_result_are_counted_and_others_are_not():
    turn = Turn()
    for reason in NotRun:
        turn.note_not_run(call(reason.value), reason)
    assert set(turn.counts) == {"no_new_evidence", "duplicate_in_batch"}


class TestLoops:
    """A pattern of iterations that occurs again and again."""

    def look(self, turn, names, content="r", status="done"):
        """Add an iteration of some calls, and look."""
        calls = [call(name) for name in names]
        results = {one.id: ToolResult(one.id, content, status=status) for one in calls}
        return turn.look("".join(sorted(names)), calls, results, {})

    def test_a_restored_memory_continues_where_the_first_stopped(self):
        for cut in range(6):
            first = Turn(3)
            found = [self.look(first, name) for name in "fgfgfg"[:cut]]
            second = first.restored()
            found += [self.look(second, name) for name in "fgfgfg"[cut:]]
            assert found == [None] * 5 + [(3, 2)]

    def test_a_skipped_call_without_an_earlier_result_counts_with_its_answer(self):
        """For example the duplicate of a call that was cancelled."""
        turn = Turn(2)
        turn.mode = "off"
        contents = ("cancelled", "cancelled", "done")
        found = [self.look(turn, "f", text, "duplicate_in_batch") for text in contents]
        assert found == [None, (2, 1), None]

    def test_calls_without_results_count_by_themselves(self):
        turn = Turn(2)
        assert [turn.look("f", [call("f")], {}, {}) for _ in "ab"] == [None, (2, 1)]

    @pytest.mark.parametrize("forget", [Repeats.new_turn, lambda turn: turn.hide({})])
    def test_a_new_turn_and_a_compaction_begin_anew(self, forget):
        turn = Turn(2)
        turn.mode = "off"
        assert self.look(turn, "f") is None
        forget(turn)
        assert [self.look(turn, "f") for _ in "ab"] == [None, (2, 1)]


ITERATIONS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", "3", "!E"])), max_size=8
)


@given(ITERATIONS)
def test_the_version_rises_only_when_a_call_returns_a_new_result(iterations):
    turn, seen, version = Turn(), set(), 0
    for results in iterations:
        version += not set(results.items()) <= seen
        seen.update(results.items())
        assert turn.made(results).version == version


@given(ITERATIONS, ITERATIONS)
def test_a_memory_restored_from_json_continues_as_the_original(before, after):
    turn = Turn().made(*before)
    other = turn.restored()
    turn.made(*after)
    other.made(*after)
    assert dataclasses.asdict(other) == dataclasses.asdict(turn)
    assert other.known() == turn.known()
