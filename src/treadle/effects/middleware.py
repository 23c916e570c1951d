"""Middleware: generators around a generator, which see every effect on its way to the driver."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from treadle.effects.effects import Bounded, Call, Effect, Parallel, Reporter, Steps

R = TypeVar("R")

Change: TypeAlias = Callable[[Effect], Effect | Steps[Any]]
"""Takes an effect, and returns the effect or the steps to perform in its place."""


def map_effects(steps: Steps[R], change: Change) -> Steps[R]:
    """Wrap steps so that a function sees, and may replace, every effect they yield, however deep.

    Args:
        steps: a generator of effects that has not been started.
        change: takes an effect and returns the effect or the steps to perform in its place. The steps within a
            `Parallel` or a `Bounded` are wrapped before ``change`` receives the effect. Steps that it
            makes itself are not wrapped, so that it may put a call into a `Bounded`.

    Returns:
        The wrapped steps; outcomes, failures and cancellations reach the inner steps unchanged.
    """
    return intercept(
        steps, lambda effect: change(map_nested(effect, lambda inner: map_effects(inner, change)))
    )


def intercept(
    steps: Steps[R], change: Change, resume: Callable[..., Any] | None = None
) -> Steps[R]:
    """Wrap steps so that a function sees, and may replace, every effect that they yield themselves.

    Args:
        steps: a generator of effects that has not been started.
        change: as in `map_effects`, but the steps within an effect are not wrapped.
        resume: takes a function and its arguments, and calls it: the steps run up to their next
            effect, or are closed. None calls it directly.
    """
    advance: Callable[[Any], Effect] = steps.send
    value: Any = None
    effect = made = None
    try:
        while True:
            effect = advance(value) if resume is None else resume(advance, value)
            try:
                made = change(effect)
                value = (yield from made) if isinstance(made, Generator) else (yield made)
            except GeneratorExit:
                steps.close() if resume is None else resume(steps.close)
                raise
            except BaseException as raised:  # noqa: BLE001 - raised in the inner steps
                advance, value = steps.throw, raised
            else:
                advance = steps.send
    except StopIteration as stop:
        return stop.value  # no local: an exception in it may refer to this frame, too
    finally:
        # An exception refers to this frame, which would keep it alive; and an event may have the exception.
        del value, effect, made


def map_nested(effect: Effect, wrap: Callable[[Steps[Any]], Steps[Any]]) -> Effect:
    """Wrap the steps inside an effect, if it has any."""
    if isinstance(effect, Parallel):
        return Parallel([wrap(steps) for steps in effect.steps], effect.limit)
    if isinstance(effect, Bounded):
        return Bounded(wrap(effect.steps), seconds=effect.seconds, until=effect.until)
    return effect


def with_reporter(call: Call, wrap: Callable[[Reporter], Reporter]) -> Call:
    """Copy a call so that its function receives another reporter.

    Args:
        call: a call. One that is not ``reporting`` is returned unchanged.
        wrap: takes the driver's reporter, returns the one that the function receives. It is called
            once per call, where the function runs.
    """
    if not call.reporting:
        return call
    fn = call.fn

    def wrapped(*args: Any) -> Any:
        return fn(*args[:-1], wrap(args[-1]))

    return call.replace(fn=wrapped)
