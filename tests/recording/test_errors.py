"""Exceptions as JSON data, and back."""

import json

import pytest

from treadle import InvalidInput, LLMError
from treadle.codec import decode, encode
from treadle.effects import TimeLimitReached
from treadle.model import is_retryable
from treadle.model.retry import retry_after, status_of
from treadle.recording.log import Entry
from treadle.tracebacks import leaves_of


def written(value):
    """A value that was written as JSON and read again."""
    return decode(json.loads(json.dumps(encode(value))))


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


def test_the_error_of_a_model_is_written_without_credentials():
    error = ProviderError("401 for https://user:pass-9f@host/v1?key=k-9f", {"x-api-key": "k-9f"})
    assert "9f" not in json.dumps(Entry(label="chat", error=error).as_json())
    assert "9f" in json.dumps(Entry(label="execute_tool", error=error).as_json())
