"""What a run works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from treadle.loop.ask import Asker
from treadle.loop.handle import RunHandle
from treadle.pipeline import Pipeline
from treadle.stages import CircuitBreaker, Locks, Resolver
from treadle.types import Budget, Context, Limits, Response, Tool


@dataclass(frozen=True, slots=True)
class Plant:
    """What a run works with, made ready before it starts.

    Args:
        pipeline: the stages.
        asker: asks the model.
        tools: what the model may call, by name.
        resolver: runs the calls of tools without a function.
        limits: how much the run may take.
        loop_threshold: rounds alike that end the run; None is any number.
        finishes: whether the model is asked for a last answer at a limit.
        tell_budget: whether the model is told what is left.
        price: works out what a response cost; None where nobody does.
        watched: whether anybody listens.
        handle: who may end or steer the run; None is nobody.
        locks: who holds which key; None makes a table.
        breaker: is asked before calls are made; None is nobody.
        pause_secret: signs the state of a paused run; None does not.
        around: the run that this one is a call of; None where it is none.
    """

    pipeline: Pipeline[Context]
    asker: Asker
    tools: dict[str, Tool]
    resolver: Resolver | None
    limits: Limits
    loop_threshold: int | None
    finishes: bool = False
    tell_budget: bool = False
    price: Callable[[Response], float | None] | None = None
    watched: bool = False
    handle: RunHandle | None = None
    locks: Locks | None = None
    breaker: CircuitBreaker | None = None
    pause_secret: bytes | None = None
    around: Around | None = None


@dataclass(frozen=True, slots=True)
class Around:
    """What a run has of the run that it is a call of.

    Args:
        budget: is drawn on too.
        locks: the table of that run.
        held: the keys that are held around this run, each with the name under which it is held.
        is_bounded: whether that run has a bound at which calls are given up.
    """

    budget: Budget
    locks: Locks
    held: Mapping[str, str]
    is_bounded: bool
