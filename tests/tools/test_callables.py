"""Every kind of callable makes a tool; one that a model cannot call is a definition error."""

import dataclasses
import functools

import pytest

from treadle.errors import ToolDefinitionError
from treadle.tools import ToolContext, tool


@dataclasses.dataclass
class Size:
    width: int


def called(made, **arguments):
    """Call a tool as the loop does: checked, bound, called."""
    assert made.problems_of(arguments) == []
    return made.invoke(arguments, ToolContext("c1", "t", 1))


class Greeter:
    """Greets."""

    def __call__(self, name: str) -> str:
        return f"Hi {name}"

    def method(self, name: str) -> str:
        """Greet by method."""
        return f"Ho {name}"

    @classmethod
    def of_class(cls, name: str) -> str:
        """Greet by class."""
        return f"{cls.__name__} {name}"

    @staticmethod
    def static(name: str) -> str:
        """Greet by nobody."""
        return f"Static {name}"


@pytest.mark.parametrize(
    ("made", "name", "description", "answer"),
    [
        (Greeter(), "Greeter", "Greets.", "Hi Ann"),
        (Greeter().method, "method", "Greet by method.", "Ho Ann"),
        (Greeter.of_class, "of_class", "Greet by class.", "Greeter Ann"),
        (Greeter.static, "static", "Greet by nobody.", "Static Ann"),
        (staticmethod(Greeter.static), "static", "Greet by nobody.", "Static Ann"),
        (functools.partial(Greeter.static), "static", "Greet by nobody.", "Static Ann"),
        (lambda name: f"L {name}", None, "", "L Ann"),
    ],
)
def test_every_kind_of_callable_makes_a_tool(made, name, description, answer):
    made = tool(made) if name else tool(name="anonymous")(made)
    assert made.name == (name or "anonymous")
    assert made.description == description
    assert list(made.input_schema["properties"]) == ["name"]
    assert called(made, name="Ann") == answer


def test_arguments_filled_by_a_partial_are_not_in_the_schema():
    """A user id that was bound must not be a parameter that a model can override."""

    def find(query: str, user_id: int, limit: int = 5):
        """Find.

        Args:
            query: what to look for.
        """
        return query, user_id, limit

    made = tool(functools.partial(functools.partial(find, user_id=7), limit=3))
    assert made.name == "find"
    assert made.input_schema["properties"] == {
        "query": {"type": "string", "description": "what to look for."}
    }
    assert made.problems_of({"query": "x", "user_id": 8}) != []
    assert called(made, query="x") == ("x", 7, 3)


def test_a_keyword_filled_by_a_partial_cannot_be_overridden_by_an_arbitrary_one():
    def find(query: str, user_id: int, **more):
        return query, user_id, more

    made = tool(functools.partial(find, user_id=7))
    assert called(made, query="x", user_id=8, page=2) == ("x", 7, {"page": 2})


def test_an_object_that_wraps_a_function_has_the_types_of_the_function():
    class Traced:
        def __init__(self, fn):
            functools.update_wrapper(self, fn)

        def __call__(self, *args, **kwargs):
            return self.__wrapped__(*args, **kwargs)

    @tool
    @Traced
    def greet(name: str, times: "int" = 1):
        """Greet."""
        return f"Hi {name}" * times

    assert greet.input_schema["properties"] == {
        "name": {"type": "string"},
        "times": {"type": "integer", "default": 1},
    }
    assert called(greet, name="Ann", times=2) == "Hi AnnHi Ann"


def test_a_class_is_a_tool_that_creates_an_instance():
    assert called(tool(Size), width=3) == Size(3)
    assert tool(Size).input_schema["properties"] == {"width": {"type": "integer"}}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (Greeter.method, r"Greeter\.method is a method without its object.*tool\(thing\.method\)"),
        (classmethod(Greeter.static), "its signature cannot be read"),
        (max, "its signature cannot be read"),
    ],
)
def test_a_callable_that_a_model_cannot_call_is_a_definition_error(made, text):
    with pytest.raises(ToolDefinitionError, match=text):
        tool(made)


def test_a_plain_function_may_have_a_parameter_named_self():
    def meet(self): ...

    assert list(tool(meet).input_schema["properties"]) == ["self"]


@pytest.mark.parametrize("fn", [Greeter(), functools.partial(Greeter.static)])
def test_a_tool_of_a_callable_without_a_name_can_be_wrapped_as_a_function(fn):
    made = tool(fn, name="greet")

    @functools.wraps(made)
    def wrapped(name):
        return made(name)

    assert wrapped("Ann") == fn("Ann")
