"""The small parts under the drivers: timers, closing, middleware, awaiting."""

import asyncio
import contextvars
import gc
import time

import anyio
import pytest

from treadle.effects import (
    NOW,
    SWEEP_AT,
    Bounded,
    Call,
    Emit,
    InContext,
    Mode,
    Parallel,
    Signal,
    Sleep,
    Stopped,
    Then,
    TimeLimitReached,
    Timers,
    Wait,
    map_effects,
    shut,
)


def steps_of(effect):
    return (yield effect)


class TestTimers:
    def test_do_what_is_due_in_the_order_it_is_due(self):
        timers, seen = Timers(), []
        for seconds in (0.002, 0.001, -1, 30):
            timers.add(seconds, lambda seconds=seconds: seen.append(seconds), lambda: True)
        time.sleep(0.003)
        timers.fire()
        assert seen == [-1, 0.001, 0.002]
        assert 29 < timers.wait(60) <= 30

    def test_do_nothing_that_nobody_wants_any_more(self):
        timers, seen = Timers(), []
        timers.add(0, lambda: seen.append(1), lambda: False)
        timers.fire()
        timers.add(30, lambda: seen.append(1), lambda: False)
        assert timers.wait(60) == 60
        assert seen == []

    def test_keep_few_of_those_that_nobody_wants(self):
        """A long stream with a time limit for each item leaves one behind for each."""
        timers = Timers()
        timers.add(30, list, lambda: True)
        for _ in range(10_000):
            timers.add(3600, list, lambda: False)
        assert len(timers._heap) <= SWEEP_AT + 1
        assert timers.wait(60) < 31


class TestShut:
    def test_closes_steps_and_passes_over_what_they_still_yield(self):
        seen = []

        def steps():
            try:
                yield NOW
            finally:
                yield Emit("lost")
                yield Emit("lost too")
                seen.append("closed")

        started = steps()
        started.send(None)
        shut(started)
        assert seen == []
        assert started.gi_frame is None

    def test_gives_up_on_steps_that_never_end(self):
        def steps():
            while True:
                try:
                    yield NOW
                except GeneratorExit:
                    if is_over:
                        raise

        is_over = False
        started = steps()
        started.send(None)
        shut(started)
        is_over = True
        started.close()


class TestLayered:
    @staticmethod
    def twice(effect):
        if isinstance(effect, Call):
            return Call(lambda: 2 * effect.fn(*effect.args))
        return effect

    def test_sees_and_replaces_effects_however_deep(self, runner):
        def steps():
            one = yield Call(abs, 1)
            within = yield Bounded(steps_of(Call(abs, 2)), seconds=5)
            many = yield Parallel([steps_of(Call(abs, n)) for n in (3, 4)], limit=1)
            return one, within, many

        assert runner.drive(map_effects(steps(), self.twice)) == (2, 4, [6, 8])

    @pytest.mark.parametrize("where", ["alone", "parallel", "within", "both"])
    def test_may_put_any_kind_of_effect_in_the_place_of_another(self, runner, where):
        """The steps are handed its outcome, and what it is made of is not changed once more."""
        events, keys = [], []

        def change(effect):
            if isinstance(effect, Emit):
                return {
                    "wrapped": lambda: Emit(("wrapped", effect.event)),
                    "called": lambda: Call(len, effect.event),
                    "parallel": lambda: Parallel([one(Call(len, "ab")), one(Emit("inner"))]),
                    "within": lambda: Bounded(one(Emit("bound")), seconds=30),
                    "dropped": lambda: Call(lambda: None),
                }[effect.event]()
            if isinstance(effect, Call):
                keys.append("inner/" + effect.key)
                call = Call(effect.fn, *effect.args, mode=effect.mode, key="inner/" + effect.key)
                return Bounded(one(call), seconds=30)
            return effect

        def one(effect):
            return (yield effect)

        def steps():
            first = yield Emit("wrapped")
            second = yield Emit("called")
            third = yield Emit("parallel")
            fourth = yield Emit("within")
            fifth = yield Emit("dropped")
            return [first, second, third, fourth, fifth, (yield Call(abs, -1, key="k"))]

        def whole():
            if where == "alone":
                return (yield from steps())
            if where == "within":
                return (yield Bounded(steps(), seconds=30))
            inner = steps() if where == "parallel" else one(Bounded(steps(), seconds=30))
            return (yield Parallel([inner, one(NOW)]))[0]

        assert runner.drive(map_effects(whole(), change), events.append) == [
            None, 6, [2, None], None, None, 1
        ]  # fmt: skip
        assert events == [("wrapped", "wrapped"), "inner", "bound"]
        assert keys == ["inner/k"]

    def test_may_be_one_around_the_other(self, runner):
        """What the inner one puts in is seen by the outer one."""
        events = []

        def wrapping(name):
            def change(effect):
                return Emit((name, effect.event)) if isinstance(effect, Emit) else effect

            return change

        def one():
            yield Emit("event")

        def steps():
            yield Parallel([one(), one()])

        whole = map_effects(map_effects(steps(), wrapping("inner")), wrapping("outer"))
        runner.drive(whole, events.append)
        assert events == [("outer", ("inner", "event"))] * 2

    def test_lets_failures_and_bounds_through(self, runner):
        def steps():
            seen = []
            stop = Signal()
            stop.set()
            for effect in (
                Call(divmod, 1, 0),
                Bounded(steps_of(Sleep(30)), seconds=0.01),
                Bounded(steps_of(NOW), until=stop),
            ):
                try:
                    yield effect
                except Exception as error:
                    seen.append(type(error))
            return seen

        expected = [ZeroDivisionError, TimeLimitReached, Stopped]
        assert runner.drive(map_effects(steps(), lambda effect: effect)) == expected

    def test_lets_cancelled_steps_leave_things_in_order(self, runner):
        seen = []

        def steps():
            try:
                yield Wait(Signal())
            finally:
                yield Call(seen.append, "closed")

        def bounded():
            try:
                yield Bounded(map_effects(steps(), lambda effect: effect), seconds=0.01)
            except TimeLimitReached:
                return "ended"

        assert runner.drive(bounded()) == "ended"
        assert seen == ["closed"]

    def test_hands_a_failing_change_to_the_steps(self, runner):
        def change(effect):
            raise KeyError("change")

        def steps():
            try:
                yield NOW
            except KeyError:
                return "caught"

        assert runner.drive(map_effects(steps(), change)) == "caught"

    def test_closes_the_inner_steps_when_it_is_closed(self):
        seen = []

        def steps():
            try:
                yield NOW
            finally:
                seen.append("closed")

        outer = map_effects(steps(), lambda effect: effect)
        outer.send(None)
        outer.close()
        assert seen == ["closed"]


class TestThen:
    @staticmethod
    async def fetch(value):
        await asyncio.sleep(0)
        return value

    @pytest.mark.parametrize("run", ["asyncio", "drive"])
    def test_changes_what_an_awaitable_comes_to(self, run, runner):
        then = Then(self.fetch(2), lambda value: value + 1)
        if run == "asyncio":
            assert asyncio.run(self.awaited(then)) == 3
        elif runner.name != "trio":
            assert runner.drive(steps_of(Call(lambda: then, mode=Mode.ASYNC))) == 3
        else:
            then.close()

    @staticmethod
    async def awaited(awaitable):
        return await awaitable

    def test_raises_what_either_raises(self):
        async def fails():
            raise ValueError

        with pytest.raises(ValueError):
            asyncio.run(self.awaited(Then(fails(), str)))
        with pytest.raises(ZeroDivisionError):
            asyncio.run(self.awaited(Then(self.fetch(0), lambda value: 1 / value)))

    def test_awaits_what_is_no_coroutine(self):
        async def main():
            future = asyncio.get_running_loop().create_future()
            future.set_result(1)
            return await Then(future, lambda value: value + 1)

        assert asyncio.run(main()) == 2

    def test_lets_the_inner_one_answer_a_cancellation(self):
        async def stubborn():
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return "cancelled"

        async def main():
            task = asyncio.ensure_future(Then(stubborn(), str.upper))
            await asyncio.sleep(0)
            task.cancel()
            return await task

        assert asyncio.run(main()) == "CANCELLED"

    def test_that_is_closed_before_it_began_leaves_nothing_unawaited(self):
        Then(self.fetch(1), str).close()
        gc.collect()


class TestInContext:
    """An awaitable that has context variables of its own, whoever awaits it."""

    place = contextvars.ContextVar("place", default="outside")

    @pytest.fixture
    def inside(self):
        context = contextvars.copy_context()
        context.run(self.place.set, "inside")
        return context

    async def moves(self, to):
        was = self.place.get()
        await anyio.sleep(0)
        self.place.set(to)
        return was

    def test_finds_and_leaves_its_variables_there(self, runner, inside):
        for found, left in (("inside", "further in"), ("further in", "home")):
            awaited = Call(lambda to=left: InContext(self.moves(to), inside), mode=Mode.ASYNC)
            assert runner.drive(steps_of(awaited)) == found
            assert (inside[self.place], self.place.get()) == (left, "outside")

    def test_awaits_what_is_no_coroutine(self, inside):
        async def main():
            future = asyncio.get_running_loop().create_future()
            future.set_result(1)
            return await InContext(future, inside)

        assert asyncio.run(main()) == 1

    @pytest.fixture
    def seen(self):
        return []

    async def waits(self, seen, seconds):
        try:
            await asyncio.sleep(seconds)
        finally:
            seen.append(self.place.get())

    def test_is_told_there_of_a_cancellation(self, inside, seen):
        async def main():
            waiting = InContext(self.waits(seen, 30), inside)
            task = asyncio.ensure_future(TestThen.awaited(waiting))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert seen == ["inside"]

    def test_is_told_there_of_its_end(self, inside, seen):
        waiting = InContext(self.waits(seen, 0), inside)
        waiting.send(None)
        waiting.close()
        assert seen == ["inside"]
