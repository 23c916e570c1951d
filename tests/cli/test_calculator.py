"""The calculator gives what Python gives, says what is wrong, and cannot be made to work hard."""

import ast
import math
import operator
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.cli.calculator import (
    MAX_BITS,
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_ROUNDING,
    CalculationError,
    calculate,
)

FUNCTIONS = {
    "sqrt": math.sqrt,
    "abs": abs,
    "round": round,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
}
CONSTANTS = {"pi": math.pi, "e": math.e}
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


class OutOfBoundsError(ArithmeticError):
    """What the calculator refuses and Python would go on with."""


def python(expression):
    """Python's own arithmetic, refusing at each step what is not real, finite and small."""
    return _python(ast.parse(expression.strip(), mode="eval").body)


def _python(node):
    match node:
        case ast.Constant(value):
            pass
        case ast.Name(name):
            value = CONSTANTS[name]
        case ast.Call(ast.Name(name), arguments):
            value = FUNCTIONS[name](*map(_python, arguments))
        case ast.UnaryOp(sign, inner):
            value = OPERATIONS[type(sign)](_python(inner))
        case ast.BinOp(left, sign, right):
            left, right = _python(left), _python(right)
            huge = isinstance(left, int) and abs(left) > 1 and right > MAX_BITS
            if isinstance(sign, ast.Pow) and huge:
                raise OutOfBoundsError
            value = OPERATIONS[type(sign)](left, right)
    if isinstance(value, int):
        bounded = value.bit_length() <= MAX_BITS
    else:
        bounded = isinstance(value, float) and math.isfinite(value)
    if not bounded:
        raise OutOfBoundsError
    return value


numbers = st.one_of(
    st.integers(0, 10**6).map(str),
    st.floats(0, 1e300, allow_nan=False).map(repr),
    st.sampled_from(
        ["0", "1", "2", "3", ".5", "2.", "1e3", "2.5E-3", "pi", "e", "12345678901234567890"]
    ),
)


def _compound(inner):
    signs = st.sampled_from(["+", "-", "*", "/", "//", "%", "**", " + ", " ** "])
    return st.one_of(
        st.tuples(inner, signs, inner).map("".join),
        st.tuples(st.sampled_from(["-", "+", "- "]), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"( {text} )"),
        inner.map(lambda text: f"abs({text})"),
        inner.map(lambda text: f"sqrt({text})"),
        inner.map(lambda text: f"round({text})"),
        st.tuples(inner, st.integers(-5, 5)).map(lambda pair: f"round({pair[0]}, {pair[1]})"),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"max({', '.join(some)})"),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"min({','.join(some)})"),
    )


expressions = st.recursive(numbers, _compound, max_leaves=12).filter(lambda t: len(t) <= MAX_LENGTH)
small = st.recursive(st.integers(0, 12).map(str), _compound, max_leaves=8)


def _same_as_python(expression):
    try:
        expected = python(expression)
    except (ArithmeticError, ValueError):
        with pytest.raises(CalculationError):
            calculate(expression)
    else:
        found = calculate(expression)
        assert (found, type(found)) == (expected, type(expected))


@given(expressions)
def test_any_expression_has_pythons_value_and_type(expression):
    _same_as_python(expression)


@given(small)
def test_small_integers_have_pythons_value_and_type(expression):
    _same_as_python(expression)


@given(st.text(alphabet="0123456789.+-*/%(), eEpisqrtabmx^=!_\n\0'\"", max_size=60))
def test_no_text_gives_anything_but_a_finite_number_or_an_error(text):
    try:
        value = calculate(text)
    except CalculationError:
        return
    assert type(value) in {int, float}
    assert math.isfinite(value)


@given(st.text())
def test_no_unicode_surprises(text):
    try:
        calculate(text)
    except CalculationError as error:
        str(error).encode()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 4 - 3", 3),
        ("100 / 10 / 2", 5.0),
        ("2 ** 3 ** 2", 512),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("--3", 3),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("0 ** 0", 1),
        ("10 ** 20", 10**20),
        ("1 / 4", 0.25),
        ("sqrt(16) + abs(-3)", 7.0),
        ("round(2.5)", 2),
        ("round(3.14159, 2)", 3.14),
        ("round(1234, -2)", 1200),
        ("min(3, 1, 2) + max(4)", 5),
        ("2 * pi", 2 * math.pi),
        ("e", math.e),
        ("\t1\n+ 1 ", 2),
        ("1 ** 100000000000000000000", 1),
        ("(-1) ** 100000000000000000001", -1),
        ("0 ** 100000000000000000000", 0),
    ],
)
def test_value(expression, value):
    found = calculate(expression)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "the expression is empty"),
        (" \n", "the expression is empty"),
        ("1 +", "the expression ends too early"),
        ("(1", "the expression ends too early; expected ')'"),
        (")", "unexpected ')' at the start"),
        ("1)", "unexpected ')' after '1'"),
        ("(1 2)", "unexpected '2' after '(1'; an operator such as * is missing"),
        ("(1 * / 2)", "unexpected '/' after '(1*'"),
        ("2(3)", "unexpected '(' after '2'; an operator such as * is missing"),
        ("2 pi", "unexpected 'pi' after '2'; an operator such as * is missing"),
        ("1.2.3", "unexpected '.3' after '1.2'; an operator such as * is missing"),
        ("1_000", "unexpected '_000' after '1'; an operator such as * is missing"),
        ("1,000", "unexpected ',' after '1'; write numbers without thousands separators"),
        ("max(1,000, 5)", "the number '000' starts with 0"),
        ("2 ^ 3", "unexpected '^' after '2'; write ** for a power"),
        ("2 × 3", "unexpected '×' after '2'; write * to multiply"),  # noqa: RUF001 - what is tested
        ("1 + 1 =", "unexpected '=' after '1+1'; give only the expression to compute"),
        ("5!", "unexpected '!' after '5'"),
        ("(5 $)", "unexpected '$' after '(5'; expected ')'"),
        ("sqrt", "sqrt needs parentheses, as in sqrt(2)"),
        ("sqrt 2", "sqrt needs parentheses, as in sqrt(2)"),
        ("sqrt(1, 2)", "sqrt takes 1 number, not 2"),
        ("round(1, 2, 3)", "round takes 1 to 2 numbers, not 3"),
        ("min()", "unexpected ')' after 'min('"),
        ("sin(1)", "unknown name 'sin'; known are sqrt, abs, round, min, max, pi, e"),
        ("round(1.5, 0.5)", f"round takes a whole number of digits, at most {MAX_ROUNDING}"),
        ("1 / 0", "division by zero"),
        ("1 // 0.0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("0 ** -10000", "division by zero"),
        ("sqrt(-1)", "sqrt of a negative number has no real result"),
        ("(-8) ** 0.5", "a fractional power of a negative number has no real result"),
        ("1e999", "the result is too large for a decimal number"),
        ("1e308 * 10 * 0", "the result is too large for a decimal number"),
        ("1e308 * 10 - 1e308 * 10", "the result is too large for a decimal number"),
        ("10 ** 400 / 3", "the result is too large for a decimal number"),
        ("10.0 ** 400", "the result is too large for a decimal number"),
    ],
)
def test_error_says_what_to_write_instead(expression, message):
    with pytest.raises(CalculationError) as caught:
        calculate(expression)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "expression",
    ["__import__('os')", "().__class__", "'a' * 9", "[1]", "lambda: 1", "1 if 1 else 2", "1 < 2",
     "1 and 2", "True", "x := 1", "1; 2", "1 # 2", "0x10", "1j", "sqrt.__name__", "min(*(1, 2))",
     "round(1.5, digits=1)", "~1", "1 << 9", "2 @ 2", "f'{1}'", "print(1)"],
)  # fmt: skip
def test_nothing_but_arithmetic_is_read(expression):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CalculationError):
            calculate(expression)


@pytest.mark.parametrize(
    "expression",
    ["9**9**9", "9**9**9**9", "2**99999999999", "10**10**10", "(2**4000)**(2**4000)",
     "7**-(9**999)",
     "2**4000 * 2**4000 * 2**4000", "round(10, -1000000000)", "round(10, 10**1000)",
     "-(2**4096) ** 3", "(-9)**99999999", "1.5 ** 2**60", "sqrt(10**900)"],
)  # fmt: skip
def test_expensive_expressions_are_refused_at_once(expression):
    started = time.process_time()
    with pytest.raises(CalculationError):
        calculate(expression)
    assert time.process_time() - started < 2


def test_bounds():
    """What is just in bounds is computed, what is just out is refused: size, length, depth."""
    assert calculate(f"2 ** {MAX_BITS - 1}") == 2 ** (MAX_BITS - 1)
    half = f"2 ** {MAX_BITS - 1}"
    for too_large in (f"2 ** {MAX_BITS}", f"{half} * 2", f"{half} + {half}"):
        with pytest.raises(CalculationError, match="an integer here is larger"):
            calculate(too_large)
    with pytest.raises(CalculationError, match=r"^2 \*\* 4097 is too large$"):
        calculate(f"2 ** {MAX_BITS + 1}")

    longest = "1" + "+1" * (MAX_LENGTH // 2 - 1)
    assert calculate(longest) == MAX_LENGTH // 2
    assert calculate(longest + " ") == MAX_LENGTH // 2
    with pytest.raises(CalculationError, match="longer than"):
        calculate(longest + "  ")

    levels = MAX_DEPTH - 1
    assert calculate("(" * levels + "1" + ")" * levels) == 1
    for opening, closing in [("(", ")"), ("-", ""), ("1**", ""), ("abs(", ")")]:
        with pytest.raises(CalculationError, match="nested deeper"):
            calculate(opening * MAX_DEPTH + "1" + closing * MAX_DEPTH)


def test_depth_is_that_of_nesting_not_of_length():
    assert calculate("+".join(["(1)"] * 100)) == 100


def test_any_result_can_be_printed():
    """The largest integer allowed is within what CPython converts to text."""
    largest = f"2 ** {MAX_BITS - 1} - 1 + 2 ** {MAX_BITS - 1}"
    assert len(str(calculate(largest))) == 1234


@pytest.mark.parametrize(
    "expression",
    [
        "1+" * 100 + "a" * 250,
        "1+" * 200 + ")",
        "1 " + "9" * 400,
        "0" * 400,
        "9" * 400 + "**99999999",
    ],
)
def test_errors_quote_little_of_a_long_expression(expression):
    with pytest.raises(CalculationError) as caught:
        calculate(expression)
    assert len(str(caught.value)) < 150
