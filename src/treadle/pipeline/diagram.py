"""Pictures of a pipeline: a Mermaid flowchart, and an outline in plain text."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

from treadle.pipeline.components import (
    Component,
    Composer,
    DeadEnd,
    Done,
    Embed,
    Goto,
    GotoPoint,
    PlugWith,
    Stage,
    Switch,
    Tbd,
)

Ends = list[tuple[str, str]]
"""Nodes from which an edge goes on, each with the label of that edge."""


def mermaid(components: Sequence[Component]) -> str:
    """Draw components as a Mermaid flowchart, top down."""
    return _Flowchart().draw(components)


@dataclasses.dataclass
class _Scope:
    """What the jumps and the early exits of one pipeline reach."""

    points: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    jumps: list[tuple[str, str]] = dataclasses.field(default_factory=list[tuple[str, str]])
    exits: Ends = dataclasses.field(default_factory=list[tuple[str, str]])


class _Flowchart:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._numbers = itertools.count(1)
        self._edges: list[str] = []
        self._scope = _Scope()

    def draw(self, components: Sequence[Component]) -> str:
        start = self._node("([in])")
        ends = self._whole(components, [(start, "")])
        self._join(ends, self._node("([out])"))
        # A node belongs to the box in which it is first named, so the edges come after all boxes.
        lines = (f"    {line}" for line in (*self._lines, *self._edges))
        return "\n".join(["flowchart TD", *lines]) + "\n"

    def _whole(self, components: Sequence[Component], ends: Ends) -> Ends:
        """Draw what has its own points and its own end."""
        outer, self._scope = self._scope, _Scope()
        ends = self._sequence(components, ends)
        for node, point in self._scope.jumps:
            self._edge(node, self._scope.points[point], "yes")
        ends = [*ends, *self._scope.exits]
        self._scope = outer
        return ends

    def _node(self, shape: str) -> str:
        node = f"n{next(self._numbers)}"
        self._lines.append(f"{node}{shape}")
        return node

    def _edge(self, source: str, target: str, label: str = "") -> None:
        arrow = f'-->|"{_escaped(label)}"|' if label else "-->"
        self._edges.append(f"{source} {arrow} {target}")

    def _join(self, ends: Ends, node: str) -> None:
        for source, label in ends:
            self._edge(source, node, label)

    def _sequence(self, components: Sequence[Component], ends: Ends) -> Ends:
        for component in components:
            ends = self._component(component, ends)
        return ends

    def _component(self, component: Component, ends: Ends) -> Ends:  # noqa: PLR0911 - one a kind
        match component:
            case Embed(pipeline=inner):
                return self._group(component.name, inner.components, ends)
            case PlugWith(components=inner):
                return self._group(f"{component.name} (plugged)", inner, ends)
            case _:
                pass
        node = self._node(_shape(component))
        self._join(ends, node)
        match component:
            case Switch(branches=branches):
                return [
                    end
                    for key, branch in branches.items()
                    for end in self._sequence(branch, [(node, str(key))])
                ]
            case Goto(point=point):
                self._scope.jumps.append((node, point))
                return [(node, "no")]
            case GotoPoint(name=name):
                self._scope.points[name] = node
            case Done():
                self._scope.exits.append((node, "yes"))
                return [(node, "no")]
            case DeadEnd():
                return []
            case _:
                pass
        return [(node, "")]

    def _group(self, title: str, components: Sequence[Component], ends: Ends) -> Ends:
        self._lines.append(f'subgraph g{next(self._numbers)}["{_escaped(title)}"]')
        inner = self._whole(components, ends)
        self._lines.append("end")
        return inner


def _shape(component: Component) -> str:
    name = _escaped(component.name)
    match component:
        case Switch() | Goto() | Done():
            return f'{{"{name}"}}'
        case GotoPoint():
            return f'(("{name}"))'
        case DeadEnd():
            return f'[/"{name}"/]'
        case Composer():
            return f'[["{name}"]]'
        case Tbd():
            return f'>"{name} (to be done)"]'
        case _:
            return f'["{name}"]'


def _escaped(label: str) -> str:
    """A label that Mermaid shows as it is: what could mean something to it is a character code."""
    return re.sub(r"[^\w .,()+/=:?!'-]", lambda found: f"#{ord(found[0])};", label)


def text(components: Sequence[Component]) -> str:
    """Draw components as an outline, one a line, what is nested indented."""
    return "\n".join(_outline(components, "")) + "\n"


def _outline(components: Sequence[Component], indent: str) -> Iterator[str]:
    for component in components:
        yield f"{indent}{_line(component)}"
        match component:
            case Switch(branches=branches):
                for key, branch in branches.items():
                    yield f"{indent}  {_printed(str(key))}:"
                    yield from _outline(branch, f"{indent}    ")
            case PlugWith(components=inner):
                yield from _outline(inner, f"{indent}  ")
            case Embed(pipeline=pipeline):
                yield from _outline(pipeline.components, f"{indent}  ")
            case _:
                pass


def _line(component: Component) -> str:
    name = _printed(component.name)
    match component:
        case Stage(count=count):
            return f"{name} (x{count})" if count else name
        case Tbd():
            return f"{name} (to be done)"
        case Goto(point=point):
            return (
                f"goto {_printed(point)}"
                if component.anonymous
                else f"goto {_printed(point)} if {name}"
            )
        case Done() | DeadEnd():
            return name if component.anonymous else f"{_KINDS[type(component)]} {name}"
        case _:
            return f"{_KINDS.get(type(component), '')} {name}".strip()


_KINDS: dict[type[Component], str] = {
    Composer: "composer",
    DeadEnd: "dead_end",
    Done: "done",
    Embed: "embed",
    GotoPoint: "goto_point",
    PlugWith: "plug_with",
    Switch: "switch",
}


def _printed(name: str) -> str:
    """A name on one line."""
    return name if name.isprintable() else repr(name)
