"""A parameter of the type `ToolContext` is filled by the loop and hidden from the model."""

from typing import Annotated

import pytest

from treadle.tools import ToolContext, tool

CONTEXT = ToolContext("c1", "t", 1)


def called(made, **arguments):
    """Call a tool as the loop does: checked, bound, called."""
    assert made.problems_of(arguments) == []
    return made.invoke(arguments, CONTEXT)


class TestTheContext:
    """The loop fills a parameter of the type `ToolContext`."""

    def test_it_is_not_in_the_schema_and_is_filled_by_its_type(self):
        @tool
        def take(a: int, run: ToolContext):
            return a, run

        assert list(take.input_schema["properties"]) == ["a"]
        assert called(take, a=1) == (1, CONTEXT)

    @pytest.mark.parametrize("hint", [ToolContext | None, Annotated[ToolContext, "x"]])
    def test_it_is_found_within_other_hints(self, hint):
        def take(a: int, run=None):
            return run

        take.__annotations__["run"] = hint
        made = tool(take)
        assert list(made.input_schema["properties"]) == ["a"]
        assert called(made, a=1) is CONTEXT

    def test_a_model_cannot_fill_it(self):
        @tool
        def take(run: ToolContext): ...

        assert take.problems_of({"run": {"call_id": "x"}}) == [
            "arguments: unknown field 'run'; the fields are none"
        ]
