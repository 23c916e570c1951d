"""Diagrams of a pipeline: a Mermaid flowchart, and an outline in plain text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from treadle.pipeline.compiler import Component
from treadle.pipeline.components import (
    Container,
    Done,
    Goto,
    GotoPoint,
    Switch,
)

Ends: TypeAlias = list[tuple[str, str]]
"""Nodes that the next node is connected to, each with the label of the edge."""


def mermaid(components: Sequence[Component]) -> str:
    """Draw components as a Mermaid flowchart, top down."""
    return _Flowchart().draw(components)


class _Flowchart:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._numbers = itertools.count(1)
        self._edges: list[str] = []
        # The targets of the jumps and the early exits of the pipeline that is being drawn.
        self._points: dict[str, str] = {}
        self._jumps: list[tuple[str, str]] = []
        self._exits: Ends = []

    def draw(self, components: Sequence[Component]) -> str:
        start = self._node("([in])", [])
        self._node("([out])", self._whole(components, [(start, "")]))
        # A node belongs to the box in which it is first named, so the edges come after all boxes.
        lines = (f"    {line}" for line in (*self._lines, *self._edges))
        return "\n".join(["flowchart TD", *lines]) + "\n"

    def _whole(self, components: Sequence[Component], ends: Ends) -> Ends:
        """Draw components that have their own points and their own end."""
        outer = self._points, self._jumps, self._exits
        self._points, self._jumps, self._exits = {}, [], []
        ends = self._sequence(components, ends)
        for node, point in self._jumps:
            self._edge(node, self._points[point], "yes")
        ends = [*ends, *self._exits]
        self._points, self._jumps, self._exits = outer
        return ends

    def _node(self, shape: str, ends: Ends) -> str:
        node = f"n{next(self._numbers)}"
        self._lines.append(f"{node}{shape}")
        for source, label in ends:
            self._edge(source, node, label)
        return node

    def _edge(self, source: str, target: str, label: str) -> None:
        arrow = f'-->|"{_escaped(label)}"|' if label else "-->"
        self._edges.append(f"{source} {arrow} {target}")

    def _sequence(self, components: Sequence[Component], ends: Ends) -> Ends:
        for component in components:
            if isinstance(component, Container):
                ends = self._box(component, ends)
            else:
                ends = self._component(component, ends)
        return ends

    def _box(self, component: Container, ends: Ends) -> Ends:
        title = component.shape.format(_escaped(component.name))
        self._lines.append(f'subgraph g{next(self._numbers)}["{title}"]')
        ends = self._whole(component.components, ends)
        self._lines.append("end")
        return ends

    def _component(self, component: Component, ends: Ends) -> Ends:
        node = self._node(component.shape.format(_escaped(component.name)), ends)
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
            case Done():
                self._exits.append((node, "yes"))
                return [(node, "no")]
            case GotoPoint(name=name):
                self._points[name] = node
            case _:
                pass
        return [(node, "")] if component.continues else []


def _escaped(label: str) -> str:
    """Replace the characters that may have a meaning in Mermaid by character codes."""
    return re.sub(r"[^\w .,()+/=:?!'-]", lambda found: f"#{ord(found[0])};", label)


def text(components: Sequence[Component]) -> str:
    """Draw components as an outline, one per line, nested ones indented."""
    return "\n".join(_outline(components, "")) + "\n"


def _outline(components: Sequence[Component], indent: str) -> Iterator[str]:
    for component in components:
        yield f"{indent}{_title(component)}"
        if isinstance(component, Switch):
            for key, branch in component.branches.items():
                yield f"{indent}  {_on_one_line(str(key))}:"
                yield from _outline(branch, f"{indent}    ")
        else:
            for inner in component.nested():
                yield from _outline(inner, f"{indent}  ")


def _title(component: Component) -> str:
    name, title = component.name, component.title
    if component.anonymous and title == f"{name} {{0}}":  # not "done done"
        return name
    title = title.format(name, component)
    if isinstance(component, Goto) and not component.anonymous:
        title += f" if {name}"
    return _on_one_line(title)


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else repr(text)
