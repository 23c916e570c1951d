"""Middleware: generators around a generator, which see every effect on its way to the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from treadle.effects.effects import Bounded, Call, Effect, Parallel, Reporter, Steps

R = TypeVar("R")


def map_effects(steps: Steps[R], change: Callable[[Effect], Effect]) -> Steps[R]:
    """Wrap steps so that a function sees, and may replace, every effect they yield, however deep.

    Args:
        steps: a generator of effects that has not been started.
        change: takes an effect and returns the one to perform in its place: often the same, else
            one of any kind, whose outcome the steps are handed. The steps within a `Parallel` or a
            `Bounded` are wrapped alike before it sees them; steps that it makes itself are not, so
            that a call may be put into a `Bounded`.

    Returns:
        The wrapped steps; outcomes, failures and cancellations reach the inner ones untouched.
    """
    try:
        effect = steps.send(None)
        while True:
            try:
                outcome = yield change(_wrapped(effect, change))
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as raised:  # noqa: BLE001 - whatever it is, it is for the inner steps
                effect = steps.throw(raised)
            else:
                effect = steps.send(outcome)
    except StopIteration as stop:
        result: R = stop.value
        return result


def _wrapped(effect: Effect, change: Callable[[Effect], Effect]) -> Effect:
    if isinstance(effect, Parallel):
        return Parallel([map_effects(steps, change) for steps in effect.steps], effect.limit)
    if isinstance(effect, Bounded):
        return Bounded(
            map_effects(effect.steps, change), seconds=effect.seconds, until=effect.until
        )
    return effect


def with_reporter(call: Call, wrap: Callable[[Reporter], Reporter]) -> Call:
    """Copy a call so that its function receives another reporter.

    Args:
        call: a call. One that is not ``reporting`` is returned as it is.
        wrap: takes the driver's reporter, returns the one that the function receives. It is called
            once per call, where the function runs.
    """
    if not call.reporting:
        return call
    fn = call.fn

    def wrapped(*args: Any) -> Any:
        return fn(*args[:-1], wrap(args[-1]))

    return Call(wrapped, *call.args, mode=call.mode, label=call.label, key=call.key, reporting=True)
