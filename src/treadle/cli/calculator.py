"""Arithmetic for a model: evaluates one expression to one finite number.

The parser is written by hand and evaluates while it reads, in place of `ast` with a whitelist. Nothing has to
be forbidden, since the grammar has no attributes, strings or comprehensions; Python's parser cannot print
warnings; and errors can advise what to write instead.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final

Number = int | float

# Large enough for any calculation that a person would write. Integers stay printable (CPython refuses to print
# more than 4300 digits, 4096 bits are 1234), so a result always reaches the model.
MAX_LENGTH: Final = 500
MAX_DEPTH: Final = 50
MAX_BITS: Final = 4096
MAX_ROUNDING: Final = 400  # beyond any float's digits; Python's round computes 10**n for an integer
SHOWN: Final = 20  # characters of the expression quoted in an error

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<sign>\*\*|//|[-+*/%(),])|(?P<stray>\S))",
)
_INSTEAD: Final = {
    "^": "write ** for a power",
    "×": "write * to multiply",  # noqa: RUF001 - the sign a model may well type
    "÷": "write / to divide",
    "−": "write - to subtract",  # noqa: RUF001 - the same
    ",": "write numbers without thousands separators",
    "=": "give only the expression to compute",
}


class CalculationError(ValueError):
    """The expression is not valid, or it has no finite real result within the bounds."""


def calculate(expression: str) -> int | float:
    """Compute an arithmetic expression, exactly for integers.

    Args:
        expression: Numbers with + - * / // % (remainder) ** (power) and parentheses, the functions
            sqrt, abs, round, min, max, the constants pi and e, such as "sqrt(2) * (3 + 4) ** 2".

    Returns:
        The value that Python computes: an `int` if all operations return integers, otherwise a `float`.

    Raises:
        CalculationError: The expression is not arithmetic, or its value is not finite, not real or
            out of bounds.
    """
    if len(expression) > MAX_LENGTH:
        raise CalculationError(f"the expression is longer than {MAX_LENGTH} characters")
    try:
        return _Parser(expression).whole()
    except ZeroDivisionError:
        raise CalculationError("division by zero") from None
    except OverflowError:
        raise CalculationError("the result is too large for a decimal number") from None


def _bounded(value: Number | complex) -> Number:
    """The value, if later steps and the model can use it."""
    if isinstance(value, complex):
        raise CalculationError("a fractional power of a negative number has no real result")
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise CalculationError(f"an integer here is larger than 2 ** {MAX_BITS}")
    elif not math.isfinite(value):
        raise OverflowError
    return value


def _literal(text: str) -> Number:
    if not text.isdigit():
        return _bounded(float(text))
    if text.startswith("0") and len(text) > 1:
        # As in Python, and it catches max(1,000, 5), which would be three numbers.
        raise CalculationError(f"the number {_shown(text)!r} starts with 0")
    return int(text)


def _power(base: Number, exponent: Number) -> Number | complex:
    # A base of n bits is at least 2 ** (n - 1): this refuses only what is surely out of bounds,
    # before computing it, and what it lets through is at most twice the bound.
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and max(int(base).bit_length() - 1, 0) * exponent > MAX_BITS:
        raise CalculationError(f"{_shown(str(base))} ** {_shown(str(exponent))} is too large")
    result: Number | complex = base**exponent
    return result


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _sqrt(value: Number) -> Number:
    if value < 0:
        raise CalculationError("sqrt of a negative number has no real result")
    return math.sqrt(value)


def _round(value: Number, digits: Number | None = None) -> Number:
    if digits is None:
        return round(value)
    if not isinstance(digits, int) or abs(digits) > MAX_ROUNDING:
        raise CalculationError(f"round takes a whole number of digits, at most {MAX_ROUNDING}")
    return round(value, digits)


_CONSTANTS: Final = {"pi": math.pi, "e": math.e}
# Each function with how few and how many arguments it takes.
_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], int, int]]] = {
    "sqrt": (_sqrt, 1, 1),
    "abs": (abs, 1, 1),
    "round": (_round, 1, 2),
    "min": (lambda *values: min(values), 1, MAX_LENGTH),
    "max": (lambda *values: max(values), 1, MAX_LENGTH),
}
_OPERATIONS: Final[dict[str, tuple[int, Callable[[Number, Number], Number]]]] = {
    "+": (1, lambda a, b: a + b),
    "-": (1, lambda a, b: a - b),
    "*": (2, lambda a, b: a * b),
    "/": (2, lambda a, b: a / b),
    "//": (2, lambda a, b: a // b),
    "%": (2, lambda a, b: a % b),
}
"""Those from left to right: how strongly each binds, and what it computes."""


class _Parser:
    """Recursive descent over the tokens, one method a rule, with Python's precedences.

    sum: factor (OPERATION factor)*, where a stronger operation takes its operands first
    factor: ("+" | "-") factor | power     power: atom ["**" factor]
    atom: NUMBER | CONSTANT | FUNCTION "(" sum ("," sum)* ")" | "(" sum ")"
    """

    def __init__(self, expression: str) -> None:
        self._tokens = [(m[m.lastgroup or 0], m.lastgroup) for m in _TOKEN.finditer(expression)]
        self._tokens.append(("", "end"))
        self._next = 0
        self._depth = 0

    def whole(self) -> Number:
        if len(self._tokens) == 1:
            raise CalculationError("the expression is empty")
        value = self._sum()
        if self._next < len(self._tokens) - 1:
            raise self._unexpected()
        return value

    def _sum(self, least: int = 1) -> Number:
        """Operations from left to right, as far as they bind at least so strongly."""
        value = self._factor()
        while True:
            strength, operation = _OPERATIONS.get(self._peek(), (0, None))
            if operation is None or strength < least:
                return value
            self._next += 1
            value = _bounded(operation(value, self._sum(strength + 1)))

    def _factor(self) -> Number:
        # Every recursion of the grammar passes here, so this count limits all of them.
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CalculationError(f"the expression is nested deeper than {MAX_DEPTH} levels")
        if self._take("-"):
            value = -self._factor()
        elif self._take("+"):
            value = self._factor()
        else:
            value = self._power()
        self._depth -= 1
        return value

    def _power(self) -> Number:
        base = self._atom()
        return _bounded(_power(base, self._factor())) if self._take("**") else base

    def _atom(self) -> Number:
        if self._take("("):
            value = self._sum()
            self._close()
            return value
        text, kind = self._tokens[self._next]
        if kind == "number":
            self._next += 1
            return _literal(text)
        if kind == "name":
            self._next += 1
            return self._named(text)
        raise self._unexpected()

    def _named(self, name: str) -> Number:
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name not in _FUNCTIONS:
            known = ", ".join([*_FUNCTIONS, *_CONSTANTS])
            raise CalculationError(f"unknown name {_shown(name)!r}; known are {known}")
        if not self._take("("):
            raise CalculationError(f"{name} needs parentheses, as in {name}(2)")
        values = [self._sum()]
        while self._take(","):
            values.append(self._sum())
        self._close()
        function, fewest, most = _FUNCTIONS[name]
        if not fewest <= len(values) <= most:
            wanted = "1 number" if most == 1 else f"{fewest} to {most} numbers"
            raise CalculationError(f"{name} takes {wanted}, not {len(values)}")
        return _bounded(function(*values))

    def _peek(self) -> str:
        return self._tokens[self._next][0]

    def _take(self, sign: str) -> bool:
        found = self._peek() == sign
        self._next += found
        return found

    def _close(self) -> None:
        if not self._take(")"):
            raise self._unexpected("expected ')'")

    def _unexpected(self, hint: str = "") -> CalculationError:
        """The error for the next token, which fits no rule."""
        text, kind = self._tokens[self._next]
        if kind == "end":
            return CalculationError(f"the expression ends too early{hint and '; ' + hint}")
        if kind in {"number", "name"} or text == "(":
            hint = "an operator such as * is missing"
        hint = _INSTEAD.get(text, hint)
        so_far = "".join(token for token, _ in self._tokens[: self._next])
        place = f"after {so_far[-SHOWN:]!r}" if so_far else "at the start"
        return CalculationError(f"unexpected {_shown(text)!r} {place}{hint and '; ' + hint}")
