"""Presets: their values, and runs with them."""

import dataclasses
import inspect

import pytest

from treadle import (
    CircuitBroken,
    Limits,
    Loop,
    LoopDetected,
    LoopOptions,
    MaxIterationsReached,
    Ok,
    presets,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import answers

IN_STEP = {"sequential": "in_step", "dedupe": "off"}
VALUES = {
    "recommended": {
        "limits": Limits(
            max_iterations=25,
            max_tool_calls=100,
            max_parallel_calls=8,
            max_total_tokens=1_000_000,
            max_seconds=600,
            on_limit="finish",
            unmeasured="estimate",
        ),
        "sequential": "defer",
        "dedupe": "evidence",
        "loop_threshold": 3,
        "max_retries": 3,
    },
    "llmcore": {"limits": Limits(10), **IN_STEP, "loop_threshold": None},
    "orbiter": {"limits": Limits(10), **IN_STEP, "loop_threshold": 3, "max_retries": 3},
    "planck": {"limits": Limits(100), **IN_STEP, "loop_threshold": None},
    "runax": {
        "limits": Limits(3, 6, 3, on_limit="finish"),
        "sequential": "defer",
        "dedupe": "strict",
    },
    "runax_project": {
        "limits": Limits(3, 4, 3, on_limit="finish"),
        "sequential": "defer",
        "dedupe": "strict",
    },
}


@tool
def look(n: int):
    return f"saw {n}"


@tool
def same(n: int):
    return "same"


@tool
def fail(n: int):
    raise ValueError("no")


@tool(parallel_safe=False)
def alone(n: int):
    return f"alone {n}"


def looks(*numbers):
    """A response that calls the tool for each number; the ids are ``i1``, ``i2``."""
    return calls(*(call("look", f"i{n}", n=n) for n in numbers))


def endless(name="look"):
    """A model that never answers: it always makes another call."""
    return lambda messages, **opts: calls(call(name, n=len(messages)))


@pytest.fixture
def run(way):
    """Run under a preset, with changes to it."""

    def run(preset, model, **changes):
        options = {**getattr(presets, preset)(), **changes}
        model = model if callable(model) else ScriptedLLM(*model)
        return way.run(Loop(tools=[look, same, fail, alone], retry_delay=0, **options), model)

    return run


@pytest.mark.parametrize("name", VALUES)
def test_a_preset_has_these_values(name):
    assert getattr(presets, name)() == VALUES[name]


@pytest.mark.parametrize("name", VALUES)
def test_all_values_are_options_of_a_loop_and_can_be_changed(name):
    values = getattr(presets, name)()
    assert values.keys() <= LoopOptions.__annotations__.keys()
    made = Loop(**values).settings
    assert {option: getattr(made, option) for option in values} == values
    values["limits"] = Limits()
    assert getattr(presets, name)() == VALUES[name]
    changed = Loop(**getattr(presets, name)(), max_iterations=20).settings.limits
    assert changed == dataclasses.replace(VALUES[name]["limits"], max_iterations=20)


def test_there_are_no_other_presets():
    made = {
        name
        for name, value in vars(presets).items()
        if inspect.isfunction(value) and value.__module__ == presets.__name__ and name[0] != "_"
    }
    assert made == set(VALUES)


class TestRecommended:
    """Wide enough for most tasks, with a limit on everything."""

    def test_it_ends_with_an_answer(self, run):
        asked = []

        def model(messages, **opts):
            asked.append(opts.get("tool_choice"))
            return "so far" if opts.get("tool_choice") else looks(len(messages))

        result = run("recommended", model)
        assert (result.stop_reason, result.limit) == ("finished", MaxIterationsReached(25))
        assert asked == [None] * 26 + ["none"]

    def test_tool_calls_are_limited(self, run):
        model = lambda messages, **o: looks(*range(len(messages) * 10, len(messages) * 10 + 8))  # noqa: E731
        result = run("recommended", model)
        assert (result.limit.kind, result.tool_calls_count) == ("max_tool_calls", 100)

    def test_tokens_are_limited(self, run):
        usage = {"prompt_tokens": 600_000, "completion_tokens": 0}
        model = lambda m, **o: {"choices": [{"message": looks(len(m))}], "usage": usage}  # noqa: E731
        result = run("recommended", model)
        assert (result.limit.kind, result.iterations) == ("max_total_tokens", 4)

    def test_loops_end_with_an_answer(self, run):
        result = run("recommended", [calls(call("same", n=1)) for _ in range(4)] + ["I went round"])
        assert isinstance(result.limit, LoopDetected)
        assert result.unwrap().content == "I went round"


class TestLlmCore:
    """Ten iterations; a circuit breaker; blank stops; every call runs."""

    def test_ten_iterations_and_then_an_err(self, run):
        result = run("llmcore", endless())
        assert (result.reason, result.tool_calls_count) == (MaxIterationsReached(10), 10)

    def test_every_call_of_a_response_runs(self, run):
        batch = calls(call("alone", "a", n=1), call("look", "b", n=1), call("look", "c", n=1))
        result = run("llmcore", [batch, "done"])
        assert answers(result.messages) == {"a": "alone 1", "b": "saw 1", "c": "saw 1"}
        assert result.tool_calls_count == 3

    def test_it_does_not_detect_loops(self, run):
        result = run("llmcore", [calls(call("same", n=1)) for _ in range(9)] + ["done"])
        assert (type(result), result.tool_calls_count) == (Ok, 9)

    def test_the_same_error_three_times_breaks_the_circuit(self, run):
        result = run("llmcore", endless("fail"))
        assert (type(result.reason), result.iterations) == (CircuitBroken, 3)

    def test_three_blank_stops_are_tolerated(self, run):
        assert isinstance(run("llmcore", ["", "", "", "done"]), Ok)
        assert run("llmcore", [""] * 4).stop_reason == "empty_response"


class TestOrbiter:
    """Three retries; loop detection; no suppression of duplicates."""

    def test_three_equal_iterations_are_a_loop_and_each_call_runs(self, run):
        result = run("orbiter", [calls(call("same", n=1))] * 3)
        assert isinstance(result.reason, LoopDetected)
        assert (result.iterations, result.tool_calls_count) == (3, 3)

    def test_a_model_is_retried_three_times(self, run):
        assert isinstance(run("orbiter", [*[ConnectionError()] * 3, "done"]), Ok)
        assert run("orbiter", [ConnectionError()] * 4).reason.attempts == 4

    def test_ten_iterations(self, run):
        assert run("orbiter", endless()).reason == MaxIterationsReached(10)


class TestPlanck:
    """All calls run, with a note from the third time on; only the limit ends the run."""

    def test_repeated_calls_run_and_have_a_note_from_the_third_on(self, run):
        script = [calls(call("same", f"s{n}", n=1)) for n in range(5)]
        result = run("planck", [*script, "done"])
        texts = answers(result.messages)
        assert [texts[f"s{n}"].count("[note: ") for n in range(5)] == [0, 0, 1, 1, 1]
        assert "this is call number 5 of 'same'" in texts["s4"]
        assert (type(result), result.tool_calls_count) == (Ok, 5)

    def test_a_hundred_iterations(self, run):
        assert run("planck", endless()).reason == MaxIterationsReached(100)

    def test_the_limit_can_be_changed(self, run):
        assert run("planck", endless(), max_iterations=2).stop_reason == "max_iterations_reached"


class TestRunax:
    """Three iterations, six calls, three in parallel; duplicates suppressed; a last answer."""

    @pytest.mark.parametrize(("preset", "most"), [("runax", 6), ("runax_project", 4)])
    def test_tool_calls_are_limited(self, run, preset, most):
        script = [looks(1, 2, 3), looks(4, 5, 6), looks(7, 8, 9), "so far"]
        result = run(preset, script[:2] + script[2:] if most == 6 else [*script[:2], "so far"])
        assert (result.tool_calls_count, result.limit.kind) == (most, "max_tool_calls")
        assert (result.unwrap().content, result.stop_reason) == ("so far", "finished")

    @pytest.mark.parametrize("preset", ["runax", "runax_project"])
    def test_three_iterations(self, run, preset):
        result = run(preset, [looks(1), looks(2), looks(3), "so far"])
        assert result.limit == MaxIterationsReached(3)
        assert result.unwrap().content == "so far"

    @pytest.mark.parametrize("preset", ["runax", "runax_project"])
    def test_three_calls_run_in_parallel_and_the_rest_is_deferred(self, run, preset):
        result = run(preset, [looks(1, 2, 3, 4, 5), "done"])
        texts = answers(result.messages)
        assert [texts[f"i{n}"][:3] for n in range(1, 6)] == ["saw"] * 3 + ["Not"] * 2
        assert "no more calls can run at the same time" in texts["i4"]

    def test_a_call_that_must_run_alone_is_deferred(self, run):
        batch = calls(call("look", "a", n=1), call("alone", "b", n=2), call("look", "c", n=3))
        texts = answers(run("runax", [batch, "done"]).messages)
        assert texts["a"] == "saw 1"
        assert texts["b"].startswith("Not run yet: other calls have to run first.")
        assert texts["c"].startswith("Not run yet: other calls have to run first.")

    def test_duplicates_are_suppressed_and_not_counted(self, run):
        script = [looks(1), calls(call("look", "again", n=1)), "done"]
        result = run("runax", script)
        assert answers(result.messages)["again"].startswith("Not run again")
        assert result.tool_calls_count == 1

    def test_without_a_last_answer_the_text_is_a_fixed_sentence(self, run):
        result = run("runax", endless())
        assert result.stop_reason == "finished"
        assert result.unwrap().content.startswith("I could not finish this within the limits")
        assert result.iterations == 5
