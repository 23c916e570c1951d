"""A day of a million runs on a cluster of workers, simulated: waits, limits, storage, cost, workers needed.

Run it with ``make bench-scaling``, or change parameters: ``python benchmarks/scaling.py --workers 20 --peak 3``.
``--vary workers=14,16,18`` simulates each value and prints a table. ``--help`` lists the parameters.

It is a discrete-event simulation. Every run and every iteration is simulated; nothing is scaled up from a sample.
Tool calls of one iteration run at the same time and are one random duration. These are the rules:

* Runs arrive at random (a Poisson process) at a rate with one peak a day, at 14:00. A run that finds a free slot
  starts; else it waits in one queue, first in, first out. A worker has a fixed number of slots.
* A run has a geometric number of iterations. An iteration waits until the rate limit admits its request; then the
  model takes a random time, the tools take another one, and each effect is written to the journal. The slot is
  taken during all of this.
* In no 60 seconds more requests or tokens are admitted than the limits allow, in order of arrival, as by
  `treadle.providers.middleware.RateLimit`. The tokens of a request are assumed to be known beforehand.
* A worker that crashes loses its slots for some seconds. Its runs join the queue again when another worker takes
  them over: with a journal at the interrupted iteration, without one at the first. A request that was in flight
  is sent again and paid again.
* A run that needs an approval gives up its slot and joins the queue again after the decision.
* The simulation starts with an empty cluster and stops at the end of its hours. Runs that have not ended by then
  are counted as unfinished.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import itertools
import math
import random
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

JOURNAL_MS = 0.7
"""What an effect takes longer with `SQLiteJournal`: one durable write, in milliseconds."""
TEMPORAL_MS = 45.0
"""What an activity of Temporal takes longer than the call itself, in milliseconds."""
JOURNAL_BYTES = 400
"""What an entry of the journal takes besides its content, in bytes."""
TEMPORAL_BYTES = 1_500
"""What the events of an activity take in a workflow history besides its content, in bytes."""

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
PEAK_HOUR = 14.0
Z95 = 1.6448536269514722
"""The 95th percentile of the standard normal distribution."""


def parameter(default: Any, text: str, *choices: str) -> Any:
    """A field of `Parameters`, with its help text and the values that it may have."""
    return dataclasses.field(default=default, metadata={"help": text, "choices": choices or None})


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What is simulated. ``--help`` describes each parameter."""

    seed: int = parameter(1, "seed of the random numbers")
    from_hour: float = parameter(0.0, "hour of the day at which the simulation starts")
    to_hour: float = parameter(24.0, "hour at which it ends")

    runs_per_day: float = parameter(1_000_000.0, "runs that arrive in a whole day")
    peak: float = parameter(2.5, "arrival rate at the peak, divided by the mean rate of the day")
    iterations: float = parameter(5.0, "mean number of iterations of a run")
    calls: float = parameter(1.5, "tool calls of an iteration that is not the last")
    prompt_tokens: int = parameter(2_000, "tokens of the first request: prompt and tools")
    added_tokens: int = parameter(800, "tokens that an iteration adds to the conversation")
    output_tokens: int = parameter(250, "tokens of a response; they are among those added")
    approval_share: float = parameter(0.02, "share of runs that wait for an approval")
    approval_hours: float = parameter(2.0, "mean hours until the decision")

    latency: str = parameter("lognormal", "distribution of durations", "lognormal", "exponential")
    model_seconds: float = parameter(2.5, "median duration of a request to the model")
    model_p95: float = parameter(9.0, "95th percentile of it, if lognormal")
    tool_seconds: float = parameter(0.4, "median duration of the tool calls of an iteration")
    tool_p95: float = parameter(3.0, "95th percentile of it, if lognormal")

    requests_per_minute: int = parameter(12_000, "limit of the provider; 0 means none")
    tokens_per_minute: int = parameter(60_000_000, "limit of the provider; 0 means none")
    sharing: str = parameter(
        "shared", "one limit for all workers, or an equal part for each", "shared", "split"
    )

    workers: int = parameter(16, "worker processes")
    concurrency: int = parameter(50, "runs that a worker drives at the same time")
    queue_bound: int = parameter(0, "runs that may wait in the queue; 0 means no bound")
    when_full: str = parameter(
        "reject", "what happens to a run that finds the queue full", "reject", "defer"
    )
    defer_seconds: float = parameter(60.0, "seconds after which a deferred run is sent again")

    durability: str = parameter(
        "journal", "where effects are recorded", "none", "journal", "temporal"
    )
    journal_ms: float = parameter(JOURNAL_MS, "milliseconds for each effect with a journal")
    temporal_ms: float = parameter(TEMPORAL_MS, "milliseconds for each activity with Temporal")
    crashes: float = parameter(1.0, "crashes of each worker in a day")
    restart_seconds: float = parameter(20.0, "seconds until a crashed worker has its slots again")
    takeover_seconds: float = parameter(
        30.0, "seconds until the runs of a crashed worker are in the queue again: the lease"
    )
    replay_ms: float = parameter(0.1, "milliseconds to replay a recorded effect when a run resumes")
    bytes_per_token: float = parameter(4.0, "bytes that a token takes when it is stored")
    retention_days: float = parameter(7.0, "days for which runs are kept")

    cached_share: float = parameter(0.8, "share of repeated input tokens that the provider caches")
    input_price: float = parameter(0.25, "dollars for 1,000,000 input tokens")
    cached_price: float = parameter(0.025, "dollars for 1,000,000 cached input tokens")
    output_price: float = parameter(2.0, "dollars for 1,000,000 output tokens")
    worker_price: float = parameter(0.05, "dollars for a worker and hour")
    cpu_ms: float = parameter(2.0, "CPU milliseconds of an iteration in a worker")
    wait_target: float = parameter(1.0, "seconds that 95 % of the runs may wait, to size workers")

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value, choices = getattr(self, one.name), one.metadata["choices"]
            option = f"--{one.name.replace('_', '-')}"
            if choices and value not in choices:
                raise ValueError(f"{option}: expected one of {', '.join(choices)}, got {value!r}")
            if not choices and value < _LEAST.get(one.name, 0):
                raise ValueError(
                    f"{option}: expected at least {_LEAST.get(one.name, 0)}, got {value}"
                )
        if self.to_hour <= self.from_hour:
            raise ValueError(f"--to-hour: expected more than {self.from_hour}, got {self.to_hour}")

    @property
    def effect_seconds(self) -> float:
        """What recording an effect takes."""
        recorded = {"none": 0.0, "journal": self.journal_ms, "temporal": self.temporal_ms}
        return recorded[self.durability] / 1_000

    @property
    def entry_bytes(self) -> int:
        """What a recorded effect takes in the store, besides its content."""
        recorded = {"none": 0, "journal": JOURNAL_BYTES, "temporal": TEMPORAL_BYTES}
        return recorded[self.durability]


_LEAST = {
    **dict.fromkeys(("peak", "iterations", "workers", "concurrency"), 1),
    **dict.fromkeys(("runs_per_day", "model_seconds", "tool_seconds", "defer_seconds"), 1e-9),
}
"""The lowest value of a parameter; that of the others is 0."""


def daily_rates(parameters: Parameters) -> list[float]:
    """The arrival rate in each minute of a day, in runs per second: proportional to ``exp(k cos(angle))``.

    Its mean is that of the day. The factor k is the one with which the highest rate is ``peak`` times the mean.
    """
    cosines = [math.cos(2 * math.pi * (m / 60 - PEAK_HOUR) / 24) for m in range(24 * 60)]

    def curve(k: float) -> list[float]:
        return [math.exp(k * (cosine - 1)) for cosine in cosines]

    low, high = 0.0, 1.0
    while len(cosines) / math.fsum(curve(high)) < parameters.peak and high < 2**12:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if len(cosines) / math.fsum(curve(middle)) < parameters.peak:
            low = middle
        else:
            high = middle
    shape = curve(low)
    total = math.fsum(shape) * MINUTE
    return [parameters.runs_per_day * one / total for one in shape]


def arrivals(parameters: Parameters, rng: random.Random) -> Iterator[float]:
    """When runs arrive, in seconds from the start of the simulation."""
    rates, end = daily_rates(parameters), (parameters.to_hour - parameters.from_hour) * HOUR
    minute = 0
    while minute * MINUTE < end:
        rate = rates[int(parameters.from_hour * 60 + minute) % len(rates)]
        at = minute * MINUTE + rng.expovariate(rate)
        minute += 1
        while at < minute * MINUTE and at < end:
            yield at
            at += rng.expovariate(rate)


def durations(latency: str, median: float, p95: float, rng: random.Random) -> Callable[[], float]:
    """A function that draws a duration, in seconds."""
    if latency == "exponential":
        rate = math.log(2) / median
        return lambda: rng.expovariate(rate)
    sigma = math.log(max(p95 / median, 1.0)) / Z95
    if not sigma:
        return lambda: median
    gauss, exp = rng.gauss, math.exp
    return lambda: median * exp(sigma * gauss(0.0, 1.0))


class Window:
    """A rate limit: in no 60 seconds more requests or tokens.

    Since requests are admitted in order of arrival, the time of each is known when it arrives.

    Args:
        requests: the number of requests in a minute; 0 means no limit.
        tokens: the number of tokens in a minute; 0 means no limit.
    """

    def __init__(self, requests: float, tokens: float) -> None:
        self._requests = requests or math.inf
        self._tokens = tokens or math.inf
        self._sent: deque[tuple[float, int]] = deque()
        self._total = 0
        self._latest = 0.0

    def admit(self, now: float, tokens: int) -> float:
        """When a request is admitted that arrives now. One that is larger than the limit is admitted alone."""
        sent, at = self._sent, max(now, self._latest)
        while sent and sent[0][0] + MINUTE <= at:
            self._total -= sent.popleft()[1]
        while sent and (len(sent) >= self._requests or self._total + tokens > self._tokens):
            before, fewer = sent.popleft()
            self._total -= fewer
            at = max(at, before + MINUTE)
        sent.append((at, tokens))
        self._total += tokens
        self._latest = at
        return at


class Run:
    """A run.

    Attributes:
        arrived: when it arrived.
        iterations: how many it has.
        done: how many of them have ended.
        approval: the iteration after which it needs an approval; 0 means none.
        event: the number of its next event; 0 if it has none.
        worker: the number of the worker that drives it.
        held: seconds in slots, without the waits for the limit.
        limited: seconds of waiting for the limit.
        paused: seconds of waiting for an approval.
        started: whether it has been in a slot.
        asking: whether an iteration is under way.
    """

    __slots__ = (
        "approval", "arrived", "asking", "done", "event", "held", "iterations", "limited", "paused",
        "started", "worker",
    )  # fmt: skip

    def __init__(self, arrived: float, iterations: int, approval: int) -> None:
        self.arrived = arrived
        self.iterations = iterations
        self.approval = approval
        self.done = self.event = self.worker = 0
        self.held = self.limited = self.paused = 0.0
        self.started = self.asking = False


class Simulation:
    """A simulation; its attributes are what was counted.

    Args:
        parameters: what to simulate.

    Attributes:
        waits: the seconds from the arrival of each run to its start.
        durations: the seconds from the arrival of each run to its end, without approvals.
        limited: the seconds for which each run that ended waited for the limit.
        queue_area: the number of runs in the queue, integrated over time.
        busy: the number of occupied slots, integrated over each hour.
        requests: the requests of each minute.
        tokens: the tokens of each minute.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.end = (parameters.to_hour - parameters.from_hour) * HOUR
        self.waits, self.durations, self.limited = array("d"), array("d"), array("d")
        self.held = self.queue_area = 0.0
        self.arrived = self.rejected = self.deferrals = self.crashed = self.interrupted = 0
        self.repeated = self.approvals = self.paused = self.most_paused = self.most_queued = 0
        self.input_tokens = self.new_tokens = 0
        hours, minutes = math.ceil(self.end / HOUR), math.ceil(self.end / MINUTE)
        self.busy, self.arrivals = [0.0] * hours, [0] * hours
        self.requests, self.tokens = [0] * minutes, [0] * minutes

        rngs = [random.Random(f"{parameters.seed}/{name}") for name in _STREAMS]
        self._sizes, self._decisions, self._failures = rngs[1:4]
        self._arrivals = arrivals(parameters, rngs[0])
        latency = parameters.latency
        self._model = durations(latency, parameters.model_seconds, parameters.model_p95, rngs[4])
        self._tools = durations(latency, parameters.tool_seconds, parameters.tool_p95, rngs[5])
        workers, parts = range(parameters.workers), parameters.workers
        parts = parts if parameters.sharing == "split" else 1
        windows = [
            Window(parameters.requests_per_minute / parts, parameters.tokens_per_minute / parts)
            for _ in range(parts)
        ]
        self._windows = [windows[worker % parts] for worker in workers]
        self._driven: list[set[Run]] = [set() for _ in workers]
        self._free = deque(worker for _ in range(parameters.concurrency) for worker in workers)
        self._queue: deque[Run] = deque()
        self._is_bounded = parameters.queue_bound > 0
        self._effect = parameters.effect_seconds
        self._effects = 1 + parameters.calls
        self._continued = (
            math.log(1 - 1 / parameters.iterations) if parameters.iterations > 1 else 0
        )

        self.now = self._queue_changed = self._busy_changed = 0.0
        self._occupied = 0
        self._numbers = itertools.count(1)
        self._events: list[tuple[float, int, Callable[[Run], None], Run]] = []

    def run(self) -> Simulation:
        """Simulate the hours; return itself."""
        nobody = Run(0.0, 0, 0)
        self._arrival(nobody)
        if self.parameters.crashes:
            self._crash_later()
        events, end, pop = self._events, self.end, heapq.heappop
        while events and events[0][0] < end:
            self.now, number, happen, run = pop(events)
            if run.event == number:  # else a crash has cancelled it
                happen(run)
        self.now = end
        self._queue_changes()
        self._busy_changes(0)
        return self

    def _later(self, at: float, happen: Callable[[Run], None], run: Run) -> None:
        run.event = number = next(self._numbers)
        heapq.heappush(self._events, (at, number, happen, run))

    # Arrivals and the queue

    def _arrival(self, run: Run) -> None:
        """The next run arrives, and the one after it is awaited."""
        if run.iterations:
            self.arrived += 1
            self.arrivals[int(self.now / HOUR)] += 1
            self._admit(run)
        at = next(self._arrivals, None)
        if at is not None:
            self._later(at, self._arrival, self._new_run(at))

    def _new_run(self, at: float) -> Run:
        iterations, approval = 1, 0
        if self._continued:
            iterations += int(math.log(1.0 - self._sizes.random()) / self._continued)
        needs_approval = self._sizes.random() < self.parameters.approval_share
        if iterations > 1 and needs_approval:
            approval = 1 + int(self._sizes.random() * (iterations - 1))
        return Run(at, iterations, approval)

    def _admit(self, run: Run) -> None:
        """Start a new run, or have it wait, or refuse it."""
        is_full = self._is_bounded and len(self._queue) >= self.parameters.queue_bound
        if self._free or not is_full:
            self._ready(run)
        elif self.parameters.when_full == "reject":
            self.rejected += 1
        else:
            self.deferrals += 1
            self._later(self.now + self.parameters.defer_seconds, self._admit, run)

    def _ready(self, run: Run) -> None:
        """A run needs a slot."""
        if self._free:
            self._start(run)
        else:
            self._queue_changes()
            self._queue.append(run)
            self.most_queued = max(self.most_queued, len(self._queue))

    def _start(self, run: Run) -> None:
        run.worker = worker = self._free.popleft()
        self._busy_changes(1)
        self._driven[worker].add(run)
        if not run.started:
            run.started = True
            self.waits.append(self.now - run.arrived)
        if run.done:
            replay = run.done * self._effects * self.parameters.replay_ms / 1_000
            run.held += replay
            self._later(self.now + replay, self._iterate, run)
        else:
            self._iterate(run)

    def _leave(self, run: Run) -> None:
        """A run gives up its slot, and the next one in the queue gets it."""
        self._driven[run.worker].discard(run)
        self._busy_changes(-1)
        self._free.append(run.worker)
        self._serve()

    def _serve(self) -> None:
        while self._queue and self._free:
            self._queue_changes()
            self._start(self._queue.popleft())

    # Iterations

    def _iterate(self, run: Run) -> None:
        """An iteration starts: its request waits for the limit, then the model and the tools take their time."""
        given, now, done = self.parameters, self.now, run.done
        size = given.prompt_tokens + done * given.added_tokens
        tokens = size + given.output_tokens
        at = self._windows[run.worker].admit(now, tokens)
        minute = int(at / MINUTE)
        if minute < len(self.requests):
            self.requests[minute] += 1
            self.tokens[minute] += tokens
            self.input_tokens += size
            self.new_tokens += given.added_tokens if done else size
        seconds = self._model()
        if done + 1 < run.iterations:
            seconds += self._tools() + self._effects * self._effect
        else:
            seconds += self._effect
        run.asking = True
        run.held += seconds
        run.limited += at - now
        self._later(at + seconds, self._ended, run)

    def _ended(self, run: Run) -> None:
        """An iteration ended."""
        run.asking = False
        run.done += 1
        if run.done == run.iterations:
            self.durations.append(self.now - run.arrived - run.paused)
            self.limited.append(run.limited)
            self.held += run.held
            run.event = 0
            self._leave(run)
        elif run.done == run.approval:
            self._pause(run)
        else:
            self._iterate(run)

    def _pause(self, run: Run) -> None:
        run.approval = 0
        waiting = self._decisions.expovariate(1.0) * self.parameters.approval_hours * HOUR
        run.paused += waiting
        self.approvals += 1
        self.paused += 1
        self.most_paused = max(self.most_paused, self.paused)
        self._later(self.now + waiting, self._decided, run)
        self._leave(run)

    def _decided(self, run: Run) -> None:
        self.paused -= 1
        self._ready(run)

    # Crashes

    def _crash_later(self) -> None:
        worker = Run(0.0, 0, 0)
        worker.worker = self._failures.randrange(self.parameters.workers)
        rate = self.parameters.workers * self.parameters.crashes / DAY
        self._later(self.now + self._failures.expovariate(rate), self._crash, worker)

    def _crash(self, crashed: Run) -> None:
        """A worker crashes; ``crashed`` only carries its number."""
        self._crash_later()
        worker = crashed.worker
        if worker not in self._free and not self._driven[worker]:
            return  # it is down already
        self.crashed += 1
        self._free = deque(one for one in self._free if one != worker)
        driven = sorted(self._driven[worker], key=lambda run: run.event)
        self._driven[worker].clear()
        self._busy_changes(-len(driven))
        for run in driven:
            self.interrupted += 1
            self.repeated += run.asking
            run.asking = False
            if self.parameters.durability == "none":
                self.repeated += run.done
                run.done = 0
            self._later(self.now + self.parameters.takeover_seconds, self._ready, run)
        self._later(self.now + self.parameters.restart_seconds, self._restart, crashed)

    def _restart(self, crashed: Run) -> None:
        self._free.extend([crashed.worker] * self.parameters.concurrency)
        self._serve()

    # Integrals over time

    def _queue_changes(self) -> None:
        self.queue_area += len(self._queue) * (self.now - self._queue_changed)
        self._queue_changed = self.now

    def _busy_changes(self, by: int) -> None:
        hour = min(int(self.now / HOUR), len(self.busy) - 1)
        self.busy[hour] += self._occupied * (self.now - self._busy_changed)
        self._busy_changed = self.now
        self._occupied += by


_STREAMS = ("arrivals", "sizes", "decisions", "failures", "model", "tools")
"""Each has random numbers of its own, so that a change of one parameter leaves those of the others as they are."""


# What the counts mean


def erlang_c(slots: int, load: float) -> float:
    """The probability that an arrival has to wait in a queue M/M/c.

    Args:
        slots: the number of servers.
        load: the arrival rate times the mean service time, in erlangs.

    Returns:
        The probability; 1 if the servers do not suffice.
    """
    if load >= slots:
        return 1.0
    blocked = 1.0  # Erlang B, by its recursion
    for number in range(1, slots + 1):
        blocked = load * blocked / (number + load * blocked)
    return slots * blocked / (slots - load * (1 - blocked))


def slots_needed(rate: float, seconds: float, wait: float) -> int:
    """The slots with which at most 5 % of the runs wait longer than some seconds, by Erlang C.

    Args:
        rate: runs per second.
        seconds: for which a run takes a slot, on average.
        wait: the seconds that 95 % of the runs may wait.
    """
    slots, load = math.floor(rate * seconds) + 1, rate * seconds
    while erlang_c(slots, load) * math.exp(-(slots - load) * wait / seconds) > 1 - 0.95:
        slots += 1
    return slots


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which a share of sorted values lies; 0 if there are none."""
    return values[min(len(values) - 1, int(len(values) * percent / 100))] if values else 0.0


class Report:
    """What a simulation shows.

    Args:
        simulation: a simulation that was run.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = done = simulation
        self.parameters = given = simulation.parameters
        self.waits = sorted(done.waits)
        self.durations = sorted(done.durations)
        self.limited = sorted(done.limited)
        self.completed = len(self.durations)
        slots = given.workers * given.concurrency
        self.busiest = max(done.busy) / (slots * HOUR)
        self.utilisation = math.fsum(done.busy) / (slots * done.end)
        requests = sum(done.requests)
        final = self.completed  # the last iteration of a run has no tool calls
        self.effects = round(requests + (requests - final) * given.calls)
        self.peak_requests, self.peak_tokens = max(done.requests), max(done.tokens)
        self.slot_seconds = done.held / self.completed if self.completed else 0.0

        old = done.input_tokens - done.new_tokens
        cached = old * given.cached_share
        self.model_cost = (
            (done.input_tokens - cached) * given.input_price
            + cached * given.cached_price
            + requests * given.output_tokens * given.output_price
        ) / 1e6
        self.worker_cost = given.workers * given.worker_price * done.end / HOUR
        is_recorded = given.durability != "none"
        kept = done.new_tokens + self.completed * given.output_tokens
        stored = (kept * given.bytes_per_token + self.effects * given.entry_bytes) * is_recorded
        self.stored_per_day = stored * DAY / done.end
        self.stored = self.stored_per_day * given.retention_days
        self.writing = self.peak_requests / MINUTE * (1 + given.calls) * given.effect_seconds
        self.cpu = self.peak_requests / MINUTE * given.cpu_ms / 1_000 / given.workers

    @property
    def workers_needed(self) -> int:
        """The workers for the hour with most arrivals, if the limit delays no run."""
        rate = max(self.simulation.arrivals) / min(HOUR, self.simulation.end)
        slots = slots_needed(rate, self.slot_seconds, self.parameters.wait_target)
        return math.ceil(slots / self.parameters.concurrency)

    @property
    def per_thousand(self) -> float:
        """Dollars for 1,000 runs that ended."""
        total = self.model_cost + self.worker_cost
        return 1_000 * total / self.completed if self.completed else math.nan

    def rows(self) -> Iterator[tuple[str, str]]:
        """Names and values, for people."""
        done, given = self.simulation, self.parameters
        unfinished = done.arrived - done.rejected - self.completed
        yield "hours simulated", f"{done.end / HOUR:g}"
        yield "runs that arrived", f"{done.arrived:,}"
        yield "runs that ended", f"{self.completed:,}"
        yield (
            "unfinished at the end",
            f"{unfinished:,}, {done.paused:,} of them waiting for approval",
        )
        yield "rejected / deferrals", f"{done.rejected:,} / {done.deferrals:,}"
        yield "arrivals in the busiest hour", f"{max(done.arrivals):,}"
        yield "", ""
        yield "queue wait p50 / p95 / p99", _seconds(self.waits)
        yield "longest queue", f"{done.most_queued:,} runs"
        yield "limit wait per run p50 / p95 / p99", _seconds(self.limited)
        yield "run duration p50 / p95 / p99", _seconds(self.durations)
        yield "slots busy, mean / busiest hour", f"{self.utilisation:.0%} / {self.busiest:.0%}"
        yield "requests in the busiest minute", _of(self.peak_requests, given.requests_per_minute)
        yield "tokens in the busiest minute", _of(self.peak_tokens, given.tokens_per_minute)
        yield "approvals, most waiting at once", f"{done.approvals:,}, {done.most_paused:,}"
        yield "crashes, runs interrupted", f"{done.crashed:,}, {done.interrupted:,}"
        yield "iterations repeated", f"{done.repeated:,}"
        yield "", ""
        effects = self.peak_requests / MINUTE * (1 + given.calls)
        each = self.writing / given.workers
        whole = done.input_tokens * given.bytes_per_token * DAY / done.end
        yield "effects per second at the peak", f"{effects:,.0f}"
        yield "time to record them", f"{self.writing:.2f} s per second, {each:.3f} per worker"
        yield "CPU of a worker at the peak", f"{self.cpu:.0%} of a core"
        yield "storage growth", f"{self.stored_per_day / 1e9:,.1f} GB per day"
        yield f"stored after {given.retention_days:g} days", f"{self.stored / 1e9:,.1f} GB"
        yield "if each request were stored whole", f"{whole / 1e9:,.1f} GB per day"
        yield "", ""
        yield "slot time per run", f"{self.slot_seconds:.1f} s"
        yield "workers needed for the busiest hour", f"{self.workers_needed}"
        yield "cost of the model", f"${self.model_cost:,.0f}"
        yield "cost of the workers", f"${self.worker_cost:,.0f}"
        yield "cost of 1,000 runs", f"${self.per_thousand:,.2f}"

    def cells(self) -> list[str]:
        """A row of the table of `vary`."""
        done = self.simulation
        return [
            f"{self.completed:,}",
            f"{done.rejected:,}",
            f"{percentile(self.waits, 50):,.1f}",
            f"{percentile(self.waits, 95):,.1f}",
            f"{percentile(self.limited, 95):,.1f}",
            f"{percentile(self.durations, 95):,.1f}",
            f"{self.busiest:.0%}",
            f"{done.repeated:,}",
            f"${self.per_thousand:,.2f}",
        ]


CELLS = [
    "ended", "rejected", "wait p50", "wait p95", "limit p95", "run p95", "busy", "repeated", "$/1,000",
]  # fmt: skip
"""The columns of the table of `vary`. Times are in seconds; ``busy`` is the share of slots in the busiest hour."""


def _seconds(values: Sequence[float]) -> str:
    return " / ".join(f"{percentile(values, percent):,.1f}" for percent in (50, 95, 99)) + " s"


def _of(found: int, limit: int) -> str:
    return f"{found:,} of {limit:,}" if limit else f"{found:,}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text in columns; the first column is aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line: an option for each parameter, and ``--vary``."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for one in dataclasses.fields(Parameters):
        default: object = one.default
        parser.add_argument(
            f"--{one.name.replace('_', '-')}",
            type=type(default),
            default=default,
            choices=one.metadata["choices"],
            help=one.metadata["help"],
        )
    parser.add_argument(
        "--vary", metavar="NAME=V1,V2,...", help="print a table with a row for each value"
    )
    return parser


def parse(arguments: Sequence[str]) -> tuple[str, list[tuple[str, Parameters]]]:
    """The name of the parameter to vary, and each of its values with all parameters.

    Without ``--vary``, both the name and the only value are empty.
    """
    parser = make_parser()
    given = vars(parser.parse_args(arguments))
    option, _, values = (given["vary"] or "").partition("=")
    if given["vary"] is not None and option.replace("-", "_") not in given:
        parser.error(f"--vary: expected the name of a parameter and values, got {given['vary']!r}")
    cases: list[tuple[str, Parameters]] = []
    for value in values.split(","):
        changed = [*arguments, f"--{option}", value] if option else arguments
        case = vars(parser.parse_args(changed))
        del case["vary"]
        try:
            cases.append((value, Parameters(**case)))
        except ValueError as error:
            parser.error(str(error))
    return option, cases


def main() -> None:
    """Simulate what the command line asks for, and print it."""
    option, cases = parse(sys.argv[1:])
    started = time.perf_counter()
    if option:
        rows = [[value, *Report(Simulation(case).run()).cells()] for value, case in cases]
        print(aligned([[option, *CELLS], *rows]))
    else:
        print(aligned(list(Report(Simulation(cases[0][1]).run()).rows())))
    print(f"simulated in {time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
