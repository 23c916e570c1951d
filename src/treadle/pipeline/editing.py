"""Making one pipeline out of another."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from treadle.errors import did_you_mean
from treadle.pipeline.components import (
    EMBEDDED,
    PLUGGED,
    Component,
    Embed,
    GotoPoint,
    Names,
    PlugWith,
    Switch,
)
from treadle.pipeline.errors import PipelineError

Components: TypeAlias = tuple[Component, ...]
Remake: TypeAlias = Callable[[Any, Components], Any]
"""Makes a pipeline as another one is, of other components."""


def edited(
    components: Components,
    names: Sequence[str],
    edit: Callable[[Component], Components],
    remake: Remake,
) -> Components:
    """Put something else in place of some components, in a copy.

    Args:
        components: the components to look through, with all that is nested in them.
        names: the names of those to edit.
        edit: takes one of them, returns what stands in its place.
        remake: makes a pipeline that is embedded anew, where it was edited.

    Raises:
        PipelineError: there is none of a name, or there are several.
    """
    known = named(components)
    places = {_place_of(name, known) for name in names}
    return _Edit(places, edit, remake).copy(components)


def named(components: Components) -> list[tuple[str, Component, int]]:
    """All components, in the order they are written: full name, component, how deeply nested."""
    return list(_named(components, Names(), "", 0))


def _named(
    components: Components, names: Names, prefix: str, depth: int
) -> Iterator[tuple[str, Component, int]]:
    for component in components:
        is_point = isinstance(component, GotoPoint)  # points have a name space of their own
        name = prefix + component.name if is_point else names.take(component, prefix)
        yield name, component, depth
        match component:
            case Switch(branches=branches):
                for branch in branches.values():
                    yield from _named(branch, names, prefix, depth + 1)
            case PlugWith(components=inner):
                yield from _named(inner, names, name + PLUGGED, depth + 1)
            case Embed(pipeline=pipeline):
                yield from _named(pipeline.components, names, name + EMBEDDED, depth + 1)
            case _:
                pass


def _place_of(name: str, known: list[tuple[str, Component, int]]) -> int:
    """Which one it is: that of this full name, else that of this own name; points come last."""
    for of_points in (False, True):
        places = [
            place
            for place, (_, made, _) in enumerate(known)
            if isinstance(made, GotoPoint) is of_points
        ]
        full = [place for place in places if known[place][0] == name]
        own = [place for place in places if known[place][1].name == name]
        found = full or own
        if len(found) > 1:
            several = ", ".join(repr(known[place][0]) for place in found)
            raise PipelineError(f"there are several components {name!r}: {several}")
        if found:
            return found[0]
    raise PipelineError(
        f"there is no component {name!r}{did_you_mean(name, [full for full, _, _ in known])}"
    )


class _Edit:
    """One pass through the components, which counts them in the order of `named`."""

    def __init__(
        self, places: set[int], edit: Callable[[Component], Components], remake: Remake
    ) -> None:
        self._places = places
        self._edit = edit
        self._remake = remake
        self._count = itertools.count()

    def copy(self, components: Components) -> Components:
        return tuple(made for component in components for made in self._one(component))

    def _one(self, component: Component) -> Components:
        is_meant = next(self._count) in self._places
        copied = self._nested(component)
        return self._edit(copied) if is_meant else (copied,)

    def _nested(self, component: Component) -> Component:
        match component:
            case Switch(branches=branches):
                copies = {key: self.copy(branch) for key, branch in branches.items()}
                return dataclasses.replace(component, branches=copies)
            case PlugWith(components=inner):
                return dataclasses.replace(component, components=self.copy(inner))
            case Embed(pipeline=pipeline):
                copied = self.copy(pipeline.components)
                if copied == pipeline.components:
                    return component
                return dataclasses.replace(component, pipeline=self._remake(pipeline, copied))
            case _:
                return component
