"""Values as JSON data: in the plain form anything is one line, in the exact form nothing is lost."""

import json
import math

import pytest
from pydantic import BaseModel

from treadle import Response, ToolCall, ToolResult, Usage
from treadle.codec import MAX_DEPTH, JSONFormatError, NotDataError, decode, encode, to_json_line
from treadle.messages import History, ModelCall, ModelCallStatus
from treadle.run_state import RunState


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


NO_JSON = {
    "nan": (math.nan, "nan"),
    "inf": ({"x": math.inf, "y": [1.5, -math.inf]}, {"x": "inf", "y": [1.5, "-inf"]}),
    "set": ({1, 2} - {2}, [1]),
    "bytes": (b"bytes", "b'bytes'"),
    "keys": ({(1, 2): "pair", None: 0}, {"(1, 2)": "pair", "None": 0}),
    "model": (Strange(), {"size": "inf"}),
    "unshowable": (Unshowable(), "(Unshowable, which cannot be shown)"),
    "text": ("\ud800 \u202e \u2028 é", "\ud800 \u202e \u2028 é"),
    "int": (10**5000, "(int, which cannot be shown)"),
    "cycle": (CYCLE, {"again": ["(dict, nested too deeply)"]}),
    "bool": (True, True),
}


@pytest.mark.parametrize(("value", "expected"), NO_JSON.values(), ids=NO_JSON)
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


# The exact form


def written(value):
    """A value that was written as JSON and read again."""
    return decode(json.loads(json.dumps(encode(value))))


@pytest.mark.parametrize(
    "value",
    [
        (1, ("a", [2.5, None])),
        {"$": "a key", 2: {"b": (True,)}},
        b"\x00\xff",
        Response("Hi.", (ToolCall("c1", "add", "{}", {"a": 1}),), usage=Usage(1, 2)),
        [ToolResult("c1", "3"), ModelCallStatus.ERROR],
        "\ud800",
        -math.inf,
    ],
    ids=["tuples", "dicts", "bytes", "responses", "results", "a lone surrogate", "infinity"],
)
def test_a_value_is_the_same_afterwards(value):
    made = written(value)
    assert made == value
    assert type(made) is type(value)


def test_a_nan_is_one_afterwards():
    assert math.isnan(written(float("nan")))


def test_a_value_that_is_no_data_is_named_with_its_place():
    with pytest.raises(
        NotDataError, match=r"^outcome\['a'\]: expected data, .* got builtins:object$"
    ):
        encode({"a": [object()]})
    looped = []
    looped.append(looped)
    with pytest.raises(NotDataError, match="contains itself"):
        encode(looped)


@pytest.mark.parametrize("data", [{"$": "Nothing"}, {"$": "Usage", "tokens": 1}, {"$": "tuple"}])
def test_data_of_something_else_is_refused(data):
    with pytest.raises(JSONFormatError):
        decode(data)


def test_a_field_that_is_its_default_is_left_out_and_comes_back():
    data = {"$": "ToolResult", "tool_call_id": "c1", "content": "3"}
    assert encode(ToolResult("c1", "3")) == data


def test_a_run_state_comes_back_with_its_requests_and_its_history():
    state = RunState("bot", "r1", history=History([{"role": "user", "content": "Go."}]))
    node = state.new_node(at=1.0)
    node.asked = (((1.0, 2.0), Usage(1, 2), "m", "p"), ModelCall(ModelCallStatus.ERROR, error="no"))
    made = written(state)
    assert (made.messages, made.nodes[0].model_calls) == (state.messages, node.model_calls)
    assert made.as_json(with_messages=True) == state.as_json(with_messages=True)
    again = RunState.from_json(state.as_json(with_messages=True))
    assert (again.messages, again.nodes[0].model_calls) == (state.messages, node.model_calls)
