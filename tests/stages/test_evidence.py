"""What a turn has learned: a call that would tell nothing new is known."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.tools import Answer, ResultCache


@pytest.fixture
def evidence():
    return ResultCache()


def learn(evidence, *iterations):
    """Take in iterations, from the first on: each ``{call: content}``; content in ``!`` is an error."""
    for number, results in enumerate(iterations, 1):
        evidence.learn(number, [(key, text, text.startswith("!")) for key, text in results.items()])


def test_a_call_that_was_never_made_is_not_known(evidence):
    assert (evidence.known("a"), evidence.answer("a"), evidence.version) == (None, None, 0)


def test_a_call_is_known_by_its_answer_until_something_new_is_learned(evidence):
    learn(evidence, {"a": "1"})
    assert evidence.known("a") == Answer(version=1, iteration=1, content="1", is_error=False)
    learn(evidence, {"b": "2"})
    assert evidence.known("a") is None
    assert evidence.known("b").content == "2"


def test_its_answer_stays_at_hand_for_the_rest_of_the_turn(evidence):
    learn(evidence, {"a": "1"}, {"b": "2"})
    assert evidence.answer("a") == Answer(version=1, iteration=1, content="1", is_error=False)


def test_the_results_of_one_iteration_came_all_at_once(evidence):
    learn(evidence, {"a": "1", "b": "2", "c": "3"})
    assert evidence.version == 1
    assert all(evidence.known(key) for key in "abc")


def test_the_same_result_again_is_nothing_new(evidence):
    """So what was known stays known, and the call that was made again is known anew."""
    learn(evidence, {"a": "1"}, {"b": "2"}, {"a": "1"})
    assert evidence.version == 2
    assert evidence.known("b").iteration == 2
    assert evidence.known("a") == Answer(version=2, iteration=3, content="1", is_error=False)


def test_another_result_of_the_same_call_is_new(evidence):
    learn(evidence, {"a": "1"}, {"b": "2"}, {"a": "other"})
    assert evidence.version == 3
    assert evidence.known("b") is None
    assert evidence.known("a").content == "other"


def test_a_result_that_the_call_brought_long_before_is_not_new(evidence):
    learn(evidence, {"a": "1"}, {"a": "2"}, {"a": "3"})
    assert evidence.version == 3
    learn(evidence, {"a": "1"}, {"a": "2"}, {"a": "3"})
    assert evidence.version == 3


def test_the_same_text_of_another_call_is_new(evidence):
    learn(evidence, {"a": "1"}, {"b": "1"})
    assert evidence.version == 2


def test_something_new_among_old_results_is_enough(evidence):
    learn(evidence, {"a": "1", "b": "2"}, {"a": "1", "b": "new"})
    assert evidence.version == 2
    assert evidence.known("a").iteration == 2


def test_a_failure_is_no_answer_so_the_call_may_be_tried_again(evidence):
    learn(evidence, {"a": "!broken"})
    assert evidence.known("a") is None
    assert evidence.answer("a").is_error


def test_a_failure_is_news_all_the_same(evidence):
    learn(evidence, {"a": "1"}, {"b": "!broken"})
    assert evidence.known("a") is None
    learn(evidence, {"a": "1"}, {"b": "!broken"})
    assert evidence.known("a") is not None


def test_a_call_that_was_answered_and_then_failed_may_be_made_again(evidence):
    learn(evidence, {"a": "1"}, {"a": "!broken"})
    assert evidence.known("a") is None


def test_a_change_is_news_whatever_it_says(evidence):
    """It may have said ``ok`` before; what others bring may be different now, and its own is known."""
    for number, has_changed in enumerate([False, True, True], 1):
        evidence.learn(number, [("a", "ok", False)], has_changed=has_changed)
        assert evidence.version == number
        assert evidence.known("a").iteration == number
    evidence.learn(4, [("b", "1", False)])
    evidence.learn(5, [("a", "ok", False)], has_changed=True)
    assert evidence.known("b") is None


def test_an_iteration_without_results_changes_nothing(evidence):
    learn(evidence, {"a": "1"}, {})
    assert evidence.version == 1
    assert evidence.known("a") is not None


def test_when_the_user_has_spoken_everything_may_be_asked_again(evidence):
    learn(evidence, {"a": "1"}, {"a": "2"})
    evidence.new_turn()
    assert (evidence.known("a"), evidence.answer("a"), evidence.version) == (None, None, 3)
    learn(evidence, {"a": "1"})
    assert evidence.version == 4


def test_what_came_before_the_user_spoke_is_new_when_it_comes_again(evidence):
    learn(evidence, {"a": "1"}, {"a": "2"})
    evidence.new_turn()
    learn(evidence, {"a": "2"}, {"a": "1"})
    assert evidence.version == 5


ITERATIONS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", "3", "!E"])), max_size=8
)


@given(ITERATIONS)
def test_the_version_rises_just_where_a_call_brings_what_it_never_brought(iterations):
    evidence, seen, version, last = ResultCache(), set(), 0, {}
    for number, results in enumerate(iterations, 1):
        is_new = not set(results.items()) <= seen
        seen.update(results.items())
        version += is_new
        evidence.learn(number, [(key, text, text == "!E") for key, text in results.items()])
        last.update({key: (version, number, text, text == "!E") for key, text in results.items()})
        assert evidence.version == version
        for key in "abc":
            assert evidence.answer(key) == last.get(key)
            is_known = key in last and last[key][0] == version and not last[key][3]
            assert evidence.known(key) == (last[key] if is_known else None)


@given(ITERATIONS, ITERATIONS)
def test_a_run_that_was_put_aside_as_json_goes_on_with_what_it_knew(before, after):
    evidence, restored = ResultCache(), ResultCache()
    learn(evidence, *before)
    restored.restore(json.loads(json.dumps(evidence.as_json())))
    for one in (evidence, restored):
        learn(one, *after)
    assert restored.as_json() == evidence.as_json()
    assert all(restored.known(key) == evidence.known(key) for key in "abc")
