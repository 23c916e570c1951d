"""`RedisRates`: the limits of `RateLimit`, shared by processes, and counted as in one process."""

import asyncio
import json
import logging
import subprocess
import sys

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.redis_server import RedisServer

from treadle import Loop, Usage
from treadle.effects import Call, Sleep, map_effects
from treadle.errors import OptionError
from treadle.providers.middleware import CountedRequest, RateLimit, RedisRates
from treadle.providers.middleware.rate_limit import _OwnRates

from .conftest import check_replay
from .flaky import Named, TooManyError

PROGRAM = """
import json, sys
from treadle import Loop
from treadle.effects import Call, Sleep, map_effects
from treadle.providers.middleware import RateLimit, RedisRates

url, options, runs = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
sent = []

def model(messages):
    sent.append(1)
    return "Hi."

def refuse(seconds):
    raise TimeoutError(seconds)

def no_waiting(steps):
    return map_effects(steps, lambda e: Call(refuse, e.seconds) if isinstance(e, Sleep) else e)

limit = RateLimit(store=RedisRates(url), **options)
loop = Loop(llm_send_fn=model, model_middleware=[limit], middleware=[no_waiting], max_retries=0)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(runs):
    loop.run_sync("x" * 36)
print(len(sent))
"""
"""Runs a loop several times, and prints how many requests were sent without waiting."""


def sent_by_two_processes(url, options, runs):
    """How many requests each of two processes sends, of those that it may try at the same time as the other."""
    command = [sys.executable, "-c", PROGRAM, url, json.dumps(options), str(runs)]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n", process.stderr.read()
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        ended = [process.communicate(timeout=60) for process in processes]
        assert [error for _, error in ended] == ["", ""]
        return [int(out) for out, _ in ended]
    finally:
        for process in processes:
            process.kill()
            process.wait()


class TestProcesses:
    def test_two_processes_share_a_limit_of_requests(self, redis_url):
        sent = sent_by_two_processes(redis_url, {"requests_per_minute": 30}, runs=25)
        assert sum(sent) == 30
        assert min(sent) >= 5  # each had at most 25 of them

    def test_two_processes_share_a_limit_of_tokens(self, redis_url):
        """A request is 10 tokens, and the model does not report its usage."""
        sent = sent_by_two_processes(redis_url, {"tokens_per_minute": 305}, runs=25)
        assert sum(sent) == 30

    def test_a_process_that_has_ended_still_counts(self, redis_url):
        assert sum(sent_by_two_processes(redis_url, {"requests_per_minute": 30}, runs=20)) == 30
        assert sent_by_two_processes(redis_url, {"requests_per_minute": 31}, runs=1) in (
            [1, 0],
            [0, 1],
        )

    def test_two_limits_with_two_prefixes_are_separate(self, redis_url):
        for prefix in ("a", "b"):
            rates = RedisRates(redis_url, prefix=prefix)
            assert rates.admit("openai", CountedRequest(1), 1, None, 0.0) == 0
            assert rates.admit("other", CountedRequest(1), 1, None, 0.0) == 0
            assert rates.admit("openai", CountedRequest(1), 1, None, 0.0) > 0


class Clock:
    """A clock that sleeping advances; for Redis, by moving what it has into the past."""

    def __init__(self, url):
        self.client = redis.Redis.from_url(url)
        self.now = 1000.0

    def advance(self, seconds):
        self.now += seconds
        for key in self.client.keys("*:sent:*"):
            for name, score in self.client.zrange(key, 0, -1, withscores=True):
                self.client.zadd(key, {name: score - seconds * 1e6})
        for key in self.client.keys("*:paused:*"):
            left = self.client.pttl(key) - int(seconds * 1000)
            self.client.pexpire(key, left)

    def middleware(self, steps):
        return map_effects(steps, self._see)

    def _see(self, effect):
        return Call(self.advance, effect.seconds) if isinstance(effect, Sleep) else effect

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()


@pytest.fixture
def clock(redis_url):
    with Clock(redis_url) as clock:
        yield clock


class TestWindow:
    """The same as in `test_limits`, where time passes in Redis."""

    def sent(self, clock, limit, number, model=None, **options):
        model, times = model or Named("m"), []

        def noting(request, send):
            times.append(round(clock.now - 1000))
            return (yield from send(request))

        loop = Loop(model_middleware=[limit, noting], middleware=[clock.middleware], **options)
        for _ in range(number):
            loop.run_sync("x" * 36, model)
        return times

    def test_retry_after_makes_all_requests_wait(self, clock, redis_url):
        limit, other = (RateLimit(store=RedisRates(redis_url)) for _ in range(2))
        times = self.sent(clock, limit, 1, Named("m", TooManyError(20)), max_retries=0)
        times += self.sent(clock, other, 2)
        assert times == [0, 20, 20]
        limit._store.pause("p", 5.0, 0.0)
        limit._store.pause("p", 1.0, 0.0)  # a shorter pause does not end the first
        assert 1 < limit._store.admit("p", CountedRequest(1), None, None, 0.0) <= 5

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        steps=st.lists(
            st.tuples(
                st.sampled_from([0, 0, 7, 14, 35, 70]), st.integers(0, 60), st.integers(0, 80)
            ),
            max_size=15,
        ),
        requests=st.none() | st.integers(1, 5),
        tokens=st.none() | st.integers(1, 100),
    )
    def test_it_admits_what_one_process_would_admit(
        self, clock, redis_url, steps, requests, tokens
    ):
        """Gaps are multiples of seven seconds, since some real milliseconds pass as well."""
        clock.client.flushall()
        shared, own = RedisRates(clock.client), _OwnRates()
        for gap, estimated, used in steps:
            clock.advance(gap)
            sent = [CountedRequest(estimated), CountedRequest(estimated)]
            here = own.admit("p", sent[0], requests, tokens, clock.now)
            there = shared.admit("p", sent[1], requests, tokens, clock.now)
            assert there == pytest.approx(here, abs=3)
            assert (there == 0) == (here == 0)
            if used and not here:
                own.correct("p", sent[0], used)
                shared.correct("p", sent[1], used)

    def test_an_admission_that_is_sent_twice_counts_once(self, redis_url):
        rates, sent = RedisRates(redis_url), CountedRequest(10)
        assert rates.admit("p", sent, 2, 20, 0.0) == rates.admit("p", sent, 2, 20, 0.0) == 0
        assert rates.admit("p", CountedRequest(10), 2, 20, 0.0) == 0
        assert rates.admit("p", CountedRequest(10), 2, 20, 0.0) > 50

    def test_a_clock_that_is_put_back_keeps_no_request_longer_than_a_minute(self, clock, redis_url):
        rates = RedisRates(redis_url)
        assert rates.admit("p", CountedRequest(10), 1, 10, 0.0) == 0
        clock.advance(-3600)
        assert rates.admit("p", CountedRequest(10), 1, 10, 0.0) == 0
        assert 59 < rates.admit("p", CountedRequest(10), 1, 10, 0.0) <= 60

    def test_its_keys_expire(self, clock, redis_url):
        rates = RedisRates(redis_url)
        rates.admit("p", CountedRequest(10), 1, None, 0.0)
        rates.pause("p", 20.0, 0.0)
        keys = clock.client.keys()
        assert sorted(keys) == [b"treadle:paused:p", b"treadle:sent:p", b"treadle:tokens:p"]
        assert all(0 < clock.client.ttl(key) <= 61 for key in keys)


class TestRuns:
    def test_a_loop_waits_for_redis_in_a_thread(self, redis_url):
        """Other tasks of the event loop go on."""
        threads = []

        class Rates(RedisRates):
            def admit(self, *args):
                with pytest.raises(RuntimeError):
                    asyncio.get_running_loop()
                threads.append(1)
                return super().admit(*args)

        limit = RateLimit(requests_per_minute=2, store=Rates(redis_url))
        result = asyncio.run(Loop(llm_send_fn=Named("m"), model_middleware=[limit]).run("Hi"))
        assert result.unwrap().text == "from m"
        assert threads == [1]

    def test_a_replay_needs_the_effects_alone(self, driven, redis_url):
        limit = RateLimit(tokens_per_minute=10_000, store=RedisRates(redis_url))
        model = Named("m", TooManyError(0.01), usage=Usage(1, 1))
        check_replay(driven, "Hi", model, lambda: {"model_middleware": [limit]})

    def test_without_redis_requests_are_counted_in_the_process(self, tmp_path, caplog):
        """And in Redis again when it is back."""
        caplog.set_level(logging.WARNING, "treadle.model")
        slept = []

        def see(effect):
            return Call(slept.append, effect.seconds) if isinstance(effect, Sleep) else effect

        with RedisServer(tmp_path) as server:
            url = f"redis://:secret@127.0.0.1:{server.port}/0"
            store = RedisRates(url.replace(":secret@", ""))
            limit = RateLimit(requests_per_minute=2, store=store)
            options = {"model_middleware": [limit], "middleware": [lambda s: map_effects(s, see)]}
            loop = Loop(llm_send_fn=Named("m"), **options)
            assert loop.run_sync("Hi").stop_reason == "answered"
            server.kill()
            assert loop.run_sync("Hi").stop_reason == "answered"
            assert "requests are counted in this process alone" in caplog.text
            assert f"redis://127.0.0.1:{server.port}/0" in caplog.text
            server.start()
            caplog.clear()
            assert loop.run_sync("Hi").stop_reason == "answered"
            with redis.Redis(port=server.port) as client:
                assert client.zcard("treadle:sent:p") == 1
        assert (slept, caplog.text) == ([], "")

    def test_what_is_no_redis_is_refused(self):
        with pytest.raises(OptionError, match=r"RedisRates: expected a URL or a redis\.Redis"):
            RedisRates(6379)
