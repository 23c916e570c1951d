"""Middleware: steps around steps."""

import pytest

from treadle.effects import (
    NOW,
    Bounded,
    Call,
    Emit,
    Parallel,
    Signal,
    Sleep,
    Stopped,
    TimeLimitReached,
    Wait,
    map_effects,
)

from .steps import caught, steps_of


class TestMapEffects:
    @staticmethod
    def twice(effect):
        if isinstance(effect, Call):
            return Call(lambda: 2 * effect.fn(*effect.args))
        return effect

    def test_sees_and_replaces_effects_at_any_depth(self, runner):
        def steps():
            one = yield Call(abs, 1)
            within = yield Bounded(steps_of(Call(abs, 2)), seconds=5)
            many = yield Parallel([steps_of(Call(abs, n)) for n in (3, 4)], limit=1)
            return one, within, many

        assert runner.drive(map_effects(steps(), self.twice)) == (2, 4, [6, 8])

    @pytest.mark.parametrize("where", ["alone", "parallel", "within", "both"])
    def test_may_replace_an_effect_by_one_of_any_kind(self, runner, where):
        """The steps receive its outcome, and effects within the replacement are not changed again."""
        events, keys = [], []

        def change(effect):
            if isinstance(effect, Emit):
                return {
                    "wrapped": lambda: Emit(("wrapped", effect.event)),
                    "called": lambda: Call(len, effect.event),
                    "parallel": lambda: Parallel(
                        [steps_of(Call(len, "ab")), steps_of(Emit("inner"))]
                    ),
                    "within": lambda: Bounded(steps_of(Emit("bound")), seconds=30),
                    "dropped": lambda: Call(lambda: None),
                }[effect.event]()
            if isinstance(effect, Call):
                keys.append("inner/" + effect.key)
                call = Call(effect.fn, *effect.args, mode=effect.mode, key="inner/" + effect.key)
                return Bounded(steps_of(call), seconds=30)
            return effect

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
            inner = steps() if where == "parallel" else steps_of(Bounded(steps(), seconds=30))
            return (yield Parallel([inner, steps_of(NOW)]))[0]

        assert runner.drive(map_effects(whole(), change), events.append) == [
            None, 6, [2, None], None, None, 1
        ]  # fmt: skip
        assert events == [("wrapped", "wrapped"), "inner", "bound"]
        assert keys == ["inner/k"]

    def test_may_be_nested(self, runner):
        """The outer middleware sees the replacements of the inner one."""
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

    def test_does_not_change_failures_and_bounds(self, runner):
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

    def test_lets_cancelled_steps_clean_up(self, runner):
        seen, stop = [], Signal()

        def steps():
            try:
                stop.set()
                yield Wait(Signal())
            finally:
                yield Call(seen.append, "closed")

        within = Bounded(map_effects(steps(), lambda effect: effect), until=stop)
        assert isinstance(runner.drive(caught(within)), Stopped)
        assert seen == ["closed"]

    def test_raises_the_error_of_a_change_in_the_steps(self, runner):
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
