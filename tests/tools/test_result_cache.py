"""The results of a turn: a call that would return nothing new is answered from the cache."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.tools import CachedResult, ResultCache


@pytest.fixture
def cache():
    return ResultCache()


def learn(cache, *iterations):
    """Take in iterations, from the first on: each ``{call: content}``; content in ``!`` is an error."""
    for number, results in enumerate(iterations, 1):
        cache.learn(number, [(key, text, text.startswith("!")) for key, text in results.items()])


def test_a_call_that_was_never_made_is_not_known(cache):
    assert (cache.fresh("a"), cache.latest("a"), cache.version) == (None, None, 0)


def test_a_call_is_known_by_its_answer_until_something_new_is_learned(cache):
    learn(cache, {"a": "1"})
    assert cache.fresh("a") == CachedResult(version=1, iteration=1, content="1", is_error=False)
    learn(cache, {"b": "2"})
    assert cache.fresh("a") is None
    assert cache.fresh("b").content == "2"


def test_its_answer_stays_at_hand_for_the_rest_of_the_turn(cache):
    learn(cache, {"a": "1"}, {"b": "2"})
    assert cache.latest("a") == CachedResult(version=1, iteration=1, content="1", is_error=False)


def test_the_results_of_one_iteration_came_all_at_once(cache):
    learn(cache, {"a": "1", "b": "2", "c": "3"})
    assert cache.version == 1
    assert all(cache.fresh(key) for key in "abc")


def test_the_same_result_again_is_nothing_new(cache):
    """So what was known stays known, and the call that was made again is known anew."""
    learn(cache, {"a": "1"}, {"b": "2"}, {"a": "1"})
    assert cache.version == 2
    assert cache.fresh("b").iteration == 2
    assert cache.fresh("a") == CachedResult(version=2, iteration=3, content="1", is_error=False)


def test_another_result_of_the_same_call_is_new(cache):
    learn(cache, {"a": "1"}, {"b": "2"}, {"a": "other"})
    assert cache.version == 3
    assert cache.fresh("b") is None
    assert cache.fresh("a").content == "other"


def test_a_result_that_the_call_brought_long_before_is_not_new(cache):
    learn(cache, {"a": "1"}, {"a": "2"}, {"a": "3"})
    assert cache.version == 3
    learn(cache, {"a": "1"}, {"a": "2"}, {"a": "3"})
    assert cache.version == 3


def test_the_same_text_of_another_call_is_new(cache):
    learn(cache, {"a": "1"}, {"b": "1"})
    assert cache.version == 2


def test_something_new_among_old_results_is_enough(cache):
    learn(cache, {"a": "1", "b": "2"}, {"a": "1", "b": "new"})
    assert cache.version == 2
    assert cache.fresh("a").iteration == 2


def test_a_failure_is_no_answer_so_the_call_may_be_tried_again(cache):
    learn(cache, {"a": "!broken"})
    assert cache.fresh("a") is None
    assert cache.latest("a").is_error


def test_a_failure_is_news_all_the_same(cache):
    learn(cache, {"a": "1"}, {"b": "!broken"})
    assert cache.fresh("a") is None
    learn(cache, {"a": "1"}, {"b": "!broken"})
    assert cache.fresh("a") is not None


def test_a_call_that_was_answered_and_then_failed_may_be_made_again(cache):
    learn(cache, {"a": "1"}, {"a": "!broken"})
    assert cache.fresh("a") is None


def test_a_change_is_news_whatever_it_says(cache):
    """It may have said ``ok`` before; what others bring may be different now, and its own is known."""
    for number, has_changed in enumerate([False, True, True], 1):
        cache.learn(number, [("a", "ok", False)], has_changed=has_changed)
        assert cache.version == number
        assert cache.fresh("a").iteration == number
    cache.learn(4, [("b", "1", False)])
    cache.learn(5, [("a", "ok", False)], has_changed=True)
    assert cache.fresh("b") is None


def test_an_iteration_without_results_changes_nothing(cache):
    learn(cache, {"a": "1"}, {})
    assert cache.version == 1
    assert cache.fresh("a") is not None


def test_when_the_user_has_spoken_everything_may_be_asked_again(cache):
    learn(cache, {"a": "1"}, {"a": "2"})
    cache.new_turn()
    assert (cache.fresh("a"), cache.latest("a"), cache.version) == (None, None, 3)
    learn(cache, {"a": "1"})
    assert cache.version == 4


def test_what_came_before_the_user_spoke_is_new_when_it_comes_again(cache):
    learn(cache, {"a": "1"}, {"a": "2"})
    cache.new_turn()
    learn(cache, {"a": "2"}, {"a": "1"})
    assert cache.version == 5


ITERATIONS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", "3", "!E"])), max_size=8
)


@given(ITERATIONS)
def test_the_version_rises_just_where_a_call_brings_what_it_never_brought(iterations):
    cache, seen, version, last = ResultCache(), set(), 0, {}
    for number, results in enumerate(iterations, 1):
        is_new = not set(results.items()) <= seen
        seen.update(results.items())
        version += is_new
        cache.learn(number, [(key, text, text == "!E") for key, text in results.items()])
        last.update({key: (version, number, text, text == "!E") for key, text in results.items()})
        assert cache.version == version
        for key in "abc":
            assert cache.latest(key) == last.get(key)
            is_known = key in last and last[key][0] == version and not last[key][3]
            assert cache.fresh(key) == (last[key] if is_known else None)


@given(ITERATIONS, ITERATIONS)
def test_a_run_that_was_put_aside_as_json_goes_on_with_what_it_knew(before, after):
    cache, restored = ResultCache(), ResultCache()
    learn(cache, *before)
    restored.restore(json.loads(json.dumps(cache.as_json())))
    for one in (cache, restored):
        learn(one, *after)
    assert restored.as_json() == cache.as_json()
    assert all(restored.fresh(key) == cache.fresh(key) for key in "abc")
