"""`benchmarks/scaling.py` agrees with closed-form results, and each of its parameters has its effect."""

import dataclasses
import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.providers.middleware import CountedRequest
from treadle.providers.middleware.rate_limit import _Window as RealWindow

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import scaling
from scaling import DAY, HOUR, MINUTE, Parameters, Report, Simulation

QUEUE_ONLY = {
    "latency": "exponential",
    "peak": 1.0,
    "iterations": 1.0,
    "requests_per_minute": 0,
    "tokens_per_minute": 0,
    "approval_share": 0.0,
    "crashes": 0.0,
    "durability": "none",
}
"""Runs of one request that takes an exponential time, and nothing else: a queue M/M/c."""


def simulated(**changes):
    return Report(Simulation(Parameters(**changes)).run())


def mean(values):
    return math.fsum(values) / len(values)


class TestClosedForms:
    def test_erlang_c_has_its_known_values(self):
        assert scaling.erlang_c(1, 0.7) == pytest.approx(0.7)
        assert scaling.erlang_c(2, 1.0) == pytest.approx(1 / 3)
        assert scaling.erlang_c(10, 8.0) == pytest.approx(0.4092, abs=1e-4)
        assert scaling.erlang_c(3, 3.0) == 1.0

    @pytest.mark.parametrize(("workers", "concurrency", "load"), [(1, 1, 0.6), (2, 5, 8.5)])
    def test_the_waits_are_those_of_a_queue_with_exponential_times(
        self, workers, concurrency, load
    ):
        slots, seconds = workers * concurrency, 2.0
        size = {"workers": workers, "concurrency": concurrency}
        runs_per_day = load / seconds * DAY
        times = {"model_seconds": seconds * math.log(2), "to_hour": 24.0 * 200_000 / runs_per_day}
        report = simulated(**QUEUE_ONLY, **size, **times, runs_per_day=runs_per_day)
        waiting = scaling.erlang_c(slots, load)
        expected = waiting * seconds / (slots - load)
        assert mean(report.waits) == pytest.approx(expected, rel=0.06)
        assert mean([wait > 0 for wait in report.waits]) == pytest.approx(waiting, rel=0.03)
        p95 = math.log(waiting / 0.05) * seconds / (slots - load)
        assert scaling.percentile(report.waits, 95) == pytest.approx(p95, rel=0.06)

    def test_the_queue_and_the_slots_obey_the_law_of_little(self):
        """The mean number in a place is the arrival rate times the mean time in it, whatever the distributions."""
        steady = {"peak": 1.0, "crashes": 0.0, "approval_share": 0.0}
        report = simulated(runs_per_day=60_000.0, workers=2, concurrency=8, **steady)
        done = report.simulation
        rate = len(report.waits) / done.end
        assert mean(report.waits) > 1
        assert done.queue_area / done.end == pytest.approx(rate * mean(report.waits), rel=0.01)
        busy = rate * (report.slot_seconds + mean(report.limited))
        assert math.fsum(done.busy) / done.end == pytest.approx(busy, rel=0.01)

    def test_the_mean_number_of_occupied_slots_does_not_depend_on_the_distribution(self):
        """A queue M/G/infinity: it has as many runs as one with constant times of the same mean."""
        sigma = math.log(4.0) / scaling.Z95
        times = {
            "lognormal": {"model_p95": 8.0},
            "exponential": {"model_seconds": 2 * math.exp(sigma**2 / 2) * math.log(2)},
        }
        for latency, changes in times.items():
            options = {**QUEUE_ONLY, "latency": latency, "model_seconds": 2.0, **changes}
            report = simulated(**options, runs_per_day=100_000.0)
            occupied = math.fsum(report.simulation.busy) / report.simulation.end
            expected = 100_000 / DAY * 2 * math.exp(sigma**2 / 2)
            assert occupied == pytest.approx(expected, rel=0.02)
            assert report.waits[-1] == 0

    def test_the_workers_needed_keep_the_wait(self):
        options = {**QUEUE_ONLY, "model_seconds": 20.0, "runs_per_day": 100_000.0, "concurrency": 5}
        needed = simulated(**options, workers=100).workers_needed
        assert needed < 12
        enough = simulated(**options, workers=needed)
        assert scaling.percentile(enough.waits, 95) <= 1.0
        too_few = simulated(**options, workers=needed - 2)
        assert scaling.percentile(too_few.waits, 95) > 1.0


class TestLimits:
    @pytest.mark.parametrize(
        ("limited", "limit", "rate"),
        [("requests", {"requests_per_minute": 90}, 90), ("tokens", {"tokens_per_minute": 90_500}, 90_000)],
    )  # fmt: skip
    def test_a_limit_caps_the_throughput_at_exactly_its_rate(self, limited, limit, rate):
        sizes = {"prompt_tokens": 900, "added_tokens": 0, "output_tokens": 100}
        report = simulated(runs_per_day=100_000.0, to_hour=2.0, peak=1.0, **sizes, **limit)
        assert set(getattr(report.simulation, limited)[1:]) == {rate}

    def test_a_limit_that_is_not_reached_delays_no_request(self):
        report = simulated(runs_per_day=10_000.0, peak=1.0)
        assert report.limited[-1] == 0

    @given(
        st.lists(st.tuples(st.integers(0, 40), st.integers(1, 60)), max_size=40),
        st.integers(1, 5),
        st.integers(1, 100),
    )
    def test_requests_are_admitted_when_the_rate_limit_of_treadle_admits_them(
        self, arriving, requests, tokens
    ):
        mine, real = scaling.Window(requests, tokens), RealWindow()
        arrived = free = 0.0
        for gap, size in arriving:
            arrived += gap
            now = max(arrived, free)  # the library asks for one request after another
            while (delay := real.delay(now, size, requests, tokens)) > 0:
                now += delay
            one = CountedRequest(size)
            one.at = free = now
            real.sent.append(one)
            assert mine.admit(arrived, size) == now


class TestArrivals:
    @pytest.mark.parametrize("peak", [1.0, 1.5, 2.5, 6.0])
    def test_the_rates_of_a_day_have_the_given_mean_and_peak(self, peak):
        rates = scaling.daily_rates(Parameters(runs_per_day=86_400.0, peak=peak))
        assert mean(rates) == pytest.approx(1.0)
        assert max(rates) == pytest.approx(peak, rel=1e-6)
        assert rates.index(max(rates)) == (0 if peak == 1 else scaling.PEAK_HOUR * 60)

    def test_the_runs_of_the_hours_arrive(self):
        report = simulated(runs_per_day=100_000.0)
        assert report.simulation.arrived == pytest.approx(100_000, rel=0.01)
        given = simulated(runs_per_day=100_000.0, from_hour=6.0, to_hour=12.5).simulation
        rates = scaling.daily_rates(given.parameters)[6 * 60 : 12 * 60 + 30]
        assert given.arrived == pytest.approx(math.fsum(rates) * MINUTE, rel=0.03)
        assert given.end == 6.5 * HOUR


CRASHING = {
    "runs_per_day": 30_000.0, "from_hour": 12.0, "to_hour": 15.3, "workers": 4, "concurrency": 4,
    "crashes": 200.0, "approval_share": 0.1, "queue_bound": 20, "when_full": "defer",
}  # fmt: skip


class TestCounts:
    @pytest.mark.parametrize("durability", ["none", "journal", "temporal"])
    def test_no_run_and_no_slot_is_lost(self, durability):
        done = Simulation(Parameters(**CRASHING, durability=durability)).run()
        pending = [event for event in done._events if event[3].event == event[1]]
        kinds = [happen.__name__ for _, _, happen, _ in pending]
        driven = sum(map(len, done._driven))
        outside = sum(map(kinds.count, ("_ready", "_decided", "_admit")))
        assert min(done.interrupted, done.deferrals, done.approvals, len(done._queue)) > 0
        assert done.paused == kinds.count("_decided")
        assert done.arrived == len(done.durations) + len(done._queue) + driven + outside
        assert done._occupied == driven
        assert len(done._free) + driven + 4 * kinds.count("_restart") == 16

    @pytest.mark.parametrize("durability", ["none", "journal"])
    def test_each_request_is_for_an_iteration_or_repeats_one(self, durability):
        class Noting(Simulation):
            needed = 0

            def _ended(self, run):
                self.needed += run.iterations if run.done + 1 == run.iterations else 0
                super()._ended(run)

        done = Noting(Parameters(**CRASHING, durability=durability, tokens_per_minute=0)).run()
        alive = {event[3] for event in done._events if event[3].event == event[1]}
        alive.update(done._queue)
        needed = done.needed + sum(run.done + run.asking for run in alive)
        assert sum(done.requests) == needed + done.repeated
        assert (done.repeated > done.interrupted) == (durability == "none")

    def test_the_queue_is_served_when_a_worker_is_back(self):
        done, run = Simulation(Parameters(workers=1, concurrency=1)), scaling.Run(0.0, 1, 0)
        done._free.clear()
        done._ready(run)
        assert list(done._queue) == [run]
        done._restart(scaling.Run(0.0, 0, 0))
        assert (list(done._queue), list(done._free)) == ([], [])

    def test_the_duration_of_a_run_is_that_without_its_approval(self):
        report = simulated(**SMALL, approval_share=1.0, approval_hours=1.0)
        assert report.simulation.approvals > 1_000
        assert scaling.percentile(report.durations, 99) < 600

    def test_the_same_seed_gives_the_same_report(self):
        first, again = (simulated(**CRASHING, seed=7) for _ in range(2))
        assert list(first.rows()) == list(again.rows())
        assert list(simulated(**CRASHING, seed=8).rows()) != list(first.rows())

    def test_the_cost_is_that_of_the_tokens_and_the_workers(self):
        """One run in a day, of one iteration."""
        options = {**QUEUE_ONLY, "prompt_tokens": 1_000_000, "output_tokens": 1_000_000}
        report = simulated(**options, runs_per_day=10.0, workers=2, worker_price=0.5)
        runs = report.completed
        assert runs > 1
        assert report.model_cost == pytest.approx(runs * (0.25 + 2.0))
        assert report.worker_cost == pytest.approx(24.0)
        assert report.per_thousand == pytest.approx(1_000 * (report.model_cost + 24) / runs)


SMALL = {
    "runs_per_day": 24_000.0, "from_hour": 12.0, "to_hour": 15.0, "workers": 2, "concurrency": 8,
}  # fmt: skip
"""About 90 % of the slots are taken in these hours."""
CROWD = {"runs_per_day": 40_000.0}
DEFERRING = {"queue_bound": 10, "when_full": "defer"}
MANY = {"workers": 16, "concurrency": 2}
UNSTEADY = {"crashes": 200.0, "runs_per_day": 12_000.0}


def p95(values):
    return scaling.percentile(values, 95)


EFFECTS = {
    "runs_per_day": (1e4, 2e4, lambda r: r.simulation.arrived, {}),
    "from_hour": (14.0, 12.0, lambda r: r.simulation.arrived, {}),
    "to_hour": (13.0, 15.0, lambda r: r.simulation.arrived, {}),
    "peak": (1.5, 2.5, lambda r: max(r.simulation.arrivals), {}),
    "iterations": (3.0, 5.0, lambda r: r.slot_seconds, {}),
    "calls": (1.0, 2.0, lambda r: r.effects, {}),
    "prompt_tokens": (1_000, 2_000, lambda r: r.peak_tokens, {}),
    "added_tokens": (100, 800, lambda r: r.simulation.input_tokens, {}),
    "output_tokens": (100, 250, lambda r: r.model_cost, {}),
    "approval_share": (0.0, 0.1, lambda r: r.simulation.approvals, {}),
    "approval_hours": (0.1, 2.0, lambda r: r.simulation.most_paused, {}),
    "latency": ("lognormal", "exponential", lambda r: p95(r.durations), {"model_p95": 2.5, "tool_p95": 0.4}),
    "model_seconds": (1.0, 2.5, lambda r: r.slot_seconds, {}),
    "model_p95": (5.0, 9.0, lambda r: r.slot_seconds, {}),
    "tool_seconds": (0.1, 2.0, lambda r: r.slot_seconds, {}),
    "tool_p95": (1.0, 3.0, lambda r: r.slot_seconds, {}),
    "requests_per_minute": (0, 150, lambda r: p95(r.limited), {}),
    "tokens_per_minute": (0, 900_000, lambda r: p95(r.limited), {}),
    "sharing": ("shared", "split", lambda r: mean(r.limited), {**MANY, "requests_per_minute": 250}),
    "workers": (3, 2, lambda r: p95(r.waits), {}),
    "concurrency": (12, 8, lambda r: p95(r.waits), {}),
    "queue_bound": (100, 10, lambda r: r.simulation.rejected, CROWD),
    "when_full": ("reject", "defer", lambda r: r.simulation.deferrals, {**CROWD, "queue_bound": 10}),
    "defer_seconds": (600.0, 60.0, lambda r: r.simulation.deferrals, {**CROWD, **DEFERRING}),
    "durability": ("journal", "none", lambda r: r.simulation.repeated, UNSTEADY),
    "journal_ms": (0.3, 100.0, lambda r: r.slot_seconds, {}),
    "temporal_ms": (15.0, 100.0, lambda r: r.slot_seconds, {"durability": "temporal"}),
    "crashes": (10.0, 100.0, lambda r: r.simulation.interrupted, {}),
    "restart_seconds": (0.0, 120.0, lambda r: p95(r.waits), UNSTEADY),
    "takeover_seconds": (0.0, 300.0, lambda r: scaling.percentile(r.durations, 99), UNSTEADY),
    "replay_ms": (0.1, 1_000.0, lambda r: r.slot_seconds, UNSTEADY),
    "bytes_per_token": (3.0, 4.0, lambda r: r.stored_per_day, {}),
    "retention_days": (7.0, 30.0, lambda r: r.stored, {}),
    "cached_share": (0.9, 0.8, lambda r: r.model_cost, {}),
    "input_price": (0.25, 1.0, lambda r: r.model_cost, {}),
    "cached_price": (0.025, 0.1, lambda r: r.model_cost, {}),
    "output_price": (2.0, 8.0, lambda r: r.model_cost, {}),
    "worker_price": (0.05, 0.1, lambda r: r.worker_cost, {}),
    "cpu_ms": (1.0, 2.0, lambda r: r.cpu, {}),
    "wait_target": (60.0, 0.1, lambda r: r.workers_needed, {**MANY, "concurrency": 1}),
}  # fmt: skip
"""By parameter: a value, one with which a number is larger, the number, and what else is changed."""


class TestParameters:
    @pytest.mark.parametrize("name", EFFECTS)
    def test_it_has_its_effect(self, name):
        value, other, number, changes = EFFECTS[name]
        lower, higher = (simulated(**{**SMALL, **changes, name: one}) for one in (value, other))
        assert number(higher) > number(lower)

    def test_the_effect_of_each_is_tested(self):
        names = {one.name for one in dataclasses.fields(Parameters)}
        assert names == {*EFFECTS, "seed"}

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"workers": 0}, "--workers: expected at least 1, got 0"),
            ({"journal_ms": -1.0}, "--journal-ms: expected at least 0, got -1.0"),
            ({"sharing": "none"}, "--sharing: expected one of shared, split, got 'none'"),
            ({"from_hour": 3.0, "to_hour": 3.0}, "--to-hour: expected more than 3.0, got 3.0"),
        ],
        ids=["too low", "negative", "no choice", "no hours"],
    )
    def test_a_wrong_value_is_refused(self, changes, problem):
        with pytest.raises(ValueError, match=problem):
            Parameters(**changes)


class TestCommandLine:
    def test_each_value_of_a_varied_parameter_is_simulated(self):
        option, cases = scaling.parse(["--workers", "3", "--vary", "queue-bound=10,20"])
        assert option == "queue-bound"
        assert cases == [(str(n), Parameters(workers=3, queue_bound=n)) for n in (10, 20)]

    @pytest.mark.parametrize("varied", ["size=1", "workers=0", "workers", "workers=many", ""])
    def test_a_wrong_one_is_refused(self, varied, capsys):
        with pytest.raises(SystemExit):
            scaling.parse(["--vary", varied])
        assert "error: " in capsys.readouterr().err
