"""Presets: their values, and runs with them."""

import dataclasses
import inspect

import pytest

from treadle import (
    Limits,
    Loop,
    LoopDetected,
    LoopOptions,
    MaxIterationsReached,
    presets,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls

DEFER = {"sequential": "defer", "dedupe": "strict"}
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
    "runax": {"limits": Limits(3, 6, 3, on_limit="finish"), **DEFER},
    "runax_project": {"limits": Limits(3, 4, 3, on_limit="finish"), **DEFER},
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
