"""Resolvers and recipes in every form."""

import pytest

from treadle.effects import Mode
from treadle.errors import OptionError, ToolDefinitionError
from treadle.tools import Recipe, RecipeStep, Resolver, Tool, check_implementations


class Full:
    def resolve(self, call): ...

    def available_tools(self):
        return ["a", Tool("b"), {"name": "c"}, {"type": "function", "function": {"name": "d"}}]

    def dispatch_recipe(self, name):
        return (lambda arguments: Recipe()) if name == "a" else None


async def later(call): ...


class AsyncResolver:
    async def resolve(self, call): ...


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        (lambda call: 1, Mode.THREAD),
        (Full(), Mode.THREAD),
        (later, Mode.ASYNC),
        (AsyncResolver(), Mode.ASYNC),
    ],
)
def test_how_it_is_called_is_decided_once(given, mode):
    assert Resolver(given).mode is mode


@pytest.mark.parametrize("given", [5, "x", object(), {"resolve": 1}])
def test_an_object_that_cannot_resolve_is_an_error_with_the_expected_form(given):
    with pytest.raises(OptionError, match=r"^resolve_tool: expected a callable that takes a call"):
        Resolver(given)


def test_it_lists_tools_in_every_form():
    assert Resolver(Full()).names == ("a", "b", "c", "d")
    assert Resolver(lambda call: 1).names is None


def test_it_knows_the_names_it_lists_or_any_name_if_it_lists_none():
    listing, silent = Resolver(Full()), Resolver(lambda call: 1)
    assert listing.knows("a", has_tools=False)
    assert not listing.knows("x", has_tools=False)
    assert silent.knows("x", has_tools=False)
    assert not silent.knows("x", has_tools=True)


def test_it_has_recipes_for_some_names():
    assert Resolver(Full()).recipe("a", {}) == Recipe((), ())
    assert Resolver(Full()).recipe("b", {}) is None
    assert Resolver(lambda call: 1).recipe("a", {}) is None


@pytest.mark.parametrize(
    "made",
    [
        Recipe([RecipeStep("a", {"x": 1})], [RecipeStep("b", label="B")]),
        {"serial": [("a", {"x": 1})], "parallel": [{"tool": "b", "label": "B"}]},
        ([("a", {"x": 1})], [("b", {}, "B")]),
        ([RecipeStep("a", {"x": 1})], (RecipeStep("b", {}, "B"),), None),
    ],
)
def test_a_recipe_may_be_a_mapping_or_a_triple_and_steps_too(made):
    class Resolving(Full):
        def dispatch_recipe(self, name):
            return lambda arguments: made

    assert Resolver(Resolving()).recipe("a", {}) == Recipe(
        (RecipeStep("a", {"x": 1}),), (RecipeStep("b", {}, "B"),), None
    )


def nothing():
    return None


def test_a_tool_without_an_implementation_is_an_error():
    with pytest.raises(ToolDefinitionError) as caught:
        check_implementations([Tool("f", fn=nothing), Tool("g")], None, "tools: ")
    assert str(caught.value) == (
        "tools: tool 'g' has no function, and there is no resolve_tool to run it"
    )


def test_a_tool_needs_a_function_or_steps_or_a_resolver_unless_it_ends_the_run():
    made = [Tool("f", fn=nothing), Tool("g", steps=nothing), Tool("h", terminal=True)]
    check_implementations(made, None)
    check_implementations([Tool("f")], Resolver(nothing))
