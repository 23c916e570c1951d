"""Pictures of a pipeline: a Mermaid flowchart, and an outline in plain text."""

from __future__ import annotations

import itertools
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


class _Flowchart:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._numbers = itertools.count(1)
        self._points: dict[str, str] = {}
        self._jumps: list[tuple[str, str]] = []
        self._exits: Ends = []

    def draw(self, components: Sequence[Component]) -> str:
        start = self._node("([in])")
        ends = self._sequence(components, [(start, "")])
        self._join([*ends, *self._exits], self._node("([out])"))
        for node, point in self._jumps:
            self._edge(node, self._points.get(point, point), "yes")
        return "\n".join(["flowchart TD", *(f"    {line}" for line in self._lines)]) + "\n"

    def _node(self, shape: str) -> str:
        node = f"n{next(self._numbers)}"
        self._lines.append(f"{node}{shape}")
        return node

    def _edge(self, source: str, target: str, label: str = "") -> None:
        arrow = f'-->|"{_escaped(label)}"|' if label else "-->"
        self._lines.append(f"{source} {arrow} {target}")

    def _join(self, ends: Ends, node: str) -> None:
        for source, label in ends:
            self._edge(source, node, label)

    def _sequence(self, components: Sequence[Component], ends: Ends) -> Ends:
        for component in components:
            ends = self._component(component, ends)
        return ends

    def _component(self, component: Component, ends: Ends) -> Ends:
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
                self._jumps.append((node, point))
                return [(node, "no")]
            case GotoPoint(name=name):
                self._points[name] = node
            case Done():
                self._exits.append((node, "yes"))
                return [(node, "no")]
            case DeadEnd():
                return []
            case _:
                pass
        return [(node, "")]

    def _group(self, title: str, components: Sequence[Component], ends: Ends) -> Ends:
        self._lines.append(f'subgraph g{next(self._numbers)}["{_escaped(title)}"]')
        outer, self._exits = self._exits, []
        inner = self._sequence(components, ends)
        inner += self._exits
        self._exits = outer
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
    return label.replace('"', "#quot;")


def text(components: Sequence[Component]) -> str:
    """Draw components as an outline, one a line, what is nested indented."""
    return "\n".join(_outline(components, "")) + "\n"


def _outline(components: Sequence[Component], indent: str) -> Iterator[str]:
    for component in components:
        yield f"{indent}{_line(component)}"
        match component:
            case Switch(branches=branches):
                for key, branch in branches.items():
                    yield f"{indent}  {key}:"
                    yield from _outline(branch, f"{indent}    ")
            case PlugWith(components=inner):
                yield from _outline(inner, f"{indent}  ")
            case Embed(pipeline=pipeline):
                yield from _outline(pipeline.components, f"{indent}  ")
            case _:
                pass


def _line(component: Component) -> str:
    match component:
        case Stage(count=count) if count:
            return f"{component.name} (x{count})"
        case Stage() | Goto():
            return component.name
        case GotoPoint():
            return f"point {component.name}"
        case Tbd():
            return f"{component.name} (to be done)"
        case _:
            kind = type(component).__name__.lower()
            return component.name if component.name.startswith(kind[:4]) else f"{kind} {component.name}"
