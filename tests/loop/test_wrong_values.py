"""Values of the wrong kind: the error is treadle's own, and says what was given, what was expected, and where."""

import pytest
from pydantic import BaseModel

from treadle import (
    Limits,
    Loop,
    OptionError,
    Pipeline,
    PipelineError,
    RunHandle,
    ToolDefinitionError,
    TreadleError,
    tool,
)
from treadle.stages import circuit_breaker


class Invoice(BaseModel):
    total: int


@tool
def add(a: int): ...


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
        "tool 'ask': description must be text, not None",
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
    text = r"a function that checks the output goes to Output\(validators=\.\.\.\)$"
    with pytest.raises(OptionError, match=text):
        Loop(output=model)


def test_a_subclass_may_take_other_arguments():
    class Numbers(Pipeline):
        def __init__(self, factor, *, offset):
            super().__init__(lambda number: factor * number + offset)

    assert Numbers(2, offset=1).run_sync(3) == 7
