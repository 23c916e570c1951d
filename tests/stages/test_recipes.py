"""Recipes: one call that expands to several, and a result composed of theirs."""

import logging
import threading

import pytest

from treadle.events import ToolStarted
from treadle.messages import ToolResult
from treadle.run_state import RunNodeStatus
from treadle.stages import (
    dispatch_tools,
    parse_tool_calls,
    plan_calls,
    validate_calls,
)
from treadle.tools import Recipe, RecipeStep, tool

STAGES = (parse_tool_calls, validate_calls, plan_calls, dispatch_tools)


@tool
def double(n: int):
    return n * 2


@tool
def fail(n: int):
    raise ValueError(n)


class Resolver:
    """Expands ``big`` by a given recipe; resolves everything else, and ``big`` directly."""

    def __init__(self, recipe):
        self.recipe = recipe
        self.resolved = []

    def resolve(self, call):
        self.resolved.append(call.name)
        return f"direct {call.name}"

    def available_tools(self):
        return ["big", "small"]

    def dispatch_recipe(self, name):
        return (lambda arguments: self.recipe) if name == "big" else None


@pytest.fixture
def run_recipe(context, through):
    """Run one call of ``big`` by a recipe; return the context and the resolver."""

    def run_recipe(recipe, emit=None, tools=(double, fail), **more):
        resolver = Resolver(recipe)
        ctx = context(("big", {"q": 1}), tools=tools, resolve_tool=resolver, **more)
        return through(ctx, *STAGES, emit=emit), resolver

    return run_recipe


def answer_of(ctx):
    return ctx.tool_results["c1"].content


def test_serial_and_parallel_steps_are_composed_in_sections(run_recipe):
    ctx, resolver = run_recipe(
        Recipe(
            serial=[RecipeStep("double", {"n": 1}), RecipeStep("small")],
            parallel=[RecipeStep("double", {"n": 2}, "more"), RecipeStep("fail", {"n": 3})],
        )
    )
    assert answer_of(ctx) == (
        "## Results\n\n### double\n2\n\n### small\ndirect small\n\n"
        "## Additional results\n\n### more\n4\n\n"
        "## Errors\n\n### fail\nError: ValueError: 3"
    )
    assert not ctx.tool_results["c1"].is_error
    assert resolver.resolved == ["small"]


def test_an_empty_recipe_has_no_results(run_recipe):
    assert answer_of(run_recipe(Recipe())[0]) == "No results."


def test_serial_steps_run_in_order_and_see_the_results_so_far(run_recipe):
    seen = []

    def next_of(results):
        seen.append({label: result.content for label, result in results.items()})
        return {"n": int(results["first"].content)}

    ctx, _ = run_recipe(
        Recipe(
            [RecipeStep("double", {"n": 1}, "first"), RecipeStep("double", next_of, "second")],
            [RecipeStep("double", next_of, "third")],
        )
    )
    assert seen == [{"first": "2"}, {"first": "2", "second": "4"}]
    assert "### second\n4" in answer_of(ctx)
    assert "### third\n4" in answer_of(ctx)


def test_parallel_steps_run_at_the_same_time(run_recipe):
    both = threading.Barrier(2, timeout=5)

    @tool
    def meet(n: int):
        both.wait()
        return n

    recipe = Recipe(parallel=[RecipeStep("meet", {"n": 1}, "a"), RecipeStep("meet", {"n": 2}, "b")])
    ctx, _ = run_recipe(recipe, tools=[meet])
    assert answer_of(ctx) == "## Additional results\n\n### a\n1\n\n### b\n2"


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (RecipeStep("double", {"n": "x"}), 'n: expected integer, got string "x"'),
        (RecipeStep("fail", {"n": 1}), "Error: ValueError: 1"),
        (RecipeStep("double", lambda results: results["ghost"]), "Error: KeyError: 'ghost'"),
        (RecipeStep("double", {"n": {1, 2}}), "expected integer"),
    ],
)
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_a_step_that_fails_is_recorded_and_the_rest_continues(run_recipe, step, error, kind):
    ctx, resolver = run_recipe(Recipe(**{kind: [step, RecipeStep("double", {"n": 2}, "good")]}))
    assert error in answer_of(ctx)
    assert "### good\n4" in answer_of(ctx)
    assert resolver.resolved == []


def test_a_step_may_name_a_tool_that_only_the_resolver_knows(run_recipe):
    """A recipe is written by its author, not by a model: its tools need not be listed."""
    ctx, resolver = run_recipe(Recipe([RecipeStep("hidden")]))
    assert answer_of(ctx) == "## Results\n\n### hidden\ndirect hidden"
    assert resolver.resolved == ["hidden"]


def test_steps_of_one_label_are_numbered(run_recipe):
    ctx, _ = run_recipe(
        Recipe(
            [RecipeStep("double", {"n": 1}), RecipeStep("double", {"n": 2})],
            [RecipeStep("double", {"n": 3})],
        )
    )
    assert [line for line in answer_of(ctx).splitlines() if line.startswith("###")] == [
        "### double",
        "### double 2",
        "### double 3",
    ]


def test_a_recipe_may_compose_its_result_itself(run_recipe):
    ctx, _ = run_recipe(
        Recipe(
            [RecipeStep("double", {"n": 1}, "a"), RecipeStep("fail", {"n": 1}, "b")],
            compose=lambda results: {label: r.is_error for label, r in results.items()},
        )
    )
    assert answer_of(ctx) == '{"a":false,"b":true}'


@pytest.mark.parametrize("recipe", [5, (1,), {"wrong": []}])
def test_a_recipe_that_cannot_be_built_is_resolved_directly_and_logged(run_recipe, recipe, caplog):
    with caplog.at_level(logging.WARNING, "treadle.tools"):
        ctx, resolver = run_recipe(recipe)
    assert answer_of(ctx) == "direct big"
    assert resolver.resolved == ["big"]
    assert "the recipe of 'big' cannot be built" in caplog.text


def test_a_recipe_that_fails_after_its_steps_is_an_error_and_runs_no_step_again(run_recipe, caplog):
    """Resolving the call directly would repeat the side effects of the steps."""

    def broken(results):
        raise ValueError("broken")

    with caplog.at_level(logging.WARNING, "treadle.tools"):
        ctx, resolver = run_recipe(Recipe([RecipeStep("small")], compose=broken))
    assert ctx.tool_results["c1"] == ToolResult("c1", "Error: ValueError: broken", True)
    assert resolver.resolved == ["small"]
    assert ctx.state.current_node.tool_calls[0].status is RunNodeStatus.FAILED
    assert "call of big raised ValueError" in caplog.text


def test_a_name_without_a_recipe_is_resolved_directly(context, through):
    resolver = Resolver(None)
    ctx = through(context(("small", {}), resolve_tool=resolver), *STAGES)
    assert answer_of(ctx) == "direct small"


NO_APPROVAL = "needs approval, which cannot be requested within a recipe."


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_calls_of_steps_count_towards_max_uses(run_recipe, kind):
    page = tool(name="page", max_uses=2)(lambda n: n)
    ctx, _ = run_recipe(
        Recipe(**{kind: [RecipeStep("page", {"n": n}) for n in range(4)]}), tools=[page]
    )
    assert (
        answer_of(ctx).count("Not run: 'page' has reached its maximum number of uses in a run, 2.")
        == 2
    )
    assert ctx.run.budget.uses_left("page", 2) == 0


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_a_step_that_needs_approval_is_denied_because_a_recipe_cannot_ask(run_recipe, kind):
    send = tool(name="send", requires_approval=True)(lambda: "sent")
    ctx, _ = run_recipe(
        Recipe(**{kind: [RecipeStep("send"), RecipeStep("double", {"n": 1})]}), tools=[send, double]
    )
    assert f"## Errors\n\n### send\nError: 'send' {NO_APPROVAL}" in answer_of(ctx)
    assert "### double\n2" in answer_of(ctx)
    assert ctx.decision is None


def test_the_run_state_has_the_steps_under_their_call(run_recipe):
    ctx, _ = run_recipe(
        Recipe([RecipeStep("double", {"n": 1})], [RecipeStep("fail", {"n": 1}, "x")])
    )
    (node,) = ctx.state.current_node.tool_calls
    assert [(n.name, n.group_id, n.status) for n in node.tool_calls] == [
        ("double", "c1/double", RunNodeStatus.SUCCESS),
        ("fail", "c1/x", RunNodeStatus.FAILED),
    ]


def test_steps_emit_events_and_are_not_in_the_tool_results(run_recipe):
    events = []
    ctx, _ = run_recipe(
        Recipe([RecipeStep("double", {"n": 1})]), emit=events.append, has_listeners=True
    )
    started = [event.call.id for event in events if isinstance(event, ToolStarted)]
    assert started == ["c1", "c1/double"]
    assert list(ctx.tool_results) == ["c1"]
    assert ctx.tool_calls_count == 1


def test_a_composed_result_is_truncated_like_any_other(run_recipe):
    ctx, _ = run_recipe(Recipe(compose=lambda results: "x" * 60_000))
    assert answer_of(ctx).endswith("[cut: 0 more lines, 10,000 more bytes]")
