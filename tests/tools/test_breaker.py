"""A shared circuit breaker: closed, open, half-open, and which outcomes change its state."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import OptionError
from treadle.tools import BreakerAnswer, BreakerState, CircuitBreaker

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


class Tried:
    """A breaker whose calls are made one after another at the times that are given."""

    def __init__(self, threshold=3, cool_down=30.0):
        self.breaker = CircuitBreaker(threshold, cool_down)
        self.calls = 0

    @property
    def state(self):
        return self.breaker.states.get("t", CLOSED)

    def call(self, error=None, at=0.0):
        """Make a call that ends at once; return whether it was admitted."""
        self.calls += 1
        name = f"call {self.calls}"
        if self.breaker.admit("t", name, at).error is not None:
            return False
        self.breaker.record("t", name, error, at)
        return True

    def fails(self, times, error="E", at=0.0):
        return [self.call(error, at) for _ in range(times)]

    def opened(self, at=0.0):
        self.fails(self.breaker.threshold, at=at)
        assert self.state is OPEN
        return self.breaker


@pytest.fixture
def tried():
    return Tried()


class TestClosed:
    """Calls are admitted, and failures are counted."""

    def test_the_defaults_are_three_failures_and_half_a_minute(self):
        assert (CircuitBreaker().threshold, CircuitBreaker().cool_down) == (3, 30.0)

    def test_each_tool_has_its_own_count(self, tried):
        tried.opened()
        assert tried.breaker.admit("other", "x", 0.0).error is None
        tried.breaker.record("other", "x", "E", 0.0)
        assert tried.breaker.states == {"t": OPEN, "other": CLOSED}


class TestOpen:
    """No call is admitted until the cool-down is over."""

    @pytest.mark.parametrize(("at", "goes"), [(129.9, False), (130.0, True), (500.0, True)])
    def test_after_the_cool_down_one_call_is_admitted(self, tried, at, goes):
        tried.opened(at=100.0)
        assert tried.call(at=at) is goes

    @pytest.mark.parametrize("error", [None, "E", "other"])
    def test_calls_that_started_before_it_opened_do_not_count(self, tried, error):
        """Neither does a success close it, nor does a failure make the cool-down longer."""
        breaker = tried.opened(at=100.0)
        assert breaker.record("t", "an early one", error, 120.0) == BreakerAnswer(OPEN, OPEN)
        assert breaker.admit("t", "x", 130.0).error is None


class TestHalfOpen:
    """One call is admitted, to probe whether the tool works again."""

    @pytest.fixture
    def probing(self, tried):
        """A breaker that admitted the call ``probe`` at 130."""
        breaker = tried.opened(at=100.0)
        assert breaker.admit("t", "probe", 130.0) == BreakerAnswer(OPEN, HALF_OPEN)
        return breaker

    def test_a_probe_that_fails_opens_it_for_another_cool_down(self, probing):
        assert probing.record("t", "probe", "new error", 135.0) == BreakerAnswer(HALF_OPEN, OPEN)
        assert probing.admit("t", "x", 164.9).error == "new error"
        assert probing.admit("t", "x", 165.0).error is None

    @pytest.mark.parametrize("error", [None, "E"])
    def test_calls_that_are_not_the_probe_do_not_count(self, probing, error):
        assert probing.record("t", "an early one", error, 131.0) == BreakerAnswer(
            HALF_OPEN, HALF_OPEN
        )
        assert probing.admit("t", "another", 131.0).error == "E"

    def test_a_probe_that_never_ends_is_replaced_after_a_cool_down(self, probing):
        assert probing.admit("t", "second probe", 159.9).error == "E"
        assert probing.admit("t", "second probe", 160.0).error is None
        assert probing.record("t", "probe", None, 161.0) == BreakerAnswer(HALF_OPEN, HALF_OPEN)
        assert probing.record("t", "second probe", None, 161.0) == BreakerAnswer(HALF_OPEN, CLOSED)

    def test_a_withdrawn_probe_admits_the_next_call_at_once(self, probing):
        assert probing.release("t", "probe") == BreakerAnswer(HALF_OPEN, OPEN)
        assert probing.states == {"t": OPEN}
        assert probing.admit("t", "another", 131.0).error is None
        assert probing.record("t", "probe", None, 132.0) == BreakerAnswer(HALF_OPEN, HALF_OPEN)

    @pytest.mark.parametrize(("tool", "call"), [("t", "another"), ("other", "probe")])
    def test_only_the_probe_can_be_withdrawn(self, probing, tool, call):
        answer = probing.release(tool, call)
        assert answer.before is answer.after
        assert probing.states == {"t": HALF_OPEN}
        assert probing.admit("t", "x", 131.0).error == "E"


@pytest.mark.parametrize(
    ("option", "wrong", "expected"),
    [
        ("threshold", [0, -1, 1.0, "3", None, True], "a whole number of at least 1"),
        ("cool_down", [-0.1, "30", None, float("nan")], "a number of seconds of at least 0"),
    ],
)
def test_the_options_are_numbers(option, wrong, expected):
    for value in wrong:
        with pytest.raises(OptionError) as caught:
            CircuitBreaker(**{option: value})
        assert str(caught.value) == f"{option}: expected {expected}, got {value!r}"


class TestThreads:
    """Runs in other threads share a breaker."""

    def in_threads(self, work, count=16):
        ready, results = threading.Barrier(count, timeout=10), []

        def run(number):
            ready.wait()
            results.append(work(number))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(results) == count
        return results

    def test_of_concurrent_calls_one_is_the_probe(self, tried):
        breaker = tried.opened()
        for attempt in range(1, 51):
            now = 30.0 * attempt
            admissions = self.in_threads(
                lambda number, now=now: breaker.admit("t", str(number), now), 4
            )
            assert [one.error for one in admissions].count(None) == 1

    def test_no_failure_is_lost(self):
        breaker = CircuitBreaker(threshold=16 * 200)

        def fail(number):
            return [breaker.record("t", f"{number}/{n}", "E", 0.0).after for n in range(200)]

        moves = [state for after in self.in_threads(fail) for state in after]
        assert moves.count(OPEN) == 1
        assert breaker.states == {"t": OPEN}


OUTCOMES = st.lists(
    st.tuples(st.sampled_from([None, "E", "F"]), st.sampled_from([0.0, 10.0, 30.0]), st.booleans()),
    max_size=30,
)


@given(OUTCOMES, st.integers(1, 3))
def test_it_opens_only_after_equal_failures_and_admits_one_probe_per_cool_down(outcomes, threshold):
    """Calls come one after another, some time apart; some of them never end."""
    tried, now, alike, last_through = Tried(threshold), 0.0, [], None
    for error, apart, ends in outcomes:
        now += apart
        before = tried.state
        tried.calls += 1
        name = str(tried.calls)
        goes = tried.breaker.admit("t", name, now).error is None
        if before is CLOSED:
            assert goes
        elif goes:
            assert now - last_through >= 30.0
        if goes:
            last_through = now
        if goes and ends:
            after = tried.breaker.record("t", name, error, now).after
            alike = [*alike, error] if alike and alike[-1] == error else [error]
            if before is CLOSED:
                assert (after is OPEN) is (error is not None and len(alike) >= threshold)
            else:
                assert after is (CLOSED if error is None else OPEN)
            if after is not before:
                alike = []
