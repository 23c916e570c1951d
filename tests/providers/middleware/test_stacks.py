"""Middleware over a flaky model: any stack, and the replay of each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ways import WAYS

from treadle import Usage, tool
from treadle.effects import Sleep
from treadle.messages import Chunk
from treadle.providers.middleware import ConcurrencyLimit, Fallback, Hedge, RateLimit, ResponseCache
from treadle.testing import call, calls, check_history

from .conftest import check_replay
from .flaky import BusyError, Named, TooManyError, UnauthorizedError

STEPS = ("text", "stream", "call", "busy", "unauthorized", "broken thought", "broken text")
RETRIES = 2


@tool
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


def made(step: str, number: int) -> Any:
    """What the model returns or raises in a step."""
    return {
        "text": "Whole.",
        "stream": ["Who", "le."],
        "call": {"choices": [{"message": calls(call("look", f"c{number}", n=number))}]},
        "busy": BusyError("busy"),
        "unauthorized": UnauthorizedError("key"),
        "broken thought": [Chunk(extra={"reasoning": "Hm."}), ConnectionResetError("reset")],
        "broken text": ["Who", ConnectionResetError("reset")],
    }[step]


def expected(script: list[str], has_fallback: bool) -> tuple[int, int, str]:
    """The number of requests to the model and to the other one, and how the run ends."""
    retries = 0
    for sent, step in enumerate([*script, "text"], 1):
        if step in {"text", "stream"}:
            return sent, 0, "answered"
        if step == "call":
            retries = 0
        elif step == "broken text":
            return sent, 0, "llm_error"
        elif has_fallback:
            return sent, 1, "answered"
        elif step == "unauthorized" or retries == RETRIES:
            return sent, 0, "llm_error"
        else:
            retries += 1
    raise AssertionError("unreachable: the last step is an answer")


def stack(names: list[str], other: Named) -> list[Any]:
    """Middleware by its names, made anew."""
    make = {
        "cache": ResponseCache,
        "fallback": lambda: Fallback(other),
        "hedge": lambda: Hedge(30),
        "rate": lambda: RateLimit(requests_per_minute=100, tokens_per_minute=100_000),
        "concurrency": lambda: ConcurrencyLimit(1),
    }
    return [make[name]() for name in names]


NAMES = ["cache", "fallback", "hedge", "rate", "concurrency"]


@given(
    script=st.lists(st.sampled_from(STEPS), max_size=5),
    names=st.permutations(NAMES).flatmap(
        lambda names: st.integers(0, len(names)).map(lambda count: names[:count])
    ),
)
def test_a_stack_changes_neither_the_result_nor_the_history(script: list[str], names: list[str]):
    results: list[Any] = []
    for way in WAYS:
        model, other = Named("a", *map(made, script, range(len(script)))), Named("b")
        options = {
            "tools": [look],
            "model_middleware": stack(names, other),
            "max_retries": RETRIES,
            "retry_delay": 0,
        }
        result = way.run("Hi", model, **options).result
        check_history(result.messages)
        counted = len(model.sent), len(other.sent), result.stop_reason
        assert counted == expected(script, "fallback" in names)
        results.append((result.messages, str(getattr(result, "reason", "")), result.usage))
        if names[:1] == ["cache"] and result.stop_reason == "answered":
            again = way.run("Hi", model, **options).result
            assert again.messages == result.messages
            assert (len(model.sent), len(other.sent)) == counted[:2]
    assert all(one == results[0] for one in results)


def slow(request: Any, send: Any) -> Any:
    """Custom middleware."""
    yield Sleep(0.001)
    return (yield from send(request))


TOO_MANY = TooManyError(0.01)
STREAM, SLOW_STREAM = [0.0, Chunk("a1"), "a2"], [5.0, Chunk("a1"), "a2"]


@pytest.mark.parametrize(
    ("step", "make", "text"),
    [
        (BusyError(), lambda: slow, "from a"),
        (BusyError(), lambda: Fallback(Named("b", UnauthorizedError()), Named("c")), "from c"),
        (STREAM, lambda: Hedge(0.2, model=Named("b", ["b1", "b2"])), "a1a2"),
        (SLOW_STREAM, lambda: Hedge(0.2, model=Named("b", ["b1", "b2"])), "b1b2"),
        ("Hi.", ResponseCache, "Hi."),
        ("Hi.", lambda: ConcurrencyLimit(1), "Hi."),
        (TOO_MANY, lambda: RateLimit(requests_per_minute=9, tokens_per_minute=10_000), "from a"),
    ],
)
def test_a_replay_needs_the_effects_alone(driven: Any, step: Any, make: Any, text: str):
    model = Named("a", step, usage=Usage(1, 1))
    observed = check_replay(driven, "Hi", model, lambda: {"model_middleware": [make()]})
    assert observed.result.unwrap().text == text
