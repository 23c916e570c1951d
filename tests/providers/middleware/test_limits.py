"""`ConcurrencyLimit` and `RateLimit`: shared by runs, fair, and without lost places."""

import asyncio
import os
import threading
import time

import anyio
import pytest
from tests.clocks import SleepClock

from treadle import Loop, Response, RunHandle, Usage
from treadle.errors import OptionError
from treadle.providers.middleware import ConcurrencyLimit, RateLimit

from .flaky import BusyError, Named, TooManyError


async def at_once(loop, number, texts=None):
    """Run a loop several times at the same time; return the results."""
    results = {}

    async def one(place):
        results[place] = await loop.run(texts[place] if texts else f"Hi {place}")

    async with anyio.create_task_group() as group:
        for place in range(number):
            group.start_soon(one, place)
            await anyio.sleep(0.002)  # they arrive in this order
    return results


BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class TestConcurrency:
    @BACKENDS
    def test_it_limits_the_requests_under_way(self, backend):
        model = Named("m", seconds=0.02)
        loop = Loop(llm_send_fn=model, model_middleware=[ConcurrencyLimit(2)])
        results = anyio.run(at_once, loop, 6, backend=backend)
        assert [one.unwrap().text for one in results.values()] == ["from m"] * 6
        assert model.most == 2

    @BACKENDS
    def test_the_others_wait_in_order_of_arrival(self, backend):
        model = Named("m", seconds=0.02)
        loop = Loop(llm_send_fn=model, model_middleware=[ConcurrencyLimit(1)])
        anyio.run(at_once, loop, 6, backend=backend)
        assert [sent[0]["content"] for sent in model.sent] == [f"Hi {n}" for n in range(6)]

    def test_it_is_shared_by_threads_and_event_loops(self):
        model = Named("m", seconds=0.02)
        loop = Loop(llm_send_fn=model, model_middleware=[ConcurrencyLimit(1)])
        runs = [lambda: loop.run_sync("Hi"), lambda: asyncio.run(loop.run("Hi"))] * 2
        runs.append(lambda: anyio.run(loop.run, "Hi", backend="trio"))
        threads = [threading.Thread(target=run) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert (model.most, len(model.sent)) == (1, 5)

    @BACKENDS
    def test_a_stream_has_its_place_until_its_end(self, backend):
        model = Named("m", ["a", 0.05, "b"], ["c", 0.05, "d"])
        loop = Loop(llm_send_fn=model, model_middleware=[ConcurrencyLimit(1)])
        results = anyio.run(at_once, loop, 2, backend=backend)
        assert [one.unwrap().text for one in results.values()] == ["ab", "cd"]
        assert model.at[1] - model.at[0] >= 0.04

    @BACKENDS
    def test_a_cancelled_run_leaves_its_place(self, backend):
        """Whether it waits or has its turn; and so does one that failed."""
        model = Named("m", seconds=0.05)
        limit = ConcurrencyLimit(1)
        loop = Loop(llm_send_fn=model, model_middleware=[limit], max_retries=0)

        async def main():
            async with anyio.create_task_group() as group:
                group.start_soon(loop.run, "Hi")
                await anyio.sleep(0.01)
                waiting = RunHandle()
                results = []

                async def wait():
                    results.append(await loop.with_options(handle=waiting).run("wait"))

                group.start_soon(wait)
                await anyio.sleep(0.01)
                waiting.cancel()
                while not results:
                    await anyio.sleep(0.001)
                assert len(model.sent) == 1
                group.cancel_scope.cancel()
            model.script[:] = [BusyError()]
            assert (await loop.run("Hi")).stop_reason == "llm_error"
            return await loop.run("Hi")

        assert anyio.run(main, backend=backend).unwrap().text == "from m"
        assert limit._turns._queues == {}
        assert "wait" not in str(model.sent)

    def test_each_provider_or_model_has_its_own(self):
        for per, most in (("provider", 1), ("model", 2)):
            models = [Named("a", seconds=0.03), Named("b", seconds=0.03), Named("c", provider="q")]
            limit, running, peak = ConcurrencyLimit(1, per=per), set(), []

            def counted(request, send, running=running, peak=peak):
                running.add(request.model.name)
                peak.append(len(running - {"c"}))
                answer = yield from send(request)
                running.discard(request.model.name)
                return answer

            async def main(models=models, limit=limit, counted=counted):
                async with anyio.create_task_group() as group:
                    for model in models:
                        options = {"model_middleware": [limit, counted]}
                        group.start_soon(Loop(llm_send_fn=model, **options).run, "Hi")

            anyio.run(main)
            assert max(peak) == most

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    def test_a_forked_child_has_its_own(self):
        limit = ConcurrencyLimit(1)
        loop = Loop(llm_send_fn=lambda messages: "Hi.", model_middleware=[limit])
        limit._turns.enter("other")  # another thread of the parent
        child = os.fork()
        if child == 0:
            os._exit(0 if loop.run_sync("Hi").stop_reason == "answered" else 1)
        assert os.waitpid(child, 0)[1] == 0

    @pytest.mark.parametrize("given", [0, -1, True, 1.5, "2"])
    def test_a_wrong_number_is_refused(self, given):
        with pytest.raises(OptionError, match="ConcurrencyLimit: expected a number of at least 1"):
            ConcurrencyLimit(given)


class TestRate:
    @pytest.fixture
    def clock(self):
        return SleepClock()

    def sent(self, clock, limit, number, model=None, **options):
        """Run several times one after another; return when each request was sent."""
        model, times = model or Named("m"), []

        def noting(request, send):
            times.append(clock.now - 1000)
            return (yield from send(request))

        loop = Loop(model_middleware=[limit, noting], middleware=[clock.middleware], **options)
        for _ in range(number):
            loop.run_sync("x" * 36, model)
        return times

    def test_no_minute_has_more_requests(self, clock):
        times = self.sent(clock, RateLimit(requests_per_minute=2), 5)
        assert times == [0, 0, 60, 60, 120]

    def test_requests_that_are_spread_do_not_wait(self, clock):
        limit = RateLimit(requests_per_minute=2)
        times = []
        for pause in (0, 40, 30, 30):
            clock.now += pause
            times += self.sent(clock, limit, 1)
        assert times == [0, 40, 70, 100]
        assert clock.slept == []

    def test_tokens_are_estimated_before_and_corrected_after(self, clock):
        """A request of 36 characters, and its role, is 10 tokens; the usage says 50 and then 20."""
        limit = RateLimit(tokens_per_minute=100)
        answers = [Response("a", usage=Usage(30, 20)), Response("b", usage=Usage(10, 10))]
        times = self.sent(clock, limit, 5, Named("m", *answers, usage=Usage(5, 5)))
        assert times == [0, 0, 0, 0, 0]  # 50, 20, 10, 10, and then 10 are estimated
        assert self.sent(clock, limit, 2, Named("m", usage=Usage(5, 5))) == [60, 60]

    def test_the_estimate_counts_if_the_usage_is_unknown(self, clock):
        assert self.sent(clock, RateLimit(tokens_per_minute=25), 3) == [0, 0, 60]

    def test_a_request_that_is_larger_than_the_limit_is_sent_alone(self, clock):
        assert self.sent(clock, RateLimit(tokens_per_minute=4), 3) == [0, 60, 120]

    def test_retry_after_makes_all_requests_wait(self, clock):
        limit = RateLimit()
        times = self.sent(clock, limit, 1, Named("m", TooManyError(20)), max_retries=0)
        times += self.sent(clock, limit, 2)
        assert times == [0, 20, 20]
        assert self.sent(clock, limit, 1, Named("q", provider="q")) == [20]

    def test_a_server_cannot_stop_all_requests_for_long(self, clock):
        limit = RateLimit()
        self.sent(clock, limit, 1, Named("m", TooManyError(86_400)), max_retries=0)
        assert self.sent(clock, limit, 1) == [60]

    def test_an_error_of_another_kind_does_not(self, clock):
        class Down(TooManyError):
            status_code = 503

        limit = RateLimit()
        self.sent(clock, limit, 1, Named("m", Down(20)), max_retries=0)
        assert self.sent(clock, limit, 1) == [0]

    def test_a_clock_that_is_put_back_keeps_no_request_longer_than_a_minute(self, clock):
        limit = RateLimit(requests_per_minute=1)
        self.sent(clock, limit, 1)
        clock.now -= 3600
        assert self.sent(clock, limit, 2) == [-3600, -3540]

    @BACKENDS
    def test_waiting_requests_are_sent_in_order_of_arrival(self, backend):
        limit, model = RateLimit(), Named("m", TooManyError(0.1))
        loop = Loop(llm_send_fn=model, model_middleware=[limit], max_retries=0)
        texts = ["first", *map(str, range(5))]
        anyio.run(at_once, loop, 6, texts, backend=backend)
        assert [sent[0]["content"] for sent in model.sent] == texts
        assert model.at[1] - model.at[0] >= 0.09

    @BACKENDS
    def test_a_cancelled_run_leaves_the_queue(self, backend):
        limit, model = RateLimit(requests_per_minute=1), Named("m")
        loop = Loop(llm_send_fn=model, model_middleware=[limit])

        async def main():
            await loop.run("Hi")
            with anyio.move_on_after(0.05):
                async with anyio.create_task_group() as group:
                    group.start_soon(loop.run, "Hi")
                    group.start_soon(loop.run, "Hi")
            return await loop.run("Hi", Named("q", provider="q"))

        started = time.monotonic()
        assert anyio.run(main, backend=backend).unwrap().text == "from q"
        assert time.monotonic() - started < 5
        assert limit._turns._queues == {}
        assert len(model.sent) == 1

    @pytest.mark.parametrize("given", [{"requests_per_minute": 0}, {"tokens_per_minute": 1.5}])
    def test_a_wrong_number_is_refused(self, given):
        with pytest.raises(OptionError, match=f"RateLimit: {next(iter(given))}: expected"):
            RateLimit(**given)

    @pytest.mark.parametrize("kind", [RateLimit, lambda per: ConcurrencyLimit(1, per=per)])
    def test_an_unknown_key_is_refused(self, kind):
        with pytest.raises(OptionError, match='per: expected "provider" or "model", got \'run\''):
            kind(per="run")
