"""The results of a turn: a call that would return nothing new is answered from the cache."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.codec import decode, encode
from treadle.tools import CachedResult, Learned, ResultCache


@pytest.fixture
def cache():
    return ResultCache()


def learn(cache, *iterations):
    """Add iterations, from the first on: each ``{call: content}``; content with ``!`` is an error."""
    for number, results in enumerate(iterations, 1):
        cache.learn(number, [(key, text, text.startswith("!")) for key, text in results.items()])


def test_a_call_that_was_never_made_has_no_result(cache):
    assert (cache.fresh("a"), cache.latest("a"), cache.version) == (None, None, 0)


def test_a_result_is_fresh_until_another_result_is_new(cache):
    learn(cache, {"a": "1"})
    assert cache.fresh("a") == CachedResult(
        1, iteration=1, content="1", is_error=False, is_repeated=False
    )
    learn(cache, {"b": "2"})
    assert cache.fresh("a") is None
    assert cache.fresh("b").content == "2"


def test_the_latest_result_is_available_for_the_rest_of_the_turn(cache):
    learn(cache, {"a": "1"}, {"b": "2"})
    assert cache.latest("a") == CachedResult(
        1, iteration=1, content="1", is_error=False, is_repeated=False
    )


def test_the_results_of_one_iteration_have_one_version(cache):
    learn(cache, {"a": "1", "b": "2", "c": "3"})
    assert cache.version == 1
    assert all(cache.fresh(key) for key in "abc")


def test_a_repeated_result_is_not_new(cache):
    """Fresh results stay fresh, and that of the repeated call is fresh again."""
    learn(cache, {"a": "1"}, {"b": "2"}, {"a": "1"})
    assert cache.version == 2
    assert cache.fresh("b").iteration == 2
    assert cache.fresh("a") == CachedResult(
        2, iteration=3, content="1", is_error=False, is_repeated=True
    )


@pytest.mark.parametrize(
    ("results", "is_repeated"),
    [("1", False), ("11", True), ("12", False), ("122", True), ("121", False), ("1!1", False)],
)
def test_a_result_is_repeated_if_the_call_returned_the_same_the_time_before(
    cache, results, is_repeated
):
    for number, content in enumerate(results, 1):
        learn(cache, {"a": content})
        cache.learn(number, [("b", f"in between {number}", False)])
    assert cache.latest("a").is_repeated is is_repeated


def test_an_error_with_the_text_of_a_result_does_not_repeat_it(cache):
    for number, is_error in enumerate([False, True, False]):
        cache.learn(number, [("a", "same", is_error)])
        assert not cache.latest("a").is_repeated


def test_results_from_before_a_change_in_the_same_iteration_are_outdated(cache):
    """read, read another, write, read another: only the read before the write is outdated."""
    results = [("r", "1", False), ("s", "2", False), ("w", "ok", False), ("s", "2", False)]
    cache.learn(1, results, Learned(has_changed=True, outdated=2))
    assert cache.fresh("r") is None
    assert [bool(cache.fresh(key)) for key in "ws"] == [True, True]


def test_another_result_of_the_same_call_is_new(cache):
    learn(cache, {"a": "1"}, {"b": "2"}, {"a": "other"})
    assert cache.version == 3
    assert cache.fresh("b") is None
    assert cache.fresh("a").content == "other"


def test_a_result_that_the_call_returned_long_before_is_not_new(cache):
    learn(cache, {"a": "1"}, {"a": "2"}, {"a": "3"})
    assert cache.version == 3
    learn(cache, {"a": "1"}, {"a": "2"}, {"a": "3"})
    assert cache.version == 3


def test_the_same_text_of_another_call_is_new(cache):
    learn(cache, {"a": "1"}, {"b": "1"})
    assert cache.version == 2


def test_one_new_result_among_old_ones_raises_the_version(cache):
    learn(cache, {"a": "1", "b": "2"}, {"a": "1", "b": "new"})
    assert cache.version == 2
    assert cache.fresh("a").iteration == 2


def test_an_error_is_never_fresh_so_the_call_may_be_retried(cache):
    learn(cache, {"a": "!broken"})
    assert cache.fresh("a") is None
    assert cache.latest("a").is_error


def test_a_new_error_counts_as_a_new_result(cache):
    learn(cache, {"a": "1"}, {"b": "!broken"})
    assert cache.fresh("a") is None
    learn(cache, {"a": "1"}, {"b": "!broken"})
    assert cache.fresh("a") is not None


def test_a_call_that_fails_after_a_result_may_be_made_again(cache):
    learn(cache, {"a": "1"}, {"a": "!broken"})
    assert cache.fresh("a") is None


def test_a_result_with_has_changed_is_always_new(cache):
    """Even if the call returned ``ok`` before: other calls may return something else now."""
    for number, has_changed in enumerate([False, True, True], 1):
        cache.learn(number, [("a", "ok", False)], Learned(has_changed=has_changed))
        assert cache.version == number
        assert cache.fresh("a").iteration == number
    cache.learn(4, [("b", "1", False)])
    cache.learn(5, [("a", "ok", False)], Learned(has_changed=True))
    assert cache.fresh("b") is None


def test_an_iteration_without_results_changes_nothing(cache):
    learn(cache, {"a": "1"}, {})
    assert cache.version == 1
    assert cache.fresh("a") is not None


def test_a_new_turn_clears_the_results_and_raises_the_version(cache):
    learn(cache, {"a": "1"}, {"a": "2"})
    cache.new_turn()
    assert (cache.fresh("a"), cache.latest("a"), cache.version) == (None, None, 3)
    learn(cache, {"a": "1"})
    assert cache.version == 4


def test_a_result_of_an_earlier_turn_is_new_again_in_the_next(cache):
    learn(cache, {"a": "1"}, {"a": "2"})
    cache.new_turn()
    learn(cache, {"a": "2"}, {"a": "1"})
    assert cache.version == 5


ITERATIONS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", "3", "!E"])), max_size=8
)


@given(ITERATIONS)
def test_the_version_rises_only_when_a_call_returns_a_new_result(iterations):
    cache, seen, version, last = ResultCache(), set(), 0, {}
    for number, results in enumerate(iterations, 1):
        is_new = not set(results.items()) <= seen
        seen.update(results.items())
        version += is_new
        cache.learn(number, [(key, text, text == "!E") for key, text in results.items()])
        for key, text in results.items():
            is_repeated = key in last and last[key][2] == text
            last[key] = (version, number, text, text == "!E", is_repeated)
        assert cache.version == version
        for key in "abc":
            assert cache.latest(key) == last.get(key)
            is_known = key in last and last[key][0] == version and not last[key][3]
            assert cache.fresh(key) == (last[key] if is_known else None)


@given(ITERATIONS, ITERATIONS)
def test_a_cache_restored_from_json_continues_as_the_original(before, after):
    cache = ResultCache()
    learn(cache, *before)
    restored = decode(json.loads(json.dumps(encode(cache))))
    for one in (cache, restored):
        learn(one, *after)
    assert restored == cache
    assert all(restored.fresh(key) == cache.fresh(key) for key in "abc")
