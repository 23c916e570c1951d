"""Tracebacks of user-supplied code: where they start, and how long their text is."""

import concurrent.futures

import pytest

from treadle.tracebacks import (
    MAX_LENGTH,
    MAX_LINE,
    format_traceback,
    from_user_code,
    was_raised,
)


def raised(fn, *args):
    try:
        fn(*args)
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def fault(text="oh"):
    raise ValueError(text)


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


class SilentError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class OddError(Exception):
    @property
    def __notes__(self):
        raise RuntimeError("no notes")


def test_it_is_formatted_as_python_does_with_the_causes():
    def wraps():
        try:
            fault()
        except ValueError as error:
            raise KeyError("k") from error

    text = format_traceback(raised(wraps))
    assert text.startswith("Traceback (most recent call last):\n")
    assert (
        "    raise ValueError(text)\nValueError: oh\n\nThe above exception was the direct cause"
        in text
    )
    assert text.endswith("    raise KeyError(\"k\") from error\nKeyError: 'k'")


@pytest.mark.parametrize(
    ("fn", "args", "kept"),
    [
        (even, (100_000,), ["in raised", "in even", "in odd", "RecursionError: "]),
        (fault, ("x" * 100_000,), ["in raised", "in fault", "ValueError: xxx", "[cut]"]),
        (fault, ("a line\n" * 50_000,), ["in raised", "in fault", "lines left out]", "a line"]),
    ],
    ids=["recursion", "a long text", "many lines"],
)
def test_it_is_shortened_in_the_middle(fn, args, kept):
    text = format_traceback(raised(fn, *args))
    assert len(text) <= MAX_LENGTH
    assert max(map(len, text.splitlines())) <= MAX_LINE + len(" [cut]")
    assert [part for part in kept if part not in text] == []


@pytest.mark.parametrize("kind", [SilentError, OddError])
def test_an_exception_that_cannot_be_formatted_has_a_text(kind):
    assert kind.__name__ in format_traceback(kind())


def test_frames_that_lead_to_the_code_of_the_user_are_removed():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        error = raised(pool.submit(fault).result)
    start = error.__traceback__.tb_next  # without the frame of this file that caught it
    error = from_user_code(error.with_traceback(start))
    assert error.__traceback__.tb_frame.f_code is fault.__code__


def test_an_exception_that_has_no_frame_of_a_user_is_unchanged():
    pool = concurrent.futures.Future()
    pool.set_exception(KeyError("k"))
    error = raised(pool.result)
    before = error.with_traceback(error.__traceback__.tb_next).__traceback__
    assert from_user_code(error).__traceback__ is before


def test_causes_in_a_circle_end():
    one, other = raised(fault), raised(fault)
    one.__cause__, other.__cause__ = other, one
    assert from_user_code(one) is one


def test_an_exception_that_was_only_made_has_no_traceback():
    assert not was_raised(ValueError("x"))
    assert was_raised(raised(fault))
    made = ValueError("x")
    made.__cause__ = raised(fault)
    assert was_raised(made)
