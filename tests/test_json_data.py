"""Anything is one line of JSON: what JSON has no words for is text."""

import json
import math

import pytest
from pydantic import BaseModel

from treadle.codec import MAX_DEPTH, to_json_line


class Strange(BaseModel):
    size: float = math.inf


class Unshowable:
    def __str__(self):
        raise RuntimeError("no")

    def model_dump(self, mode):
        raise RuntimeError("no")


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


CYCLE = {}
CYCLE["again"] = [CYCLE]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "nan"),
        ({"x": math.inf, "y": [1.5, -math.inf]}, {"x": "inf", "y": [1.5, "-inf"]}),
        ({1, 2} - {2}, [1]),
        (b"bytes", "b'bytes'"),
        ({(1, 2): "pair", None: 0}, {"(1, 2)": "pair", "None": 0}),
        (Strange(), {"size": "inf"}),
        (Unshowable(), "(Unshowable, which cannot be shown)"),
        ("\ud800 \u202e \u2028 é", "\ud800 \u202e \u2028 é"),
        (10**5000, "(int, which cannot be shown)"),
        (CYCLE, {"again": ["(dict, nested too deeply)"]}),
        (True, True),
    ],
    ids=[
        "nan",
        "inf",
        "set",
        "bytes",
        "keys",
        "model",
        "unshowable",
        "text",
        "int",
        "cycle",
        "bool",
    ],
)
def test_what_is_no_json_becomes_text(value, expected):
    """It is one line of ASCII, and never an exception."""
    line = to_json_line(value)
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line) == expected


@pytest.mark.parametrize("depth", [500, 100_000])
def test_what_nests_too_deep_is_cut(depth):
    """Whether Python could write it or not: a record has to be readable."""
    line = to_json_line({"deep": nested(depth)})
    read = json.loads(line)
    assert read
    if depth > 10_000:
        assert line.count("[") <= MAX_DEPTH
