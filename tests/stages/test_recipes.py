"""Recipes: one call that expands to several, and a result composed of theirs."""

import pytest

from treadle.events import ToolStarted
from treadle.tools import Recipe, RecipeStep, tool

from .dispatching import STAGES, Expanding, broken, double


@pytest.fixture
def run_recipe(context, through):
    """Run one call of ``big`` by a recipe; return the context and the resolver."""

    def run_recipe(recipe, emit=None, tools=(double, broken), **more):
        resolver = Expanding(recipe)
        ctx = context(("big", {"q": 1}), tools=tools, resolve_tool=resolver, **more)
        return through(ctx, *STAGES, emit=emit), resolver

    return run_recipe


def answer_of(ctx):
    return ctx.tool_results["c1"].content


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (RecipeStep("double", {"n": "x"}), 'n: expected integer, got string "x"'),
        (RecipeStep("broken", {"n": 1}), "Error: ValueError: 1"),
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


NO_APPROVAL = "needs approval, which cannot be requested within a recipe."


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_calls_of_steps_count_towards_max_uses(run_recipe, kind):
    page = tool(name="page", max_uses=2)(lambda n: n)
    ctx, _ = run_recipe(
        Recipe(**{kind: [RecipeStep("page", {"n": n}) for n in range(4)]}), tools=[page]
    )
    text = "Not run: 'page' has reached its maximum number of uses in a run, 2."
    assert answer_of(ctx).count(text) == 2
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
