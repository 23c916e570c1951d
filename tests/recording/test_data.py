"""Outcomes as JSON data, and back without loss."""

import json
import math

import pytest

from treadle import InvalidInput, LLMError, Response, ToolCall, ToolResult, Usage
from treadle.codec import JSONFormatError, NotDataError, decode, encode
from treadle.effects import TimeLimitReached
from treadle.messages import ModelCallStatus
from treadle.model import is_retryable, retry_after, status_of
from treadle.recording.log import Entry
from treadle.tracebacks import leaves_of


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
    ],
    ids=["tuples", "dicts", "bytes", "responses", "results", "a lone surrogate"],
)
def test_a_value_is_the_same_afterwards(value):
    made = written(value)
    assert made == value
    assert type(made) is type(value)


def test_a_number_that_json_has_not():
    assert math.isnan(written(float("nan")))
    assert written(-math.inf) == -math.inf


class ProviderError(Exception):
    """An error of an SDK, whose class takes other arguments than the exception has."""

    def __init__(self, status, headers):
        super().__init__(f"status {status}")
        self.status_code = status
        self.headers = headers


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 1),
        KeyError("k"),
        ConnectionResetError(104, "reset"),
        TimeLimitReached("late"),
        ProviderError(429, {"retry-after": "3"}),
        ProviderError(400, {}),
    ],
    ids=["plain", "a key", "a connection", "a time limit", "temporary", "permanent"],
)
def test_an_exception_is_treated_the_same_afterwards(error):
    made = written(error)
    assert (type(made), str(made)) == (type(error), str(error))
    facts = [(is_retryable(one), status_of(one), retry_after(one)) for one in (error, made)]
    assert facts[0] == facts[1]


def test_an_exception_whose_class_is_not_here_has_a_stand_in():
    data = encode(ProviderError(503, {"retry-after": "2"})) | {"class": "gone.sdk:GoneError"}
    made = decode(data)
    assert (type(made).__name__, str(made)) == ("GoneError", "status 503")
    assert (is_retryable(made), status_of(made), retry_after(made)) == (True, 503, 2.0)


def test_the_reason_of_a_result_is_the_same_afterwards():
    reason = LLMError("busy", "ProviderError", 2, ProviderError(503, {}))
    assert written(reason) == reason
    assert (str(written(reason).cause), written(reason).__cause__.status_code) == (
        "status 503",
        503,
    )
    assert written(InvalidInput(("a", "b"))) == InvalidInput(("a", "b"))


def test_groups_that_are_deep_and_shared_are_written_once():
    group = ExceptionGroup("inner", [ValueError("a"), TimeoutError("b")])
    for _ in range(3_000):
        group = ExceptionGroup("outer", [group, group])
    made = written(group)
    assert [str(one) for one in leaves_of(made)] == ["a", "b"]
    assert made.message == "outer"


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


def test_the_error_of_a_model_is_written_without_credentials():
    error = ProviderError("401 for https://user:pass-9f@host/v1?key=k-9f", {"x-api-key": "k-9f"})
    assert "9f" not in json.dumps(Entry(label="chat", error=error).as_json())
    assert "9f" in json.dumps(Entry(label="execute_tool", error=error).as_json())
