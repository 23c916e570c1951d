"""The options of a loop: unknown names and invalid values are errors with a hint."""

import dataclasses
import typing

import pytest

from treadle import (
    Limits,
    Loop,
    LoopOptions,
    OptionError,
    PipelineError,
    RunHandle,
    RunState,
    stage,
    tool,
)
from treadle.limits import LIMIT_NAMES
from treadle.loop.options import Settings
from treadle.stages import default_stages

USER = [{"role": "user", "content": "Hi"}]


@tool
def add(a: int): ...


async def coroutine_function(_value): ...


def test_the_types_the_settings_and_the_limits_name_the_same_options():
    """So that a type checker accepts exactly the options that exist."""
    names = {spec.name for spec in dataclasses.fields(Settings)} | LIMIT_NAMES
    assert set(typing.get_type_hints(LoopOptions)) == names - {"llm_send_fn", "output"}


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("max_iteration", "max_iterations"),
        ("max_retry", "max_retries"),
        ("tool", "tools"),
        ("on_events", "on_event"),
        ("max_tools_calls", "max_tool_calls"),
    ],
)
def test_an_unknown_option_is_an_error_that_names_the_closest(name, closest):
    text = f"^there is no option '{name}'; did you mean '{closest}'\\?$"
    for use in (
        Loop,
        Loop().with_options,
        lambda **o: Loop.run_sync(USER, lambda m: "x", **o),
        lambda **o: Loop().run(USER, lambda m: "x", **o),
        lambda **o: Loop.steps(USER, lambda m: "x", **o),
    ):
        with pytest.raises(OptionError, match=text):
            use(**{name: 1})


def test_an_option_unlike_any_other_is_an_error_that_lists_all():
    with pytest.raises(
        OptionError,
        match="there is no option 'zzz'; known are accept_cut, breaker, breaker_threshold, ",
    ):
        Loop(zzz=1)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("name", 5, "name: expected text, got int"),
        ("name", None, "name: expected text, got NoneType"),
        ("limits", 5, "limits: expected Limits, got int"),
        ("limits", None, "limits: expected Limits, got NoneType"),
        ("llm_opts", 5, "llm_opts: expected a mapping, got int"),
        ("llm_opts", None, "llm_opts: expected a mapping, got NoneType"),
        ("stages", 5, "stages: expected a list of stages, or a Pipeline, got int"),
        ("stages", "x", "stages: expected a list of stages, or a Pipeline, got str"),
        ("middleware", None, "middleware: expected a list of middleware, got NoneType"),
        (
            "on_event",
            5,
            "on_event: expected a callable that takes an event, or a list of such, got int",
        ),
        ("on_iteration", 5, "on_iteration: expected a callable that takes a Context, got int"),
        (
            "repair_call",
            5,
            "repair_call: expected a sync callable that takes a call and its problems",
        ),
        ("state", {}, "state: expected a RunState, got dict"),
        ("handle", 5, "handle: expected a RunHandle, got int"),
        ("max_retries", -1, "max_retries: expected a whole number of at least 0, got -1"),
        ("max_retries", "3", "max_retries: expected a whole number of at least 0, got '3'"),
        ("max_retries", 1.5, "max_retries: expected a whole number of at least 0, got 1.5"),
        ("max_retries", True, "max_retries: expected a whole number of at least 0, got True"),
        (
            "retry_delay",
            float("nan"),
            "retry_delay: expected a number of seconds of at least 0, got nan",
        ),
        ("loop_threshold", 0, "loop_threshold: expected a whole number of at least 1, got 0"),
        (
            "breaker_threshold",
            None,
            "breaker_threshold: expected a whole number of at least 1, got None",
        ),
        ("max_blank_stops", -1, "max_blank_stops: expected a whole number of at least 0, got -1"),
        ("max_iterations", 0, "max_iterations: expected a whole number of at least 1, got 0"),
        ("max_seconds", "1", "max_seconds: expected a number of seconds of at least 0, got '1'"),
        (
            "instructions",
            coroutine_function,
            "instructions: expected text or a sync function, got ",
        ),
        ("cost_of", coroutine_function, "cost_of: expected a sync callable that takes a response"),
        (
            "repair_call",
            coroutine_function,
            "repair_call: expected a sync callable that takes a call and its problems",
        ),
        ("resolve_tool", 5, "resolve_tool: expected a callable that takes a call"),
        ("on_limit", "ask", "on_limit: expected 'stop' or 'finish', got 'ask'"),
        ("on_limit", None, "on_limit: expected 'stop' or 'finish', got None"),
        ("sequential", "no", "sequential: expected 'defer' or 'in_step', got 'no'"),
        ("show_budget", 1, "show_budget: expected True or False, got int"),
        ("dedupe", True, "dedupe: expected 'evidence', 'strict' or 'off', got True"),
        ("dedupe", None, "dedupe: expected 'evidence', 'strict' or 'off', got None"),
        ("cost_of", 5, "cost_of: expected a sync callable that takes a response, got int"),
        ("breaker", 3, "breaker: expected a CircuitBreaker, got int"),
        ("locks", {}, "locks: expected Locks, got dict"),
        ("pause_secret", "", "pause_secret: expected text or bytes, got str"),
        ("pause_secret", 5, "pause_secret: expected text or bytes, got int"),
        ("claim_store", True, "claim_store: expected an object with claim and release"),
        ("middleware", [5], "middleware: expected a list of middleware, got list"),
        ("tracer_provider", 5, "tracer_provider: expected a TracerProvider, got int"),
        ("meter_provider", 5, "meter_provider: expected a MeterProvider, got int"),
        ("logger_provider", 5, "logger_provider: expected a LoggerProvider, got int"),
        ("max_cost", -1, "max_cost: expected a number of US dollars of at least 0, got -1"),
        ("max_cost", "1", "max_cost: expected a number of US dollars of at least 0, got '1'"),
    ],
)
def test_an_invalid_value_is_an_error_with_the_expected_one(name, value, text):
    with pytest.raises(OptionError) as caught:
        Loop(**{name: value})
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    "name",
    [
        "stages",
        "tools",
        "resolve_tool",
        "output",
        "on_event",
        "on_iteration",
        "state",
        "handle",
        "cost_of",
        "breaker",
        "locks",
        "pause_secret",
        "claim_store",
        "loop_threshold",
    ],
)
def test_none_unsets_an_optional_option(name):
    assert getattr(Loop(**{name: None}).settings, name) is None


def test_members_of_limits_are_options_and_take_precedence_over_limits():
    made = Loop(limits=Limits(max_iterations=3, max_tool_calls=5), max_iterations=7)
    assert made.settings.limits == Limits(max_iterations=7, max_tool_calls=5)
    assert Loop(limits=5 if False else Limits(max_tool_calls=1)).settings.limits.max_tool_calls == 1


def test_wrong_limits_next_to_a_field_of_limits_are_reported_as_such():
    with pytest.raises(OptionError, match=r"^limits: expected Limits, got int"):
        Loop(limits=5, max_iterations=3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("breaker_threshold", 5),
        ("max_blank_stops", 1),
        ("repair_call", print),
        ("sequential", "in_step"),
        ("dedupe", "off"),
    ],
)
def test_options_of_the_default_stages_are_an_error_with_custom_stages(name, value):
    """They would be ignored silently."""
    with pytest.raises(OptionError, match=f"^{name} configures the default stages"):
        Loop(stages=default_stages(), **{name: value})
    with pytest.raises(OptionError, match=f"^{name} configures the default stages"):
        Loop(stages=default_stages()).with_options(**{name: value})


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_an_ellipsis_among_the_stages_is_the_default_ones_with_the_options_of_the_loop(kind):
    @stage
    def first(ctx):
        return ctx

    made = Loop(stages=kind([first, ...]), dedupe="strict", max_retries=7)
    assert made.pipeline.names == ("first", *Loop().pipeline.names)
    assert made.pipeline.components[1].options["max_retries"] == 7
    again = made.with_options(dedupe="off")
    [planned] = [one for one in again.pipeline.components if one.name == "plan_calls"]
    assert planned.options["dedupe"] == "off"


def test_the_default_stages_cannot_be_among_the_stages_twice():
    with pytest.raises(PipelineError, match="two components named 'ask_model'"):
        Loop(stages=[..., ...])


def test_with_options_returns_another_loop_and_does_not_change_the_first():
    first = Loop(max_iterations=3, name="a", tools=[add])
    second = first.with_options(max_tool_calls=4, name="b")
    assert (first.settings.name, first.settings.limits) == ("a", Limits(max_iterations=3))
    assert second.settings.limits == Limits(max_iterations=3, max_tool_calls=4)
    assert list(second.tools) == ["add"]
    assert first.with_options() is first


@pytest.mark.parametrize("name", ["tools", "stages"])
def test_an_iterator_is_read_only_once(name):
    value = {"tools": [add], "stages": default_stages()}[name]
    made = Loop(**{name: iter(value)}).with_options(max_iterations=3)
    assert list(made.tools) == ["add"] if name == "tools" else len(made.pipeline.names) == 9


def test_a_loop_copies_its_options():
    tools, opts = [add], {"temperature": 0}
    made = Loop(tools=tools, llm_opts=opts)
    tools.clear()
    opts["temperature"] = 1
    changed = made.with_options(max_iterations=3)
    assert list(changed.tools) == ["add"]
    assert changed.settings.llm_opts == {"temperature": 0}


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Loop().settings.name = "x"


def test_a_state_and_a_handle_are_not_copied():
    state, handle = RunState(), RunHandle()
    settings = Loop(state=state, handle=handle).settings
    assert settings.state is state
    assert settings.handle is handle
