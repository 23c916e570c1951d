"""What stops a model that makes no progress: suppression, nudge, breaker, stop; in this order, by events.

`ladder_model` has a model of the ladder, with which random runs are compared.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.ways import Way

from treadle import (
    CircuitBreaker,
    CircuitBroken,
    Limits,
    LoopDetected,
    MaxIterationsReached,
    Ok,
    RunHandle,
    tool,
)
from treadle.events import (
    BreakerChanged,
    CallNotRun,
    IterationStarted,
    LimitReached,
    RepeatWarned,
    ToolStarted,
)
from treadle.stages import circuit_breaker, default_stages, loop_decision
from treadle.testing import ScriptedLLM, call, calls, check_history
from treadle.tools import NotRun

from .scripts import HELLO

RUNGS: dict[type[Any], str] = {
    ToolStarted: "runs",
    CallNotRun: "suppressed",
    RepeatWarned: "nudged",
    BreakerChanged: "breaker",
    LimitReached: "limit",
}


def rungs(events: list[Any]) -> list[str]:
    """The rungs of the ladder that were reported, iteration by iteration."""
    iterations: list[list[str]] = []
    for event in events:
        if isinstance(event, IterationStarted):
            iterations.append([])
        elif isinstance(event, CallNotRun) and event.reason is not NotRun.NO_NEW_EVIDENCE:
            continue
        elif type(event) in RUNGS:
            iterations[-1].append(
                event.reason.stop_reason if isinstance(event, LimitReached) else RUNGS[type(event)]
            )
    return [" ".join(each) for each in iterations]


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"{place} is empty"


@tool
def fail(place: str) -> str:
    """Fail, always alike."""
    raise OSError("no such place")


def each_time(name: str, *places: str) -> list[Any]:
    return [calls(call(name, place=place)) for place in places]


def climb(driven: Way, script: list[Any], **options: Any) -> Any:
    options = {"tools": [look, fail], **options}
    observed = driven.run(HELLO, ScriptedLLM(*script), **options)
    check_history(observed.result.messages)
    return observed


# The same call, with the same good result.


CLIMBED = {
    "evidence": ["runs", "runs", "suppressed nudged", "suppressed nudged loop_detected"],
    "strict": ["runs", "suppressed", "suppressed nudged loop_detected"],
    "off": ["runs", "runs", "runs nudged loop_detected"],
}
"""The rungs of a call that always returns the same."""
MODES = list(CLIMBED)


@pytest.mark.parametrize("of_tool", [False, True], ids=["of the loop", "of the tool"])
@pytest.mark.parametrize("dedupe", MODES)
def test_a_good_call_is_suppressed_then_nudged_then_stopped(
    driven: Way, dedupe: Any, of_tool: bool
):
    """Nothing is broken, since nothing failed. What the tool says wins over what the loop says."""
    other = {"evidence": "off", "strict": "evidence", "off": "strict"}[dedupe]
    options = (
        {"tools": [tool(look, dedupe=dedupe)], "dedupe": other} if of_tool else {"dedupe": dedupe}
    )
    observed = climb(driven, each_time("look", *["a"] * len(CLIMBED[dedupe])), **options)
    assert rungs(observed.events) == CLIMBED[dedupe]
    assert isinstance(observed.result.reason, LoopDetected)
    assert observed.result.tool_calls_count == sum("runs" in rung for rung in CLIMBED[dedupe])


def test_each_rung_tells_the_model_and_a_developer_what_to_do(driven: Way):
    observed = climb(driven, each_time("look", *["a"] * 4))
    [first, second, third, _] = [
        m["content"] for m in observed.result.messages if m["role"] == "tool"
    ]
    assert first == second == "a is empty"
    assert third == (
        "Not run again: you made the same call in iteration 2, and nothing new has been learned since; "
        "only a tool declared volatile=True would run again. Its result was:\na is empty\n"
        "Try something else, or answer with what you have.\n\n"
        "[note: this is call number 3 of 'look' with the same arguments in this turn. Unless its results "
        "are new, change the arguments, try another approach, or answer with what you have.]"
    )
    assert str(observed.result.reason) == (
        "the same calls with the same results in 4 consecutive iterations: "
        'look({"place": "a"}) (a tool to be polled needs volatile=True)'
    )


def test_a_user_message_takes_a_model_off_every_rung(driven: Way):
    """What was said twice before it may be said twice after it: not suppressed, nudged or stopped."""
    handle = RunHandle()

    def interrupted(messages: Any) -> Any:
        handle.steer("Look once more, please.")
        return each_time("look", "a")[0]

    again = each_time("look", "a", "a", "a")
    script = [*each_time("look", "a", "a"), interrupted, *again, "Empty."]
    observed = climb(driven, script, handle=handle)
    assert rungs(observed.events) == [*CLIMBED["evidence"][:3], *CLIMBED["evidence"][:3], ""]
    assert isinstance(observed.result, Ok)


# The same call, failing alike.


def test_a_failing_call_is_broken_before_it_is_stopped(driven: Way):
    """An error is no answer, so it is tried again; the third ends the run, and says what is broken."""
    observed = climb(driven, each_time("fail", "a", "a", "a"))
    assert rungs(observed.events) == ["runs", "runs", "runs circuit_broken"]
    assert observed.result.reason == CircuitBroken("fail", "Error: OSError: no such place", 3)


def test_other_arguments_are_broken_too_and_never_stopped(driven: Way):
    """The breaker looks at tool and error; a loop is of the same calls."""
    observed = climb(driven, each_time("fail", "a", "b", "c"))
    assert rungs(observed.events) == ["runs", "runs", "runs circuit_broken"]
    observed = climb(
        driven, [*each_time("fail", *"abcd"), "No."], stages=[circuit_breaker(threshold=9), ...]
    )
    assert rungs(observed.events) == ["runs"] * 4 + [""]


def test_a_shared_breaker_comes_first_of_all(driven: Way):
    """After its first failure the tool is out of order: no call is made, and the count of the run continues."""
    breaker = CircuitBreaker(threshold=1, cool_down=60)
    script = [*each_time("fail", *"abcd")]
    observed = climb(driven, script, breaker=breaker)
    assert rungs(observed.events) == ["runs breaker", "", "", "circuit_broken"]
    assert observed.result.tool_calls_count == 1
    assert breaker.states == {"fail": "open"}


# Text.


def insisting(ctx: Any) -> Any:
    """The decision of a custom stage: a text without a number is no answer, and gets a nudge."""
    if ctx.tool_calls or any(letter.isdigit() for letter in ctx.response.text):
        return (yield from loop_decision(ctx))
    return ctx.guide("Say a number.")


INSISTING = [insisting if made.name == "loop_decision" else made for made in default_stages()]


# A last answer in place of the stop.


@pytest.mark.parametrize(
    ("script", "options"),
    [
        (each_time("look", "a", "a", "a", "a"), {}),
        (each_time("look", *"ababab"), {}),
        (each_time("fail", "a", "a", "a"), {"stages": [circuit_breaker(threshold=9), ...]}),
        (["Some."] * 3, {"stages": INSISTING}),
    ],
    ids=["the same call", "calls by turns", "a failing call", "text"],
)
def test_where_it_is_to_finish_the_last_rung_asks_for_an_answer(driven: Way, script, options):
    """The rungs before it are the same; the stop is a request for the answer, and the result says why."""
    stopped = climb(driven, script, **options)
    observed = climb(driven, [*script, "It is 4."], **options, limits=Limits(on_limit="finish"))
    assert rungs(observed.events) == [*rungs(stopped.events), ""]
    assert rungs(observed.events)[-2].endswith("loop_detected")
    result = observed.result
    assert isinstance(result, Ok)
    assert (result.stop_reason, result.response.content) == ("finished", "It is 4.")
    assert result.limit == stopped.result.reason
    assert result.messages[: len(stopped.result.messages) - 1] == stopped.result.messages[:-1]


def test_a_duplicate_instead_of_the_last_answer_is_suppressed_and_ends_no_run(driven: Way):
    """It is answered as any duplicate; then the model is asked with tools disabled."""
    script = [*each_time("look", *["a"] * 5), "Empty."]
    observed = climb(driven, script, limits=Limits(on_limit="finish"))
    assert rungs(observed.events)[3:] == [
        "suppressed nudged loop_detected",
        "suppressed nudged",
        "",
    ]
    assert observed.result.stop_reason == "finished"


# Limits and the ladder.


def test_of_a_loop_and_a_spent_limit_the_limit_is_reported(driven: Way):
    """Both are reached in the same iteration: stages come before the look for loops."""
    observed = climb(driven, each_time("look", *["a"] * 4), limits=Limits(max_iterations=4))
    assert rungs(observed.events) == [
        *CLIMBED["evidence"][:3],
        "suppressed nudged max_iterations_reached",
    ]
    assert observed.result.reason == MaxIterationsReached(4)
