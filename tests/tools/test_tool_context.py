"""A parameter of the type `ToolContext` is the loop's to fill, and nothing to the model."""

from typing import Annotated

import pytest

from treadle.tools import ToolContext, tool

CONTEXT = ToolContext("c1", "t", 1)


def called(made, **arguments):
    """Call a tool as the loop does: checked, bound, called."""
    assert made.problems_of(arguments) == []
    return made.bind_call(arguments, lambda: CONTEXT)()


class TestTheContext:
    """A parameter of the type ToolContext is the loop's to fill."""

    def test_it_is_never_in_the_schema_and_is_filled_by_its_type(self):
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

    @pytest.mark.parametrize(
        "place", ["run: C, a: int, /", "a: int, run: C, /", "a: int, /, run: C"]
    )
    def test_it_may_be_positional_only(self, place):
        space = {"C": ToolContext}
        exec(f"def take({place}): return a, run", space)  # noqa: S102
        assert called(tool(space["take"]), a=1) == (1, CONTEXT)

    def test_a_model_cannot_give_it(self):
        @tool
        def take(run: ToolContext): ...

        assert take.problems_of({"run": {"call_id": "x"}}) == [
            "arguments: unknown field 'run'; the fields are none"
        ]
