"""Replaces components in a copy of a pipeline's components."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from treadle.errors import did_you_mean
from treadle.pipeline.compiler import Named
from treadle.pipeline.components import Component, Components, GotoPoint
from treadle.pipeline.errors import PipelineError


def edited(
    components: Components,
    known: Sequence[Named],
    names: Sequence[str],
    edit: Callable[[Component], Components],
) -> Components:
    """Copy components with some of them replaced.

    Args:
        components: the components of a pipeline.
        known: all of them, with the nested ones, in the order in which they were written.
        names: the names of those to replace.
        edit: takes one of them, returns its replacement.

    Raises:
        PipelineError: there is no component of a name, or there are several.
    """
    positions = {_position_of(name, known) for name in names}
    counter = itertools.count()

    def copy(sequence: Components) -> Components:
        return tuple(made for component in sequence for made in copy_one(component))

    def copy_one(component: Component) -> Components:
        position = next(counter)  # counted before the nested ones, as in `known`
        nested = component.nested()
        copies = [copy(sequence) for sequence in nested]
        copied = component if copies == nested else component.with_nested(copies)
        return edit(copied) if position in positions else (copied,)

    return copy(components)


def _position_of(name: str, known: Sequence[Named]) -> int:
    """The position of the component with a full name, else with a short name; points come last."""
    matches: dict[tuple[bool, bool], list[int]] = {}
    for position, one in enumerate(known):
        if name in {one.name, one.component.name}:
            rank = isinstance(one.component, GotoPoint), one.name != name
            matches.setdefault(rank, []).append(position)
    if not matches:
        raise PipelineError(
            f"there is no component {name!r}{did_you_mean(name, [one.name for one in known])}"
        )
    first, *others = matches[min(matches)]
    if others:
        several = ", ".join(repr(known[position].name) for position in (first, *others))
        raise PipelineError(f"there are several components {name!r}: {several}")
    return first
