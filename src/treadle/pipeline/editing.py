"""Making one pipeline out of another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from treadle.pipeline.components import Component, PlugWith, Switch
from treadle.pipeline.errors import PipelineError, did_you_mean

Components = tuple[Component, ...]


def edited(
    components: Components, name: str, edit: Callable[[Component], Components]
) -> Components:
    """Put something else in place of one component, in a copy.

    Args:
        components: the components to look through, branches and plugs included.
        name: the name of the one to edit.
        edit: takes it, returns what stands in its place.

    Raises:
        PipelineError: there is none of this name.
    """
    known: list[str] = []
    made = _edited(components, name, edit, known)
    if name not in known:
        raise PipelineError(f"there is no component {name!r}{did_you_mean(name, known)}")
    return made


def _edited(
    components: Components,
    name: str,
    edit: Callable[[Component], Components],
    known: list[str],
) -> Components:
    out: list[Component] = []
    for component in components:
        known.append(component.name)
        if component.name == name:
            out.extend(edit(component))
        elif isinstance(component, Switch):
            branches = {
                key: _edited(branch, name, edit, known)
                for key, branch in component.branches.items()
            }
            out.append(dataclasses.replace(component, branches=branches))
        elif isinstance(component, PlugWith):
            inner = _edited(component.components, name, edit, known)
            out.append(dataclasses.replace(component, components=inner))
        else:
            out.append(component)
    return tuple(out)
