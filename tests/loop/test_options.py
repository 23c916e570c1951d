"""The options of a loop: unknown names and invalid values are errors that name the place, with a hint."""

import ast
import dataclasses
import inspect
import itertools
import typing

import pytest
from pydantic import BaseModel

from treadle import (
    Limits,
    LLMError,
    Loop,
    LoopOptions,
    OptionError,
    Output,
    Pauses,
    Pipeline,
    PipelineError,
    RunHandle,
    RunState,
    Telemetry,
    ToolDefinitionError,
    TreadleError,
    stage,
    tool,
)
from treadle.loop.options import STAGE_OPTIONS, TYPES, LoopParameters
from treadle.pipeline import switch
from treadle.stages import (
    ask_model,
    circuit_breaker,
    default_stages,
    loop_decision,
    plan_calls,
    validate_calls,
)
from treadle.testing import ScriptedLLM

from .conftest import USER


@tool
def add(a: int): ...


async def coroutine_function(_value): ...


def test_the_signature_has_each_option_with_its_default():
    """And there are at most 35 of them."""
    parameters = inspect.signature(Loop).parameters
    assert parameters.keys() == {*LoopOptions.__annotations__, "llm_send_fn", "output"}
    assert len(parameters) <= 35
    assert parameters["max_retries"].default == 3
    assert parameters["max_iterations"].default == 10
    assert "max_retries=3" in str(inspect.signature(Loop))


def test_the_type_of_an_option_is_that_of_its_owner():
    """Of a field of `Limits`, or of a parameter of a stage."""
    fields = typing.get_type_hints(Limits)
    shared = [name for name in TYPES if name in fields]
    assert shared == [
        "max_iterations",
        "max_tool_calls",
        "max_total_tokens",
        "max_cost",
        "max_seconds",
    ]
    assert {name: TYPES[name] for name in shared} == {name: fields[name] for name in shared}
    for name, owner in STAGE_OPTIONS.items():
        assert typing.get_type_hints(owner.fn)[name] == TYPES[name]


def test_each_option_has_a_docstring_under_it():
    for kind in (LoopOptions, LoopParameters, Limits, Output, Pauses, Telemetry):
        [declared] = ast.parse(inspect.getsource(kind)).body
        for field, text in itertools.pairwise(declared.body):
            if isinstance(field, ast.AnnAssign):
                assert isinstance(text, ast.Expr), field.target.id


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
    with pytest.raises(OptionError, match="no option 'zzz'; known are breaker, dedupe, deps, ha"):
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
        ("max_iterations", 0, "max_iterations: expected a whole number of at least 1, got 0"),
        ("max_seconds", "1", "max_seconds: expected a number of seconds of at least 0, got '1'"),
        (
            "instructions",
            coroutine_function,
            "instructions: expected text or a sync function, got ",
        ),
        ("resolve_tool", 5, "resolve_tool: expected a callable that takes a call"),
        ("sequential", "no", "sequential: expected 'defer' or 'in_step', got 'no'"),
        ("dedupe", True, "dedupe: expected 'evidence', 'strict' or 'off', got True"),
        ("dedupe", None, "dedupe: expected 'evidence', 'strict' or 'off', got None"),
        ("breaker", 3, "breaker: expected a CircuitBreaker, got int"),
        ("locks", {}, "locks: expected Locks, got dict"),
        ("pauses", {}, "pauses: expected Pauses, got dict"),
        ("pauses", None, "pauses: expected Pauses, got NoneType"),
        ("telemetry", 5, "telemetry: expected Telemetry, got int"),
        ("model_middleware", [5], "model_middleware: expected a list of functions that take a"),
        ("middleware", [5], "middleware: expected a list of middleware, got list"),
        ("max_cost", -1, "max_cost: expected a number of US dollars of at least 0, got -1"),
        ("max_cost", "1", "max_cost: expected a number of US dollars of at least 0, got '1'"),
    ],
)
def test_an_invalid_value_is_an_error_with_the_expected_one(name, value, text):
    with pytest.raises(OptionError) as caught:
        Loop(**{name: value})
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("make", "options", "text"),
    [
        (Limits, {"on_limit": "ask"}, "on_limit: expected 'stop' or 'finish', got 'ask'"),
        (Limits, {"on_limit": None}, "on_limit: expected 'stop' or 'finish', got None"),
        (Limits, {"unmeasured": "no"}, "unmeasured: expected 'stop', 'estimate' or 'ignore'"),
        (Limits, {"show_budget": 1}, "show_budget: expected True or False, got int"),
        (Limits, {"cost_of": 5}, "cost_of: expected a sync callable that takes a response, got"),
        (Limits, {"cost_of": coroutine_function}, "cost_of: expected a sync callable that"),
        (Limits, {"max_turns": 5}, "Limits: there is no limit 'max_turns'; "),
        (Pauses, {"secret": ""}, "secret: expected text or bytes, got str"),
        (Pauses, {"secret": 5}, "secret: expected text or bytes, got int"),
        (Pauses, {"claims": True}, "claims: expected an object with claim and release"),
        (Pauses, {"on_unknown": "x"}, "on_unknown: expected 'tell' or 'ask', got 'x'"),
        (Telemetry, {"tracer_provider": 5}, "tracer_provider: expected a TracerProvider, got int"),
        (Telemetry, {"meter_provider": 5}, "meter_provider: expected a MeterProvider, got int"),
        (Telemetry, {"logger_provider": 5}, "logger_provider: expected a LoggerProvider, got int"),
        (Telemetry, {"capture_content": "1"}, "capture_content: expected True, False or None"),
        (Telemetry, {"model_calls": None}, "model_calls: expected True or False, got NoneType"),
    ],
)
def test_an_invalid_field_of_an_option_is_an_error_with_the_expected_value(make, options, text):
    with pytest.raises(OptionError) as caught:
        make(**options)
    assert str(caught.value).startswith(text)


def configured_with(made):
    return [one if one.fn is not made.fn else made for one in default_stages()]


NUMBER = "expected a whole number of at least"


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (ask_model(retry_delay=-1), "retry_delay: expected a number of seconds of at least 0"),
        (ask_model(restart_streams=1), "restart_streams: expected True or False, got int"),
        (validate_calls(repair_call=5), "repair_call: expected a sync callable that takes a call"),
        (validate_calls(repair_call=coroutine_function), "repair_call: expected a sync callable"),
        (loop_decision(max_blank_stops=-1), f"max_blank_stops: {NUMBER} 0, got -1"),
        (loop_decision(accept_cut=None), "accept_cut: expected True or False, got NoneType"),
        (plan_calls(dedupe="no"), "dedupe: expected 'evidence', 'strict' or 'off', got 'no'"),
        (circuit_breaker(threshold=None), f"threshold: {NUMBER} 1, got None"),
    ],
)
def test_an_invalid_option_of_a_default_stage_is_an_error_wherever_it_stands(made, text):
    for stages in (
        [made, ...],
        configured_with(made),
        [switch(bool, {True: configured_with(made), False: []})],
    ):
        with pytest.raises(OptionError) as caught:
            Loop(stages=stages)
        assert str(caught.value).startswith(text)


UNSET = "stages tools resolve_tool output on_event on_iteration state handle breaker locks"


@pytest.mark.parametrize("name", [*UNSET.split(), "loop_threshold"])
def test_none_unsets_an_optional_option(name):
    assert getattr(Loop(**{name: None}).settings, name) is None


def test_members_of_limits_are_options_and_take_precedence_over_limits():
    made = Loop(limits=Limits(max_iterations=3, max_tool_calls=5), max_iterations=7)
    assert made.settings.limits == Limits(max_iterations=7, max_tool_calls=5)
    assert Loop(limits=5 if False else Limits(max_tool_calls=1)).settings.limits.max_tool_calls == 1


def test_a_limit_that_was_given_by_name_holds_until_it_is_given_again():
    """So that `limits=` of a run does not remove a limit of its loop."""
    made = Loop(max_cost=1, limits=Limits(max_requests=5))
    changed = made.with_options(limits=Limits(on_limit="finish"))
    assert changed.settings.limits == Limits(max_cost=1, on_limit="finish")
    assert changed.with_options(max_cost=None).settings.limits == Limits(on_limit="finish")


def test_wrong_limits_next_to_a_field_of_limits_are_reported_as_such():
    with pytest.raises(OptionError, match=r"^limits: expected Limits, got int"):
        Loop(limits=5, max_iterations=3)


def options_of(loop, name):
    [found] = [one for one in loop.pipeline.components if one.name == name]
    return found.options


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_an_ellipsis_among_the_stages_is_the_default_ones_with_the_options_of_the_loop(kind):
    @stage
    def first(ctx):
        return ctx

    made = Loop(stages=kind([first, ...]), dedupe="strict", max_retries=7)
    assert made.pipeline.names == ("first", *Loop().pipeline.names)
    assert options_of(made, "ask_model") == {"max_retries": 7}
    assert options_of(made.with_options(dedupe="off"), "plan_calls") == {"dedupe": "off"}


@pytest.mark.parametrize(
    "stages",
    [
        default_stages,
        lambda: [lambda ctx: ctx, *default_stages()],
        lambda: [switch(bool, {True: default_stages(), False: []})],
        lambda: Loop().pipeline.insert_after("ask_model", lambda ctx: ctx),
        lambda: [lambda ctx: ctx, *default_stages()[1:]],
    ],
    ids=["alone", "after another", "nested", "of another loop", "without ask_model"],
)
def test_the_options_of_the_loop_reach_the_default_stages_of_any_list(stages):
    model = ScriptedLLM(ConnectionError(), "Hello")
    result = Loop.run_sync(USER, model, stages=stages(), max_retries=0)
    assert isinstance(result.reason, LLMError)
    assert (
        Loop.run_sync(USER, ScriptedLLM("Hello"), stages=stages(), dedupe="off").output == "Hello"
    )


def test_an_option_of_a_stage_takes_precedence_over_that_of_the_loop():
    asking = ask_model(max_retries=1)
    made = Loop(stages=[asking, *default_stages()[1:]], max_retries=5, retry_delay=0)
    assert options_of(made, "ask_model") == {"max_retries": 1, "retry_delay": 0}


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_default_stage_next_to_an_ellipsis_takes_the_position_of_the_default_one(position):
    @stage
    def mine(ctx):
        return ctx

    stages = [mine, ...]
    stages.insert(position, loop_decision(max_blank_stops=1))
    made = Loop(stages=stages, max_retries=2)
    assert made.pipeline.names == ("mine", *Loop().pipeline.names)
    assert options_of(made, "loop_decision") == {"max_blank_stops": 1}
    assert options_of(made, "ask_model") == {"max_retries": 2}


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("default", default_stages(), ids=lambda one: one.name)
def test_a_replacement_next_to_an_ellipsis_takes_the_position_of_the_default_stage(
    default, position
):
    @stage
    def other(ctx):
        return ctx

    mine = stage(lambda ctx: ctx, "mine", replaces=default)
    again = stage(lambda ctx: ctx, "again", replaces=mine)
    for replacing in (mine, again, stage(mine, name="renamed")):
        stages = [other, ...]
        stages.insert(position, replacing)
        names = list(Loop().pipeline.names)
        names[names.index(default.name)] = replacing.name
        assert Loop(stages=stages).pipeline.names == ("other", *names)


def test_a_stage_is_known_by_its_function_and_not_by_its_name():
    @stage(name="loop_decision", provides=("output",))
    def mine(ctx):
        return ctx

    with pytest.raises(PipelineError, match="two components named 'loop_decision'"):
        Loop(stages=[mine, ...])
    renamed = stage(loop_decision, name="decide")
    assert Loop(stages=[..., renamed]).pipeline.names[3] == "decide"


@pytest.mark.parametrize(
    ("name", "value"), [("max_retries", 0), ("retry_delay", 0), ("dedupe", "off")]
)
def test_an_option_that_no_stage_of_the_list_takes_is_an_error(name, value):
    """It would be ignored silently."""

    @stage(provides=("response",))
    def answers(ctx):
        return ctx.done("Hello")

    loop = Loop(stages=[answers])
    with pytest.raises(
        OptionError, match=f"^{name}: no stage of the list takes it, since it has no"
    ):
        Loop(stages=[answers], **{name: value})
    with pytest.raises(OptionError, match=f"^{name}: no stage of the list takes it"):
        loop.with_options(**{name: value})


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


class Invoice(BaseModel):
    total: int


def model(messages):
    return "Hello"


CASES = [
    (lambda: RunHandle().steer(42), OptionError, "steer: expected text or a user message, got int"),
    (
        lambda: Loop.run_sync("Hi", model, middleware=[lambda steps: None]),
        OptionError,
        "middleware[0]: expected it to take the steps of the run and return steps",
    ),
    (
        lambda: Loop.run_sync("Hi", model, middleware=[lambda steps: steps, lambda steps: 1]),
        OptionError,
        "middleware[1]: expected it",
    ),
    (
        lambda: Loop().as_tool("ask", None, model),
        ToolDefinitionError,
        "tool 'ask': description: expected text, got NoneType",
    ),
    (
        lambda: Loop().as_tool("ask", "Ask.", model, messages=3),
        OptionError,
        "as_tool: messages: expected a callable that takes the arguments",
    ),
    (lambda: Loop(output=42), OptionError, "output: expected a type, a JSON Schema, "),
    (lambda: Loop(output=Invoice(total=1)), OptionError, "output: expected a type, "),
    (lambda: Loop(output=model), OptionError, "output: expected a type, a JSON Schema, "),
    (lambda: Loop(output="Invoice"), OptionError, "output: there is no tool 'Invoice'"),
    (lambda: Loop(output=[]), OptionError, "output: expected at least one type"),
    (lambda: Loop(tools=add), ToolDefinitionError, "tools: expected a list of tools, got Tool"),
    (lambda: Loop(tools=[42]), ToolDefinitionError, "tools[0]: expected a Tool, a function"),
    (
        lambda: Limits(max_iteration=3),
        OptionError,
        "Limits: there is no limit 'max_iteration'; did you mean 'max_iterations'?",
    ),
    (
        lambda: Pipeline(model, untl=bool),
        PipelineError,
        "Pipeline: there is no option 'untl'; did you mean 'until'?",
    ),
    (
        lambda: circuit_breaker(treshold=2),
        PipelineError,
        "stage 'circuit_breaker' has no option 'treshold'; did you mean 'threshold'?",
    ),
]


@pytest.mark.parametrize(("use", "kind", "text"), CASES, ids=[text for *_, text in CASES])
def test_a_wrong_value_is_an_error_that_names_the_place(use, kind, text):
    with pytest.raises(TreadleError) as caught:
        use()
    assert type(caught.value) is kind
    assert str(caught.value).startswith(text)


def test_a_function_as_output_leads_to_the_validators():
    with pytest.raises(OptionError, match=r"goes to Output\(validators=...\)"):
        Loop(output=model)


def test_a_subclass_may_take_other_arguments():
    class Numbers(Pipeline):
        def __init__(self, factor, *, offset):
            super().__init__(lambda number: factor * number + offset)

    assert Numbers(2, offset=1).run_sync(3) == 7
