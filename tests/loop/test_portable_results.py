"""A result survives pickling and copies, whatever exception it holds."""

import copy
import importlib
import inspect
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor

import httpx
import pytest

from treadle import Err, LLMError, Loop
from treadle.errors import UnpicklableError, portable


class NeedsKeywords(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")
        self.code = code


class HoldsLock(Exception):
    def __init__(self):
        super().__init__("locked")
        self.lock = threading.Lock()


class Loud(Exception):
    def __reduce__(self):
        raise RuntimeError("no")

    def __str__(self):
        raise ValueError("no text")


class Local:
    def make(self):
        class Inner(Exception):
            pass

        return Inner("local")


def exceptions_of(name):
    """An instance of each exception class of an SDK, made without calling its constructor where that fails."""
    module = importlib.import_module(name)
    request = httpx.Request("POST", "http://127.0.0.1/")
    response = httpx.Response(429, request=request)
    for _, kind in inspect.getmembers(module, inspect.isclass):
        if issubclass(kind, Exception):
            made = kind.__new__(kind)
            made.args = ("it broke",)
            made.response, made.request, made.status_code = response, request, 429
            made.lock = threading.Lock()
            yield made


OF_SDKS = [
    pytest.param(error, id=f"{name}.{type(error).__name__}")
    for name in ("openai", "anthropic", "google.genai.errors", "ollama", "httpx")
    for error in exceptions_of(name)
]
OURS = [NeedsKeywords(code=3), HoldsLock(), Loud(), Local().make(), ValueError("plain")]


@pytest.mark.parametrize("error", [*OURS, *OF_SDKS])
def test_a_result_survives_pickle_and_copies(error):
    def fail(messages):
        raise error

    result = Loop.run_sync("q", fail, max_retries=0)
    assert isinstance(result, Err)
    read = pickle.loads(pickle.dumps(result))  # noqa: S301 - made here
    for made in (read, copy.deepcopy(result), copy.copy(result)):
        assert isinstance(made.reason, LLMError)
        assert made.reason == result.reason
        assert type(error).__name__ in (
            type(made.reason.cause).__name__,
            getattr(made.reason.cause, "name", ""),
        )


def test_the_attributes_that_say_what_happened_are_kept():
    made = portable(NeedsKeywords(code=3))
    assert isinstance(made, UnpicklableError)
    assert (made.name, made.text, dict(made.facts)) == ("NeedsKeywords", "code 3", {"code": 3})
    assert type(portable(ValueError("plain"))) is ValueError


def test_a_result_comes_back_from_another_process():
    with ProcessPoolExecutor(1) as pool:
        result = pool.submit(failing).result()
    assert isinstance(result, Err)
    assert "locked" in str(result.reason)


def failing():
    def fail(messages):
        raise HoldsLock

    return Loop.run_sync("q", fail, max_retries=0)
