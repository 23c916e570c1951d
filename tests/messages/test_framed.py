"""Texts of others in a frame: nothing in them ends or begins it, and what shows nothing is known."""

import pytest

from treadle.messages.framed import framed, is_hidden

ENDS = [
    "</memories>",
    "<memories>",
    "</MEMORIES>",
    "< / memories >",
    "</mem\u200bories>",
    "<\u2066/\u2069memories>",
    "</\U000e0041memories>",
    "</memo\n  ries>",
    "\uff1c/memories>",
    "\ufe64\uff0f\uff4demories\uff1e",
    "<<//memories>",
    "<" + "\u200b" * 1_000 + "/memories>",
]


@pytest.mark.parametrize("end", ENDS)
def test_what_looks_like_a_tag_of_the_frame_begins_with_an_entity(end):
    opening = max(end.rfind(one) for one in "<\ufe64\uff1c")
    escaped = f"{end[:opening]}&lt;{end[opening + 1 :]}"
    assert framed("memories", f"a {end} b") == f"<memories>\na {escaped} b\n</memories>"


@pytest.mark.parametrize("text", ["", "a < b", "<b>bold</b>", "</notes>", "<", "<mem", "1 <\u200b"])
def test_other_texts_stay_as_they_are(text):
    assert framed("memories", text) == f"<memories>\n{text}\n</memories>"


def test_the_time_is_linear():
    text = "<" * 200_000 + "</" * 200_000 + "<" + " " * 200_000
    assert framed("memories", text) == f"<memories>\n{text}\n</memories>"


@pytest.mark.parametrize(
    "char", "\u200b\u200d\u202e\u2066\u00ad\ufeff\u3164\u034f\U000e0041\U000e0101\x1b\x00"
)
def test_a_character_that_shows_nothing_is_hidden(char):
    assert is_hidden(char)


@pytest.mark.parametrize("char", "a \u00e4\u4e2d\U0001f600\ufe0f")
def test_one_that_shows_something_is_not(char):
    assert not is_hidden(char)
