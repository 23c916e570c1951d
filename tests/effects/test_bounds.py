"""Bounds inside bounds, struck from within: the outcomes and cleanups are those of trio.

They run in the task of the outermost bound, and move to another if a call ignores its cancellation.
"""

import asyncio
import contextlib
import random
import time
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from treadle.effects import Bounded, Call, Mode, Parallel, Signal, Sleep, Stopped, drive

SEEDS = 150
GRACE = 0.15  # enough for what ends, on a busy machine too


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch):
    monkeypatch.setattr("treadle.effects.cleanup.GRACE_SECONDS", GRACE)


class Programs:
    """Makes trees of effects at random; a call that does not return strikes a bound around it."""

    def __init__(self, seed):
        self._random = random.Random(seed)
        self._outermost = (0,) if seed % 3 == 0 else ()  # else nothing strikes the whole
        self.bounds = 1

    def whole(self):
        return ("sequence", [self.bounded(self._outermost, 3) for _ in range(3)])

    def bounded(self, enclosing, depth):
        bound = self._random.randrange(2 * self.bounds)
        if bound >= self.bounds or bound == 0 or bound in enclosing:
            bound = self.bounds
            self.bounds += 1
        # Else the same signal bounds these steps, too.
        return ("bounded", bound, self.part((*enclosing, bound), depth - 1))

    def part(self, enclosing, depth):
        kinds = ["value", "error", "strike", "strike", "strike", "strike"]
        if depth:
            kinds += ["bounded"] * 5 + ["sequence"] * 3 + ["finally"] * 3
        match self._random.choice(kinds):
            case "strike":
                ends = ["waits", "ignores", "cleans up", "cancels itself", "value", "own"]
                end = self._random.choice(ends)
                return ("strike", self._random.choice(enclosing), end)
            case "bounded":
                return self.bounded(enclosing, depth)
            case "sequence":
                return ("sequence", [self.part(enclosing, depth - 1) for _ in range(2)])
            case "finally":
                parts = [self.part(enclosing, depth - 1) for _ in range(2)]
                return ("finally", *parts)
            case leaf:
                return (leaf,)


class Machine:
    """Makes the steps of a program; notes what was cleaned up."""

    def __init__(self, bounds):
        self.signals = [Signal() for _ in range(bounds)]
        self.cleaned = []
        self.is_released = False

    def steps(self, program):
        match program:
            case ("bounded", bound, inner):
                try:
                    return (yield Bounded(self.steps(inner), until=self.signals[bound]))
                except Stopped:
                    return f"stopped {bound}"
            case ("sequence", parts):
                outcomes = []
                for part in parts:
                    outcomes.append((yield from self.steps(part)))  # noqa: PERF401 - it yields
                return outcomes
            case ("finally", inner, after):
                try:
                    return (yield from self.steps(inner))
                finally:
                    self.cleaned.append("begun")
                    self.cleaned.append((yield from self.steps(_harmless(after))))
            case ("strike", bound, "own"):  # the steps strike, not a call of theirs
                self.signals[bound].set()
                return f"struck {bound}"
            case _:
                try:
                    return (yield Call(self.call, program, mode=Mode.ASYNC, label="tool"))
                except Exception as error:
                    return repr(error)

    async def call(self, program):
        match program:
            case ("value",):
                return "value"
            case ("error",):
                raise ValueError("error")
        _, bound, end = program
        self.signals[bound].set()
        if end == "value":
            return f"struck {bound}"
        if end == "cancels itself":
            raise asyncio.CancelledError
        if end == "ignores":
            while not self.is_released:
                with contextlib.suppress(BaseException):
                    await anyio.sleep(0.005)
            return "too late"
        try:
            await anyio.sleep(30)
        finally:
            if end == "cleans up":
                self.cleaned.append("call")


def _harmless(program):
    """A cleanup whose calls return, though they may strike a bound around the steps."""
    match program:
        case ("strike", bound, _):
            return ("strike", bound, "value")
        case ("bounded", bound, inner):
            return ("bounded", bound, _harmless(inner))
        case ("sequence", parts):
            return ("sequence", [_harmless(part) for part in parts])
        case ("finally", inner, after):
            return ("finally", _harmless(inner), _harmless(after))
    return program


def outcome_of(runner, program, bounds):
    machine = Machine(bounds)

    def steps():
        try:
            return (yield from machine.steps(("bounded", 0, program)))
        finally:
            machine.is_released = True

    return runner.drive(steps()), machine.cleaned


@pytest.mark.parametrize("seed", range(SEEDS))
def test_outcome_and_cleanups_are_the_same_on_asyncio_and_trio(runners, seed):
    programs = Programs(seed)
    program = programs.whole()
    _, *with_loop = runners  # without an event loop, the steps do not wait for the cleanup of calls
    with ThreadPoolExecutor() as threads:  # at the same time: they mostly wait for grace periods
        (result, cleaned), (expected, expected_cleaned) = threads.map(
            lambda runner: outcome_of(runner, program, programs.bounds), with_loop
        )
    assert result == expected
    assert cleaned == expected_cleaned


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_outer_bound_that_strikes_during_a_cleanup_has_its_grace_period(backend):
    inner, outer, released = Signal(), Signal(), []

    async def strike_inner():
        inner.set()
        await anyio.sleep(30)

    async def strike_outer():
        outer.set()
        await anyio.sleep(0.01)

    async def ignore():
        released.append(anyio.Event())
        while not released[0].is_set():
            with contextlib.suppress(BaseException):
                await released[0].wait()

    def inner_steps():
        try:
            yield Call(strike_inner, mode=Mode.ASYNC)
        finally:
            yield Call(strike_outer, mode=Mode.ASYNC)

    def outer_steps():
        try:
            yield Bounded(inner_steps(), until=inner)
        finally:
            yield Call(ignore, mode=Mode.ASYNC)

    def whole():
        try:
            yield Bounded(outer_steps(), until=outer)
        except Stopped:
            return "stopped"

    def bounded():
        return (yield Bounded(whole(), seconds=30))

    async def main():
        began = time.monotonic()
        try:
            return await drive(bounded()), time.monotonic() - began
        finally:
            released[0].set()

    result, seconds = anyio.run(main, backend=backend)
    assert result == "stopped"
    assert seconds < 10


@pytest.mark.parametrize("passes", range(8))
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_steps_whose_children_need_more_than_the_grace_period_keep_their_cleanup(backend, passes):
    """Even if the grace period ends just as the steps continue after their children."""
    stop, seen = Signal(), []

    def child():
        try:
            stop.set()
            yield Sleep(30)
        finally:
            yield Call(time.sleep, GRACE)
            for _ in range(passes):
                yield Sleep(0)

    def parent():
        try:
            yield Parallel([child()])
        finally:
            seen.append((yield Call(str, "cleaned up")))

    def whole():
        with contextlib.suppress(Stopped):
            yield Bounded(parent(), until=stop)
        seen.append("went on")

    anyio.run(drive, whole(), backend=backend)
    assert seen == ["cleaned up", "went on"]
