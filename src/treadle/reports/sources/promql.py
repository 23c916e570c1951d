"""A parser for the subset of PromQL that the panels use.

Numbers, selectors, ``rate`` and ``increase`` over a window, ``sum by``, ``histogram_quantile``, ``vector``,
arithmetic, comparisons and ``or``. Everything else is rejected with an error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeAlias

from treadle.reports.sources.source import RefusedError


@dataclass(frozen=True, slots=True)
class Number:
    """A number."""

    value: float


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on a label; ``operator`` is one of ``=``, ``!=``, ``=~`` and ``!~``."""

    label: str
    operator: str
    value: str

    def fits(self, value: str) -> bool:
        """Whether a value matches. A missing label has an empty value."""
        if self.operator in {"=", "!="}:
            return (value == self.value) == (self.operator == "=")
        return bool(re.fullmatch(self.value, value)) == (self.operator == "=~")


@dataclass(frozen=True, slots=True)
class Selector:
    """The series of one metric; with a ``window``, the samples of so many seconds before each point."""

    metric: str
    matchers: tuple[Matcher, ...]
    window: float | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A function call."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of series, grouped by labels."""

    by: tuple[str, ...]
    of: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary operator with its operands."""

    operator: str
    left: Node
    right: Node


Node: TypeAlias = Number | Selector | Call | Sum | Binary

_BINDS = {
    "or": 1,
    ">": 2,
    ">=": 2,
    "<": 2,
    "<=": 2,
    "==": 2,
    "!=": 2,
    "+": 3,
    "-": 3,
    "*": 4,
    "/": 4,
}
"""The precedence of each operator."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<duration>(?:\d+(?:ms|[smhdwy]))+)(?![\w.])
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?!\w)
    |(?P<name>[A-Za-z_:][\w:]*)
    |(?P<text>"(?:[^"\\]|\\.)*")
    |(?P<sign>=~|!~|!=|==|>=|<=|[-+*/(){}\[\],=<>]))""",
    re.VERBOSE,
)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}


def parse(expression: str) -> Node:
    """Parse an expression.

    Args:
        expression: PromQL without placeholders.

    Raises:
        RefusedError: it is not valid, or it uses unsupported PromQL.
    """
    reader = _Reader(expression)
    node = reader.expression(0)
    reader.end()
    return node


class _Reader:
    """A precedence climbing parser."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = list(_tokens(expression))
        self._place = 0

    def expression(self, floor: int) -> Node:
        """An expression whose operators have a higher precedence than ``floor``."""
        left = self._operand()
        while (binds := _BINDS.get(self._text, 0)) > floor:
            operator = self._next()
            left = Binary(operator, left, self.expression(binds))
        return left

    def end(self) -> None:
        if self._text:
            raise self._refused()

    def _operand(self) -> Node:
        kind, text = self._tokens[self._place]
        if text == "(":
            self._next()
            inner = self.expression(0)
            self._take(")")
            return inner
        if kind == "number":
            return Number(float(self._next()))
        if kind != "name":
            raise self._refused()
        self._next()
        if text == "sum":
            return self._sum()
        return self._call(text) if self._is("(") else self._selector(text)

    def _sum(self) -> Node:
        by: list[str] = []
        if self._is("by"):
            self._next()
            self._take("(")
            while not self._is(")"):
                by.append(self._next("name"))
                if not self._is(")"):
                    self._take(",")
            self._take(")")
        self._take("(")
        inner = self.expression(0)
        self._take(")")
        return Sum(tuple(by), inner)

    def _call(self, function: str) -> Node:
        arguments: list[Node] = []
        self._take("(")
        while True:
            arguments.append(self.expression(0))
            if not self._is(","):
                break
            self._next()
        self._take(")")
        return Call(function, tuple(arguments))

    def _selector(self, metric: str) -> Node:
        matchers: list[Matcher] = []
        if self._is("{"):
            self._next()
            while not self._is("}"):
                matchers.append(self._matcher())
                if not self._is("}"):
                    self._take(",")
            self._take("}")
        window = None
        if self._is("["):
            self._next()
            window = seconds(self._next("duration"))
            self._take("]")
        return Selector(metric, tuple(matchers), window)

    def _matcher(self) -> Matcher:
        label, operator, value = self._next("name"), self._next("sign"), self._next("text")
        if operator not in {"=", "!=", "=~", "!~"}:
            raise self._refused()
        return Matcher(label, operator, str(json.loads(value)))

    @property
    def _text(self) -> str:
        return self._tokens[self._place][1]

    def _is(self, text: str) -> bool:
        return self._text == text

    def _next(self, kind: str | None = None) -> str:
        found, text = self._tokens[self._place]
        if kind not in {None, found} or not text:
            raise self._refused()
        self._place += 1
        return text

    def _take(self, text: str) -> None:
        if self._next() != text:
            self._place -= 1
            raise self._refused()

    def _refused(self) -> RefusedError:
        found = self._text or "the end"
        return RefusedError(f"cannot read {self._expression!r}: unexpected {found!r}")


def _tokens(expression: str) -> list[tuple[str, str]]:
    """The tokens, each with its kind, and an empty one at the end."""
    found: list[tuple[str, str]] = []
    place, end = 0, len(expression.rstrip())
    while place < end:
        match = _TOKEN.match(expression, place)
        if match is None or match.lastgroup is None:
            raise RefusedError(
                f"cannot read {expression!r} from {expression[place : place + 20]!r} on"
            )
        found.append((match.lastgroup, match[match.lastgroup]))
        place = match.end()
    return [*found, ("end", "")]


def seconds(text: str) -> float:
    """The seconds of a PromQL duration: ``1h30m`` is 5400."""
    parts = re.findall(r"(\d+)(ms|[smhdwy])", text)
    return float(sum(int(number) * _SECONDS[unit] for number, unit in parts))
