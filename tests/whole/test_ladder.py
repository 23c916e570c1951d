"""What stops a model that makes no progress: suppression, nudge, breaker, stop; in this order, by events.

`ladder_model` has a model of the ladder, with which random runs are compared.
"""

from __future__ import annotations

import itertools
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


@pytest.mark.parametrize("dedupe", MODES)
@pytest.mark.parametrize("threshold", [1, 2])
def test_a_low_threshold_does_not_stop_a_model_before_it_has_seen_a_skip(
    driven: Way, dedupe: Any, threshold: int
):
    """Where nothing is skipped, there is nothing to wait for."""
    least = {"evidence": 4, "strict": 3, "off": threshold}[dedupe]
    options = {"dedupe": dedupe, "loop_threshold": threshold}
    observed = climb(driven, each_time("look", *["a"] * least), **options)
    assert observed.result.reason.iterations == least


def test_the_rungs_are_climbed_one_by_one_where_there_is_time(driven: Way):
    """With a higher threshold each repetition is suppressed, each from the third on nudged, until it stops."""
    observed = climb(driven, each_time("look", *["a"] * 6), loop_threshold=6)
    climbed = ["runs", "runs", *["suppressed nudged"] * 3, "suppressed nudged loop_detected"]
    assert rungs(observed.events) == climbed
    assert observed.result.reason.iterations == 6


def test_what_is_volatile_meets_no_rung(driven: Way):
    """A clock may be read until the iterations are spent."""
    clock = tool(name="look", volatile=True)(look.fn)
    observed = climb(driven, each_time("look", *["a"] * 6), tools=[clock], max_iterations=6)
    assert rungs(observed.events) == [*["runs"] * 5, "runs max_iterations_reached"]


def test_new_evidence_takes_a_model_off_the_first_rung_only(driven: Way):
    """The call runs again after something new; that it was made before counts for the nudge."""
    places = ["a", "b", "a", "c", "a", "d", "a"]
    observed = climb(driven, [*each_time("look", *places), "Empty."])
    assert rungs(observed.events) == [
        "runs",
        "runs",
        "runs",
        "runs",
        "runs nudged",
        "runs",
        "runs nudged",
        "",
    ]
    assert isinstance(observed.result, Ok)


def test_another_result_takes_a_model_off_the_last_rung(driven: Way):
    """A call with a new result each time is progress: nudged, and neither skipped nor stopped."""
    numbers = itertools.count()
    tick = tool(name="look")(lambda place: f"{place} {next(numbers)}")
    observed = climb(driven, [*each_time("look", *["a"] * 5), "Done."], tools=[tick])
    assert rungs(observed.events) == ["runs", "runs", *["runs nudged"] * 3, ""]


def test_a_result_that_changes_once_and_then_stays_begins_the_ladder_there(driven: Way):
    results = iter(["new", *["old"] * 9])
    tick = tool(name="look")(lambda place: next(results))
    observed = climb(driven, each_time("look", *["a"] * 5), tools=[tick])
    assert rungs(observed.events) == ["runs", "runs", "runs nudged", *CLIMBED["evidence"][2:]]


def test_results_that_alternate_are_stopped_in_their_fourth_round(driven: Way):
    """Each call returns something else than the one before, so none is skipped."""
    results = itertools.cycle("ab")
    tick = tool(name="look")(lambda place: next(results))
    observed = climb(driven, each_time("look", *["a"] * 8), tools=[tick])
    assert rungs(observed.events) == [
        *["runs"] * 2,
        *["runs nudged"] * 5,
        "runs nudged loop_detected",
    ]
    assert (observed.result.reason.iterations, observed.result.reason.period) == (4, 2)


def test_one_volatile_call_in_a_batch_exempts_the_batch_from_the_last_rung(driven: Way):
    clock = tool(name="clock", volatile=True)(lambda: "noon")
    script = [calls(call("look", place="a"), call("clock")) for _ in range(6)]
    observed = climb(driven, [*script, "Noon."], tools=[look, clock])
    assert rungs(observed.events) == [*["runs runs"] * 2, *["suppressed runs nudged"] * 4, ""]


def test_calls_of_one_batch_climb_each_on_their_own_rungs(driven: Way):
    """The strict one is skipped first; the run ends once the model has seen a skip."""
    strict = tool(name="strict", dedupe="strict")(look.fn)
    script = [calls(call("look", place="a"), call("strict", place="a")) for _ in range(4)]
    observed = climb(driven, script, tools=[look, strict])
    assert rungs(observed.events)[:2] == ["runs runs", "suppressed runs"]
    assert observed.result.reason.iterations == 3


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


def test_a_failing_call_is_stopped_where_no_breaker_stops_it(driven: Way):
    """The last rung is there for it as well."""
    observed = climb(
        driven, each_time("fail", "a", "a", "a"), stages=[circuit_breaker(threshold=4), ...]
    )
    assert rungs(observed.events) == ["runs", "runs", "runs loop_detected"]
    stages = [each for each in default_stages() if each.name != "circuit_breaker"]
    observed = climb(driven, each_time("fail", "a", "a", "a"), stages=stages)
    assert rungs(observed.events) == ["runs", "runs", "runs loop_detected"]


def test_other_arguments_are_broken_too_and_never_stopped(driven: Way):
    """The breaker looks at tool and error; a loop is of the same calls."""
    observed = climb(driven, each_time("fail", "a", "b", "c"))
    assert rungs(observed.events) == ["runs", "runs", "runs circuit_broken"]
    observed = climb(
        driven, [*each_time("fail", *"abcd"), "No."], stages=[circuit_breaker(threshold=9), ...]
    )
    assert rungs(observed.events) == ["runs"] * 4 + [""]


def test_good_calls_in_between_do_not_keep_a_failing_one_from_being_broken(driven: Way):
    """The repeated good call is on its own rungs."""
    script = [*each_time("fail", "a"), *each_time("look", "a")] * 2 + each_time("fail", "a")
    observed = climb(driven, script)
    assert rungs(observed.events) == ["runs", "runs", "runs", "runs", "runs circuit_broken"]
    observed = climb(driven, script, dedupe="strict")
    assert rungs(observed.events) == ["runs", "runs", "runs", "suppressed", "runs circuit_broken"]


def test_a_shared_breaker_comes_first_of_all(driven: Way):
    """After its first failure the tool is out of order: no call is made, and the count of the run continues."""
    breaker = CircuitBreaker(threshold=1, cool_down=60)
    script = [*each_time("fail", *"abcd")]
    observed = climb(driven, script, breaker=breaker)
    assert rungs(observed.events) == ["runs breaker", "", "", "circuit_broken"]
    assert observed.result.tool_calls_count == 1
    assert breaker.states == {"fail": "open"}


# Rounds.


@pytest.mark.parametrize("places", ["ab", "abc"])
def test_taking_turns_is_suppressed_then_nudged_then_stopped(driven: Way, places: str):
    """``A B A B``: each is repeated once, skipped in the third round, and the end of that is the last.

    The model has seen a skip by then. With ``strict`` the last of the second round is skipped too: what came
    in between was new at first, so that the others are made once more.
    """
    turns = len(places)
    third = [*["suppressed nudged"] * (turns - 1), "suppressed nudged loop_detected"]
    for dedupe, last_of_second in (("evidence", "runs"), ("strict", "suppressed")):
        observed = climb(driven, each_time("look", *places * 3), dedupe=dedupe)
        assert rungs(observed.events) == [*["runs"] * (2 * turns - 1), last_of_second, *third]
        reason = observed.result.reason
        assert (reason.iterations, reason.period) == (3, turns)


# Text.


def insisting(ctx: Any) -> Any:
    """The decision of a custom stage: a text without a number is no answer, and gets a nudge."""
    if ctx.tool_calls or any(letter.isdigit() for letter in ctx.response.text):
        return (yield from loop_decision(ctx))
    return ctx.guide("Say a number.")


INSISTING = [insisting if made.name == "loop_decision" else made for made in default_stages()]


def test_a_text_that_is_repeated_after_a_nudge_is_stopped(driven: Way):
    """A text has no call to suppress or to break; the stage nudges, and the third time is the last."""
    observed = climb(driven, ["Some.", "Some.", "Some."], stages=INSISTING)
    assert rungs(observed.events) == ["", "", "loop_detected"]
    assert observed.result.reason.calls == ("Some.",)


@pytest.mark.parametrize("texts", [["Some.", "Many.", "Some.", "4."], ["Some.", "Some.", "4."]])
def test_a_text_that_changes_after_a_nudge_goes_on(driven: Way, texts: list[str]):
    observed = climb(driven, texts, stages=INSISTING)
    assert isinstance(observed.result, Ok)
    assert observed.result.response.content == "4."


def test_texts_that_take_turns_are_stopped_as_well(driven: Way):
    observed = climb(driven, ["Some.", "Many."] * 3, stages=INSISTING)
    assert rungs(observed.events) == [""] * 5 + ["loop_detected"]
    assert (observed.result.reason.iterations, observed.result.reason.period) == (3, 2)


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


def test_what_is_broken_is_not_finished(driven: Way):
    """The third rung ends the run whatever there is to be done at limits: a tool is out of order."""
    observed = climb(driven, each_time("fail", "a", "a", "a"), limits=Limits(on_limit="finish"))
    assert rungs(observed.events) == ["runs", "runs", "runs circuit_broken"]
    assert observed.result.reason == CircuitBroken("fail", "Error: OSError: no such place", 3)


# Limits and the ladder.


def test_of_a_loop_and_a_spent_limit_the_limit_is_reported(driven: Way):
    """Both are reached in the same iteration: stages come before the look for loops."""
    observed = climb(driven, each_time("look", *["a"] * 4), limits=Limits(max_iterations=4))
    assert rungs(observed.events) == [
        *CLIMBED["evidence"][:3],
        "suppressed nudged max_iterations_reached",
    ]
    assert observed.result.reason == MaxIterationsReached(4)


def test_what_is_suppressed_costs_no_call(driven: Way):
    """It takes nothing out of the budget of calls, nor of its tool's own."""
    once = tool(name="look", max_uses=2)(look.fn)
    script = [*each_time("look", "a", "a", "b", "b"), "Empty."]
    observed = climb(driven, script, tools=[once], max_tool_calls=2, dedupe="strict")
    assert rungs(observed.events) == ["runs", "suppressed", "runs", "suppressed", ""]
    assert isinstance(observed.result, Ok)
