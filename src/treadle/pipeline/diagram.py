"""Diagrams of a pipeline: a Mermaid flowchart, and an outline in plain text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeAlias

from treadle.pipeline.compiler import EXIT, Component

Ends: TypeAlias = list[tuple[str, str]]
"""Nodes that the next node is connected to, each with the label of the edge."""


def mermaid(components: Sequence[Component]) -> str:
    """Draw components as a Mermaid flowchart, top down."""
    chart = _Flowchart()
    start = chart.node("([in])", [])
    chart.node("([out])", chart.part(components, [(start, "")]))
    # A node belongs to the box in which it is first named, so the edges come after all boxes.
    lines = (f"    {line}" for line in (*chart.lines, *chart.edges))
    return "\n".join(["flowchart TD", *lines]) + "\n"


class _Flowchart:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.edges: list[str] = []
        self._numbers = itertools.count(1)

    def node(self, shape: str, ends: Ends) -> str:
        node = f"n{next(self._numbers)}"
        self.lines.append(f"{node}{shape}")
        for source, label in ends:
            self._edge(source, node, label)
        return node

    def _edge(self, source: str, target: str, label: str) -> None:
        arrow = f'-->|"{_escaped(label)}"|' if label else "-->"
        self.edges.append(f"{source} {arrow} {target}")

    def part(self, components: Sequence[Component], ends: Ends) -> Ends:
        """Draw components that have separate points and a separate end."""
        points: dict[Hashable, str] = {}
        jumps: list[tuple[str, Hashable]] = []

        def draw(components: Sequence[Component], ends: Ends) -> Ends:
            for component in components:
                look, parts = component.look, component.parts
                shape = look.shape.format(_escaped(component.name))
                if look.is_box:
                    self.lines.append(f'subgraph g{next(self._numbers)}["{shape}"]')
                    ends = self.part(parts[""], ends)
                    self.lines.append("end")
                    continue
                node = self.node(shape, ends)
                ends = [(node, "")] if look.continues else []
                if look.is_point:
                    points[component.name] = node
                elif look.jump is not None:
                    jumps.append((node, look.jump))
                    ends = [(node, "no")]
                elif parts:
                    ways = ((branch, [(node, str(key))]) for key, branch in parts.items())
                    ends = [end for way in ways for end in draw(*way)]
            return ends

        ends = draw(components, ends)
        for node, point in jumps:
            if point == EXIT:
                ends.append((node, "yes"))
            else:
                self._edge(node, points[point], "yes")
        return ends


def _escaped(label: str) -> str:
    """Replace the characters that may have a meaning in Mermaid by character codes."""
    return re.sub(r"[^\w .,()+/=:?!'-]", lambda found: f"#{ord(found[0])};", label)


def text(components: Sequence[Component]) -> str:
    """Draw components as an outline, one per line, nested ones indented."""
    return "\n".join(_outline(components, "")) + "\n"


def _outline(components: Sequence[Component], indent: str) -> Iterator[str]:
    for component in components:
        yield indent + _on_one_line(component.look.title.format(component.name, component))
        for key, part in component.parts.items():
            inner = f"{indent}  "
            if not component.look.is_box:
                yield f"{inner}{_on_one_line(str(key))}:"
                inner += "  "
            yield from _outline(part, inner)


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else repr(text)
