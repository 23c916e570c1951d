"""Parity with LlmCore: checking calls, resolving them, ending by one, and dispatch recipes."""

import json
import threading

import pytest

from treadle import Err, Ok, Recipe, Step, tool
from treadle.testing import ScriptedLLM, call, calls

ORDER = {
    "name": "order",
    "input_schema": {
        "type": "object",
        "properties": {
            "item": {"type": "string"},
            "count": {"type": "integer"},
            "size": {"enum": ["small", "large"]},
        },
        "required": ["item", "count"],
    },
}


def answers(result):
    return [message["content"] for message in result.messages if message["role"] == "tool"]


def raw_call(name, arguments):
    """A call with arguments as text, which may be malformed."""
    return {"id": "raw", "type": "function", "function": {"name": name, "arguments": arguments}}


def recorder(value="resolved"):
    """A resolver, and the list of the calls that reached it."""
    resolved = []

    def resolve(call):
        resolved.append((call.name, dict(call.input)))
        return value

    return resolve, resolved


def test_an_unknown_tool_is_answered_with_the_available_names(run):
    """The model is told what there is, and what comes closest; nothing is dispatched."""
    resolve, resolved = recorder()
    tools = [ORDER, {"name": "refund"}]
    llm = ScriptedLLM(calls(call("odrer", item="rope", count=1)), "Sorry.")
    result = run("Rope, please.", llm, tools=tools, resolve_tool=resolve)
    (answer,) = answers(result)
    assert "no tool named 'odrer'" in answer
    assert "Did you mean 'order'?" in answer
    assert "Available tools: order, refund." in answer
    assert (resolved, result.tool_calls_count) == ([], 0)


def test_the_names_that_a_resolver_offers_are_available_too(run):
    """With ``available_tools()`` a resolver names tools of its own, which it is then asked for."""

    class Shop:
        def available_tools(self):
            return ["close_shop"]

        def resolve(self, call):
            return f"did {call.name}"

    llm = ScriptedLLM(calls(call("close_shop"), call("open_shop")), "Closed.")
    first, second = answers(run("Close.", llm, tools=[ORDER], resolve_tool=Shop()))
    assert first == "did close_shop"
    assert "Available tools: close_shop, order." in second


def test_invalid_arguments_are_answered_with_every_violation(run):
    """Missing field, wrong type with what was got, value not in the enumeration: all at once."""
    resolve, resolved = recorder()
    llm = ScriptedLLM(calls(call("order", count="two", size="huge")), "Sorry.")
    result = run("Two huge ones.", llm, tools=[ORDER], resolve_tool=resolve)
    (answer,) = answers(result)
    assert "missing required field 'item'" in answer
    assert 'count: expected integer, got string "two"' in answer
    assert 'size: expected one of "small", "large", got "huge"' in answer
    assert (resolved, result.tool_calls_count) == ([], 0)


@pytest.mark.parametrize("arguments", ['{"item": "rope", "count": 2', "[1]", "null", "NaN"])
def test_arguments_that_are_no_json_object_are_answered_and_never_dispatched(run, arguments):
    """Malformed arguments are told to the model; they never become ``{}``."""
    resolve, resolved = recorder()
    llm = ScriptedLLM(calls(raw_call("order", arguments)), "Sorry.")
    result = run("Rope.", llm, tools=[ORDER], resolve_tool=resolve)
    assert "not valid JSON" in answers(result)[0]
    assert resolved == []


def test_an_invalid_call_does_not_fail_its_siblings(run):
    """Only the bad call is answered as bad; the calls beside it are dispatched."""
    resolve, resolved = recorder("ordered")
    bad, good = call("order", item="rope"), call("order", item="sail", count=1)
    llm = ScriptedLLM(calls(bad, good), "Half of it.")
    first, second = answers(run("Rope and sail.", llm, tools=[ORDER], resolve_tool=resolve))
    assert "missing required field 'count'" in first
    assert second == "ordered"
    assert resolved == [("order", {"item": "sail", "count": 1})]


def test_an_exception_of_the_resolver_becomes_a_tool_error(run):
    """The run goes on, and the model is told what was raised."""

    def resolve(call):
        raise LookupError("out of stock")

    llm = ScriptedLLM(calls(call("order", item="rope", count=1)), "None left.")
    result = run("Rope.", llm, tools=[ORDER], resolve_tool=resolve)
    assert isinstance(result, Ok)
    assert answers(result) == ["Error: LookupError: out of stock"]
    assert llm.sent[1].messages[-1]["content"] == "Error: LookupError: out of stock"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Ok("two left"), "two left"),
        ("two left", "two left"),
        (Ok({"left": 2}), '{"left":2}'),
        (Err("out of stock"), "Error: out of stock"),
    ],
)
def test_ok_and_error_results_both_reach_the_model(run, value, told):
    """What a resolver returns is what the model reads, wrapped in Ok or Err or bare."""
    llm = ScriptedLLM(calls(call("order", item="rope", count=1)), "So it is.")
    run("Rope.", llm, tools=[ORDER], resolve_tool=lambda call: value)
    assert llm.sent[1].messages[-1]["role"] == "tool"
    assert llm.sent[1].messages[-1]["content"] == told


def test_a_call_of_the_terminal_tool_ends_the_run_with_its_arguments(run):
    """Its arguments are the output; nothing is dispatched, itself and its siblings are answered."""
    resolve, resolved = recorder()
    tools = [ORDER, {"name": "look", "input_schema": {"type": "object"}}]
    final = call("order", item="rope", count=2)
    llm = ScriptedLLM(calls(call("look"), final, call("look")))
    result = run("Rope.", llm, tools=tools, resolve_tool=resolve, output="order")
    assert isinstance(result, Ok)
    assert (result.output, result.stop_reason) == ({"item": "rope", "count": 2}, "output")
    assert (resolved, result.tool_calls_count) == ([], 0)
    assert len(answers(result)) == 3


def test_invalid_arguments_of_the_terminal_tool_do_not_end_the_run(run):
    """They are answered as those of any tool, and the model may try again."""
    bad, good = call("order", item="rope"), call("order", item="rope", count=1)
    result = run("Rope.", ScriptedLLM(calls(bad), calls(good)), tools=[], output=ORDER)
    assert (result.output, result.iterations) == ({"item": "rope", "count": 1}, 2)


def test_plain_text_still_ends_a_run_that_has_a_terminal_tool(run):
    """The terminal tool is an offer: a text answer is an answer too, and has no output."""
    result = run("Rope.", ScriptedLLM("Which one?"), output=ORDER)
    assert (result.response.content, result.output) == ("Which one?", None)
    assert result.stop_reason == "answered"


def test_a_tool_of_the_same_name_without_the_option_is_dispatched_as_usual(run):
    """No name is special: only the option makes a tool terminal."""
    resolve, resolved = recorder("ordered")
    llm = ScriptedLLM(calls(call("order", item="rope", count=1)), "Done.")
    result = run("Rope.", llm, tools=[ORDER], resolve_tool=resolve)
    assert (answers(result), result.output) == (["ordered"], None)
    assert resolved == [("order", {"item": "rope", "count": 1})]


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": name, "input_schema": CITY} for name in ("report", "weather", "news", "sport")]


class Kitchen:
    """A resolver with a recipe for `report`; `resolve` answers with the call, or fails if told."""

    def __init__(self, make, failing=(), together=0):
        self.make = make
        self.failing = failing
        self.resolved = []
        self._all_here = threading.Barrier(together, timeout=5) if together else None

    def dispatch_recipe(self, name):
        return self.make if name == "report" else None

    def resolve(self, call):
        self.resolved.append((call.name, call.input["city"]))
        if self._all_here is not None:
            self._all_here.wait()
        if call.name in self.failing:
            raise RuntimeError(f"no {call.name}")
        return f"{call.name} of {call.input['city']}"


def reported(run, kitchen, **options):
    """Run one call of `report` for Oslo; return what the model is told, and the result."""
    llm = ScriptedLLM(calls(call("report", "r", city="Oslo")), "Read this.")
    result = run("Oslo?", llm, tools=TOOLS, resolve_tool=kitchen, **options)
    return answers(result)[0], result


def test_a_recipe_expands_a_call_into_serial_and_parallel_steps(run):
    """A step is tool, arguments and label; composed are results, additional results, errors."""

    def recipe(arguments):
        return Recipe(
            serial=[Step("weather", arguments), Step("sport", arguments, "games")],
            parallel=[Step("news", {"city": "Bergen"})],
        )

    kitchen = Kitchen(recipe, failing=["sport"])
    told, result = reported(run, kitchen)
    assert told == (
        "## Results\n\n### weather\nweather of Oslo\n\n"
        "## Additional results\n\n### news\nnews of Bergen\n\n"
        "## Errors\n\n### games\nError: RuntimeError: no sport"
    )
    assert kitchen.resolved == [("weather", "Oslo"), ("sport", "Oslo"), ("news", "Bergen")]
    assert isinstance(result, Ok)


def test_arguments_of_a_step_may_be_a_function_of_the_results_so_far(run):
    """Later steps, parallel ones too, can be made of what earlier ones brought."""

    def next_city(results):
        return {"city": results["first"].content.upper()}

    def recipe(arguments):
        return {
            "serial": [("weather", arguments, "first"), ("news", next_city)],
            "parallel": [{"tool": "sport", "arguments": next_city}],
        }

    kitchen = Kitchen(recipe)
    reported(run, kitchen)
    assert kitchen.resolved[1:] == [("news", "WEATHER OF OSLO"), ("sport", "WEATHER OF OSLO")]


def test_a_serial_failure_is_recorded_and_the_rest_goes_on(run):
    """A step that fails, or whose arguments cannot be made, is an error among the results."""

    def no_arguments(results):
        raise KeyError("nothing")

    def recipe(arguments):
        steps = [Step("weather", arguments), Step("sport", no_arguments), Step("news", arguments)]
        return Recipe(serial=steps, compose=lambda results: [r.is_error for r in results.values()])

    kitchen = Kitchen(recipe, failing=["weather"])
    assert reported(run, kitchen)[0] == "[true,true,false]"
    assert kitchen.resolved == [("weather", "Oslo"), ("news", "Oslo")]


def test_parallel_steps_of_a_recipe_run_at_the_same_time(run):
    """None of them can finish before all have started. (In LlmCore they run one by one.)"""

    def recipe(arguments):
        return Recipe(parallel=[Step(name, arguments) for name in ("weather", "news", "sport")])

    told, _ = reported(run, Kitchen(recipe, together=3))
    assert told.startswith("## Additional results\n\n### weather\nweather of Oslo\n\n### news")


def test_sub_calls_are_validated_and_recorded(run):
    """A sub-call with bad arguments never runs, and each one has its node in the record.

    In LlmCore sub-calls skip validation.
    """

    def recipe(arguments):
        return Recipe(serial=[Step("weather", {"city": 7}), Step("news", arguments, "n")])

    kitchen = Kitchen(recipe)
    told, result = reported(run, kitchen)
    assert "city: expected string, got integer 7" in told
    assert kitchen.resolved == [("news", "Oslo")]
    (report,) = result.run.nodes[0].tool_calls
    assert [(node.name, node.group_id) for node in report.tool_calls] == [
        ("weather", "r/weather"),
        ("news", "r/n"),
    ]
    assert result.tool_calls_count == 1


def test_a_composition_of_ones_own_makes_the_result(run):
    """`compose` gets the results by label, those of one label numbered."""

    def recipe(arguments):
        steps = [Step("news", {"city": city}) for city in ("Oslo", "Rome")]
        return Recipe((), steps, lambda results: {k: r.content for k, r in results.items()})

    told, _ = reported(run, Kitchen(recipe))
    assert json.loads(told) == {"news": "news of Oslo", "news 2": "news of Rome"}


def test_a_recipe_without_results_says_so(run):
    """An empty recipe is answered with "no results", not with nothing."""
    assert reported(run, Kitchen(lambda arguments: Recipe()))[0] == "No results."


@pytest.mark.parametrize(
    "recipe",
    [
        lambda arguments: 1 / 0,
        lambda arguments: "no recipe",
        lambda arguments: Recipe(compose=lambda results: results["missing"]),
    ],
)
def test_a_recipe_that_fails_falls_back_to_resolving_the_call(run, recipe):
    """A recipe that raises, or is none, or cannot compose: the call is resolved directly."""
    kitchen = Kitchen(recipe)
    assert reported(run, kitchen)[0] == "report of Oslo"
    assert kitchen.resolved == [("report", "Oslo")]


def test_a_tool_without_a_recipe_is_resolved_directly(run):
    """A resolver that has no recipe for a name is asked for the call itself."""
    kitchen = Kitchen(lambda arguments: Recipe())
    llm = ScriptedLLM(calls(call("news", city="Oslo")), "Read this.")
    assert answers(run("News?", llm, tools=TOOLS, resolve_tool=kitchen)) == ["news of Oslo"]


def test_a_tool_with_a_function_needs_no_resolver(run):
    """A function that is a tool is called directly; the resolver gets the others."""

    @tool
    def greet(name: str) -> str:
        return f"Hello {name}"

    resolve, resolved = recorder()
    llm = ScriptedLLM(calls(call("greet", name="Ada"), call("order", item="a", count=1)), "Done.")
    result = run("Greet.", llm, tools=[greet, ORDER], resolve_tool=resolve)
    assert answers(result) == ["Hello Ada", "resolved"]
    assert [name for name, _ in resolved] == ["order"]
