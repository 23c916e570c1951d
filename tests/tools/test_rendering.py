"""Rendering results as bounded text for the model."""

import datetime as dt
import enum
import itertools

import pytest
from pydantic import BaseModel

from treadle.tools import MAX_BYTES, error_text, is_plain_error, truncate
from treadle.tools.rendering import MAX_ITEMS, MAX_LINES, render


class Point(BaseModel):
    x: int


class Color(enum.Enum):
    RED = "red"


class Unspeakable:
    def __str__(self):
        raise KeyError("no")


class UnspeakableError(Exception):
    def __str__(self):
        raise KeyError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Hi", "Hi"),
        ("", "(no output)"),
        (None, "(no output)"),
        (5, "5"),
        (True, "true"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ((1, 2), "[1,2]"),
        ([], "[]"),
        ("\u00e9", "\u00e9"),
        ({"a": "\u00e9"}, '{"a":"\u00e9"}'),
        (float("nan"), '"NaN"'),
        (float("inf"), '"Infinity"'),
        (Point(x=1), '{"x":1}'),
        (Color.RED, '"red"'),
        (dt.date(2026, 1, 2), '"2026-01-02"'),
        (b"\x00\xff\x01", "(binary output, 3 bytes)"),
        (bytearray(b"ab"), "(binary output, 2 bytes)"),
        (memoryview(b"abcd"), "(binary output, 4 bytes)"),
        ("a\0b", "(binary output, 3 bytes)"),
        ("\u00e9\0", "(binary output, 3 bytes)"),
        pytest.param(-(10**5000), f"-1{'0' * 5000}", id="a number of many digits"),
        ({"at": dt.UTC}, '{"at":"UTC"}'),
    ],
)
def test_whatever_a_tool_returns_becomes_text(value, text):
    assert render(value) == text


def cycle():
    value = [1]
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (cycle(), "[1, [...]]"),
        ({"a": b"\xff"}, "{'a': b'\\xff'}"),
        ({"a": "\ud800"}, "{'a': '\\ud800'}"),
        (Unspeakable(), "(Unspeakable, which cannot be shown)"),
        ([Unspeakable()], None),
    ],
    ids=["a cycle", "bytes that are no text", "a lone surrogate", "a broken str", "a broken part"],
)
def test_values_that_cannot_be_serialized_become_their_str(value, text):
    """The tool ran, so its result is rendered, whatever it is."""
    shown = render(value)
    assert shown == text if text is not None else "Unspeakable object" in shown


def test_an_iterator_is_rendered_as_its_items():
    made = [render(one) for one in ((n for n in range(3)), iter([]), map(str, range(2)))]
    assert made == ["[0,1,2]", "[]", '["0","1"]']


def test_an_endless_iterator_is_rendered_as_its_first_items():
    counting = itertools.count()
    rendered = render(counting)
    assert rendered.startswith("[0,1,2,")
    assert rendered.endswith(f",{MAX_ITEMS - 1}]")
    assert render({"a": itertools.count()}) == f'{{"a":{rendered}}}'
    assert next(counting) == MAX_ITEMS


def test_a_group_of_errors_is_described_by_its_members():
    inner = ExceptionGroup("inner", [KeyError("k"), UnspeakableError()])
    assert error_text(ExceptionGroup("outer", [ValueError("v"), inner])) == (
        "Error: 3 errors:\n- ValueError: v\n- KeyError: 'k'\n"
        "- UnspeakableError: (UnspeakableError, which cannot be shown)"
    )


def test_an_error_is_described_by_its_class_and_text_alone_or_in_a_group():
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("v")])])
    assert error_text(ValueError("v")) == error_text(group) == "Error: ValueError: v"
    unspeakable = "Error: UnspeakableError: (UnspeakableError, which cannot be shown)"
    assert error_text(UnspeakableError()) == unspeakable
    assert len(error_text(ValueError("x" * 10 * MAX_BYTES))) < MAX_BYTES + 100


class OwnTextError(Exception):
    def __str__(self):
        return "x"


def caused():
    error = ValueError("x")
    error.__cause__ = OwnTextError()
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("x"), True),
        (KeyError("x"), True),
        (FileNotFoundError(2, "No such file", "x"), True),
        (OwnTextError(), False),
        (ValueError(OwnTextError()), False),
        (ExceptionGroup("x", [ValueError("x")]), False),
        (caused(), False),
    ],
)
def test_an_exception_is_plain_if_its_text_runs_no_other_code(error, expected):
    assert is_plain_error(error) is expected


class TestCut:
    """Two limits, whichever comes first, and a note of how much is missing."""

    @pytest.mark.parametrize("text", ["", "a", "a\nb", "\u00e9" * 5])
    def test_a_short_text_is_not_changed(self, text):
        assert truncate(text, 3, 10) == text

    def test_the_default_limits(self):
        assert (MAX_LINES, MAX_BYTES) == (2_000, 50_000)
        assert truncate("x" * 50_000) == "x" * 50_000
        assert truncate("x" * 50_001) == "x" * 50_000 + "\n[cut: 0 more lines, 1 more bytes]"
        lines = "\n".join("x" * 2_000)
        assert truncate(lines) == lines
        assert truncate(lines + "\nx") == lines + "\n[cut: 1 more lines, 2 more bytes]"

    def test_the_limit_of_lines(self):
        assert truncate("a\nb\nc\nd\ne", 2, 100) == "a\nb\n[cut: 3 more lines, 6 more bytes]"

    def test_the_limit_of_bytes_and_numbers_with_commas(self):
        assert truncate("x" * 5_000, 9, 10) == "x" * 10 + "\n[cut: 0 more lines, 4,990 more bytes]"
        assert truncate("a\nb\nc\nd", 9, 3) == "a\nb\n[cut: 2 more lines, 4 more bytes]"

    @pytest.mark.parametrize(
        ("character", "most", "kept", "missing"),
        [
            ("\u00e9", 4, 2, 2),
            ("\u00e9", 5, 2, 2),
            ("\u20ac", 5, 1, 9),
            ("\U0001f600", 7, 1, 12),
            ("\U0001f600", 8, 2, 8),
        ],
    )
    def test_it_never_splits_a_character(self, character, most, kept, missing):
        text = character * (kept + missing // len(character.encode()))
        note = f"\n[cut: 0 more lines, {missing} more bytes]"
        assert truncate(text, 9, most) == character * kept + note

    def test_bytes_count_and_not_characters(self):
        assert truncate("\u00e9" * 5, 9, 10) == "\u00e9" * 5
        assert truncate("\u00e9" * 6, 9, 10).startswith("\u00e9" * 5 + "\n[cut")

    def test_lone_surrogates_are_replaced(self):
        assert truncate("a\ud800b") == "a?b"
        truncate("\ud800" * 100, 9, 10).encode()
