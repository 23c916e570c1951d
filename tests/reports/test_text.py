"""Text of models and tools: nothing in it is obeyed, and what is drawn in place has a steady width."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from treadle.reports.text import (
    fixed_width,
    format_count,
    format_dollars,
    format_elapsed,
    format_seconds,
    one_line,
)


def test_text_is_put_on_one_line_and_cut():
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("x" * 200, 10) == "x" * 10 + "..."
    assert len(one_line("\x1b" * 10_000_000, 10)) < 20


def test_what_is_drawn_in_place_has_no_characters_of_doubtful_width():
    """Joiners, selectors, flags, private and unknown characters; letters of all scripts stay."""
    doubtful = "\u200d\ufe0f\u2060\u00ad\U0001f3fd\U0001f1e9\ue000\U0010ffff\u3164\u20dd"
    assert fixed_width(f"a{doubtful}b") == "ab"
    assert fixed_width("e\u0301 日本 \u0939\u093f \u05d0") == "é 日本 \u0939\u093f \u05d0"
    assert len(fixed_width("\u200d" * 10_000_000 + "a", 10)) <= 13


@given(st.text())
def test_whatever_is_drawn_in_place_is_one_line_that_no_terminal_obeys(text):
    line = fixed_width(text, 20)
    kinds = {unicodedata.category(char) for char in line}
    assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"}
    assert cell_len(line) <= 2 * len(line)
    assert cell_len(line) == sum(map(cell_len, line))


def test_numbers_and_durations_are_told_as_people_do():
    assert (format_count(1, "call"), format_count(0, "call"), format_count(1200, "token")) == (
        "1 call",
        "0 calls",
        "1,200 tokens",
    )
    assert (format_seconds(0.004), format_seconds(1.26), format_seconds(75.2)) == (
        "0.00 s",
        "1.3 s",
        "75 s",
    )


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-1, "0.0 s"),
        (0.04, "0.0 s"),
        (1.29, "1.2 s"),
        (9.99, "9.9 s"),
        (10, "10 s"),
        (119.9, "119 s"),
        (125, "2 min 05 s"),
        (3600, "1 h 00 min"),
        (7_320, "2 h 02 min"),
    ],
)
def test_a_duration_that_goes_on_is_never_ahead(seconds, told):
    assert format_elapsed(seconds) == told


@pytest.mark.parametrize(
    ("dollars", "told"),
    [(0, "$0.00"), (0.1, "$0.10"), (0.0042, "$0.0042"), (0.123, "$0.1230"), (1234.5, "$1,234.50")],
)
def test_money_is_told_as_exactly_as_it_matters(dollars, told):
    assert format_dollars(dollars) == told
