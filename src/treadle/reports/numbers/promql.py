"""The part of PromQL that the panels are written in, read into a tree.

Numbers, selectors, ``rate`` and ``increase`` over a window, ``sum by``, ``histogram_quantile``, ``vector``,
arithmetic, comparisons and ``or``. All else is refused with a message, never guessed at.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeAlias

from treadle.reports.numbers.source import RefusedError


@dataclass(frozen=True, slots=True)
class Number:
    """A number, the same at all times."""

    value: float


@dataclass(frozen=True, slots=True)
class Matcher:
    """What the value of a label has to be; ``operator`` is one of PromQL's four."""

    label: str
    operator: str
    value: str

    def fits(self, value: str) -> bool:
        """Whether a value is what is asked for; a label that is not there is empty."""
        if self.operator in {"=", "!="}:
            return (value == self.value) == (self.operator == "=")
        return bool(re.fullmatch(self.value, value)) == (self.operator == "=~")


@dataclass(frozen=True, slots=True)
class Selector:
    """Series of one metric; with a ``window`` in seconds, what came in that time before each point."""

    metric: str
    matchers: tuple[Matcher, ...]
    window: float | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A function of its arguments."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of series that are alike in some labels."""

    by: tuple[str, ...]
    of: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """Two sides and what is between them."""

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
"""How strongly an operator holds on to its sides."""

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
    """Read an expression.

    Args:
        expression: PromQL without placeholders.

    Raises:
        RefusedError: it is none, or it uses what is not computed here.
    """
    reader = _Reader(expression)
    node = reader.expression(0)
    reader.end()
    return node


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = list(_tokens(expression))
        self._place = 0

    def expression(self, floor: int) -> Node:
        """What is held together more strongly than ``floor``."""
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
        return RefusedError(f"cannot read {self._expression!r}: {found!r} was not expected here")


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
    """A PromQL duration in seconds: ``1h30m`` is 5400."""
    parts = re.findall(r"(\d+)(ms|[smhdwy])", text)
    return float(sum(int(number) * _SECONDS[unit] for number, unit in parts))
