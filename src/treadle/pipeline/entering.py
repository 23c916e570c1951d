"""Where an item can enter a program other than at its beginning."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.pipeline.compiler import Kind, Op
from treadle.pipeline.components import Component, GotoPoint
from treadle.pipeline.editing import named
from treadle.pipeline.errors import PipelineError


def place_of(start: str, components: tuple[Component, ...], ops: Sequence[Op]) -> int:
    """The place of a stage at which an item may enter.

    Args:
        start: its name.
        components: those of the pipeline.
        ops: their program.

    Raises:
        PipelineError: there is none of this name, or it is nested in something that an item has to
            enter first, or comes after a composer, which makes other items of those that enter.
    """
    places = places_of(components, ops)
    if start not in places:
        known = ", ".join(places) or "none"
        raise PipelineError(f"an item cannot start at {start!r}; where it can: {known}")
    return places[start]


def places_of(components: tuple[Component, ...], ops: Sequence[Op]) -> dict[str, int]:
    """The places at which an item may enter, by the names of what stands there.

    Args:
        components: those of the pipeline.
        ops: their program.
    """
    top = {
        name
        for name, made, depth in named(components)
        if depth == 0 and not isinstance(made, GotoPoint)
    }
    places: dict[str, int] = {}
    for at, op in enumerate(ops):
        if op.name in top:
            places.setdefault(op.name, at)  # a plug has a second one, where the item comes out
        if op.kind is Kind.COMPOSE:
            break
    return places
