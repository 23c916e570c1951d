"""Parity with LlmCore: dispatch recipes, which expand one call into several."""

import json
import threading

import pytest

from treadle import Ok, Recipe, RecipeStep
from treadle.testing import ScriptedLLM, call, calls

from .conftest import answers

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": name, "input_schema": CITY} for name in ("report", "weather", "news", "sport")]


class RecipeResolver:
    """A resolver with a recipe for `report`; `resolve` returns the call, or fails for some."""

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


def reported(run, resolver, **options):
    """Run one call of `report` for Oslo; return the content of its result, and the result of the run."""
    llm = ScriptedLLM(calls(call("report", "r", city="Oslo")), "Read this.")
    result = run("Oslo?", llm, tools=TOOLS, resolve_tool=resolver, **options)
    return answers(result)[0], result


def test_a_recipe_expands_a_call_into_serial_and_parallel_steps(run):
    """A step has a tool, arguments and a label; the result has results, additional results and errors."""

    def recipe(arguments):
        return Recipe(
            serial=[RecipeStep("weather", arguments), RecipeStep("sport", arguments, "games")],
            parallel=[RecipeStep("news", {"city": "Bergen"})],
        )

    resolver = RecipeResolver(recipe, failing=["sport"])
    text, result = reported(run, resolver)
    assert text == (
        "## Results\n\n### weather\nweather of Oslo\n\n"
        "## Additional results\n\n### news\nnews of Bergen\n\n"
        "## Errors\n\n### games\nError: RuntimeError: no sport"
    )
    assert resolver.resolved == [("weather", "Oslo"), ("sport", "Oslo"), ("news", "Bergen")]
    assert isinstance(result, Ok)


def test_arguments_of_a_step_may_be_a_function_of_the_results_so_far(run):
    """Later steps, including parallel ones, can depend on the results of earlier ones."""

    def next_city(results):
        return {"city": results["first"].content.upper()}

    def recipe(arguments):
        return {
            "serial": [("weather", arguments, "first"), ("news", next_city)],
            "parallel": [{"tool": "sport", "arguments": next_city}],
        }

    resolver = RecipeResolver(recipe)
    reported(run, resolver)
    assert resolver.resolved[1:] == [("news", "WEATHER OF OSLO"), ("sport", "WEATHER OF OSLO")]


def test_a_serial_failure_is_recorded_and_the_rest_continues(run):
    """A step that fails, or whose arguments raise, is an error among the results."""

    def no_arguments(results):
        raise KeyError("nothing")

    def recipe(arguments):
        steps = [
            RecipeStep("weather", arguments),
            RecipeStep("sport", no_arguments),
            RecipeStep("news", arguments),
        ]
        return Recipe(serial=steps, compose=lambda results: [r.is_error for r in results.values()])

    resolver = RecipeResolver(recipe, failing=["weather"])
    assert reported(run, resolver)[0] == "[true,true,false]"
    assert resolver.resolved == [("weather", "Oslo"), ("news", "Oslo")]


def test_parallel_steps_of_a_recipe_run_at_the_same_time(run):
    """None of them can finish before all have started. (In LlmCore they run one by one.)"""

    def recipe(arguments):
        return Recipe(
            parallel=[RecipeStep(name, arguments) for name in ("weather", "news", "sport")]
        )

    text, _ = reported(run, RecipeResolver(recipe, together=3))
    assert text.startswith("## Additional results\n\n### weather\nweather of Oslo\n\n### news")


def test_sub_calls_are_validated_and_recorded(run):
    """A sub-call with invalid arguments never runs, and each one has its node in the run state.

    In LlmCore sub-calls skip validation.
    """

    def recipe(arguments):
        return Recipe(
            serial=[RecipeStep("weather", {"city": 7}), RecipeStep("news", arguments, "n")]
        )

    resolver = RecipeResolver(recipe)
    text, result = reported(run, resolver)
    assert "city: expected string, got integer 7" in text
    assert resolver.resolved == [("news", "Oslo")]
    (report,) = result.run.nodes[0].tool_calls
    assert [(node.name, node.group_id) for node in report.tool_calls] == [
        ("weather", "r/weather"),
        ("news", "r/n"),
    ]
    assert result.tool_calls_count == 1


def test_a_custom_composition_makes_the_result(run):
    """`compose` receives the results by label; equal labels are numbered."""

    def recipe(arguments):
        steps = [RecipeStep("news", {"city": city}) for city in ("Oslo", "Rome")]
        return Recipe((), steps, lambda results: {k: r.content for k, r in results.items()})

    text, _ = reported(run, RecipeResolver(recipe))
    assert json.loads(text) == {"news": "news of Oslo", "news 2": "news of Rome"}


def test_a_recipe_without_results_is_answered_with_no_results(run):
    """An empty recipe is answered with "no results", not with nothing."""
    assert reported(run, RecipeResolver(lambda arguments: Recipe()))[0] == "No results."


@pytest.mark.parametrize(
    "recipe",
    [
        lambda arguments: 1 / 0,
        lambda arguments: "no recipe",
    ],
)
def test_a_recipe_that_cannot_be_built_falls_back_to_resolving_the_call(run, recipe):
    """If a recipe raises, or is invalid, the call is resolved directly."""
    resolver = RecipeResolver(recipe)
    assert reported(run, resolver)[0] == "report of Oslo"
    assert resolver.resolved == [("report", "Oslo")]


def test_a_recipe_that_cannot_compose_is_an_error_and_its_steps_run_once(run):
    """LlmCore resolves the call directly then, which repeats the effects of the steps."""
    steps = [("news", {"city": "Oslo"})]
    resolver = RecipeResolver(
        lambda arguments: {"serial": steps, "compose": lambda results: results["missing"]}
    )
    assert reported(run, resolver)[0] == "Error: KeyError: 'missing'"
    assert resolver.resolved == [("news", "Oslo")]


def test_a_tool_without_a_recipe_is_resolved_directly(run):
    """A resolver without a recipe for a name resolves the call itself."""
    resolver = RecipeResolver(lambda arguments: Recipe())
    llm = ScriptedLLM(calls(call("news", city="Oslo")), "Read this.")
    assert answers(run("News?", llm, tools=TOOLS, resolve_tool=resolver)) == ["news of Oslo"]
