"""A parser for the subset of PromQL that the panels use.

Numbers, selectors, ``rate`` and ``increase`` over a window, ``sum by``, ``histogram_quantile``, ``vector``,
arithmetic, comparisons and ``or``. Everything else is rejected with an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar

from treadle.reports.sources.source import RefusedError

_T = TypeVar("_T")


class Number(NamedTuple):
    """A number."""

    value: float


class Matcher(NamedTuple):
    """A condition on a label; ``operator`` is one of ``=``, ``!=``, ``=~`` and ``!~``."""

    label: str
    operator: str
    value: str

    def fits(self, value: str) -> bool:
        """Whether a value matches. A missing label has an empty value."""
        if self.operator in {"=", "!="}:
            return (value == self.value) == (self.operator == "=")
        return bool(re.fullmatch(self.value, value)) == (self.operator == "=~")


class Selector(NamedTuple):
    """The series of one metric; with a ``window``, the samples of so many seconds before each point."""

    metric: str
    matchers: tuple[Matcher, ...]
    window: float | None = None


class Call(NamedTuple):
    """A function call."""

    function: str
    arguments: tuple[Node, ...]


class Sum(NamedTuple):
    """The sum of series, grouped by labels."""

    by: tuple[str, ...]
    of: Node


class Binary(NamedTuple):
    """A binary operator with its operands."""

    operator: str
    left: Node
    right: Node


Node: TypeAlias = Number | Selector | Call | Sum | Binary

_LEVELS = ("or", "> >= < <= == !=", "+ -", "* /")
_BINDS = {sign: level for level, signs in enumerate(_LEVELS, 1) for sign in signs.split()}
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
    """Parse PromQL without placeholders. Raises `RefusedError` if it is invalid or not supported."""
    return _Reader(expression).whole()


class _Reader:
    """A precedence climbing parser."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = _tokens(expression)
        self._place = 0

    def whole(self) -> Node:
        node = self._binary(0)
        self._take(kind="end")
        return node

    def _binary(self, floor: int) -> Node:
        """An expression whose operators have a higher precedence than ``floor``."""
        left = self._operand()
        while (binds := _BINDS.get(self._text, 0)) > floor:
            left = Binary(self._take(), left, self._binary(binds))
        return left

    def _operand(self) -> Node:
        kind, text = self._tokens[self._place]
        if text == "(":
            return self._in_parentheses()
        if kind == "number":
            return Number(float(self._take()))
        self._take(kind="name")
        if text == "sum":
            by = self._list("(", ")", lambda: self._take(kind="name")) if self._skip("by") else ()
            return Sum(by, self._in_parentheses())
        if self._text == "(":
            return Call(text, self._list("(", ")", lambda: self._binary(0)))
        matchers = self._list("{", "}", self._matcher) if self._text == "{" else ()
        window = None
        if self._skip("["):
            window = seconds(self._take(kind="duration"))
            self._take("]")
        return Selector(text, matchers, window)

    def _in_parentheses(self) -> Node:
        self._take("(")
        inner = self._binary(0)
        self._take(")")
        return inner

    def _list(self, start: str, end: str, item: Callable[[], _T]) -> tuple[_T, ...]:
        """Items in brackets, with commas between them."""
        items: list[_T] = []
        self._take(start)
        while not self._skip(end):
            items.append(item())
            if self._text != end:
                self._take(",")
        return tuple(items)

    def _matcher(self) -> Matcher:
        label, operator = self._take(kind="name"), self._take(kind="sign")
        value = self._take(kind="text")
        if operator not in {"=", "!=", "=~", "!~"}:
            raise self._refused()
        return Matcher(label, operator, str(json.loads(value)))

    @property
    def _text(self) -> str:
        return self._tokens[self._place][1]

    def _take(self, text: str | None = None, *, kind: str | None = None) -> str:
        """The next token, which must be this text, or of this kind."""
        found = self._tokens[self._place]
        if kind not in {None, found[0]} or text not in {None, found[1]}:
            raise self._refused()
        self._place += 1
        return found[1]

    def _skip(self, text: str) -> bool:
        is_next = self._text == text
        self._place += is_next
        return is_next

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
