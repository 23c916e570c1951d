"""What a run works with."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.loop.ask import Asker
from treadle.pipeline import Pipeline
from treadle.stages import Resolver
from treadle.types import Context, Limits, Tool


@dataclass(frozen=True, slots=True)
class Plant:
    """What a run works with, made ready before it starts.

    Args:
        pipeline: the stages.
        asker: asks the model.
        tools: what the model may call, by name.
        resolver: runs the calls of tools without a function.
        limits: how much the run may take.
        loop_threshold: iterations alike that end the run.
        watched: whether anybody listens.
        can_cancel: whether anybody holds a handle.
    """

    pipeline: Pipeline[Context]
    asker: Asker
    tools: dict[str, Tool]
    resolver: Resolver | None
    limits: Limits
    loop_threshold: int
    watched: bool
    can_cancel: bool
