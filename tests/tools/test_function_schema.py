"""From callables and type hints to a schema, and from arguments to the types of the parameters."""

import dataclasses
import datetime as dt
import enum
import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from treadle.errors import ToolDefinitionError
from treadle.tools import ToolContext, tool, toolset

CONTEXT = ToolContext("c1", "t", 1)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


@dataclasses.dataclass
class Size:
    width: int


class Options(TypedDict, total=False):
    deep: bool


def called(made, **arguments):
    """Call a tool as the loop does: checked, bound, called."""
    assert made.problems_of(arguments) == []
    return made.invoke(arguments, CONTEXT)


def properties(fn):
    return tool(fn).input_schema["properties"]


def test_the_schema_is_the_signature_and_has_no_titles():
    def book(city: str, nights: int = 1, *, breakfast: bool = False) -> str: ...

    assert tool(book).input_schema == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "city": {"type": "string"},
            "nights": {"type": "integer", "default": 1},
            "breakfast": {"type": "boolean", "default": False},
        },
        "required": ["city"],
    }


def test_a_function_without_parameters_has_a_schema_without_properties():
    def now(): ...

    assert tool(now).input_schema == {
        "type": "object",
        "additionalProperties": False,
        "properties": {},
    }


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (Annotated[int, Field(ge=1, le=5)], {"type": "integer", "minimum": 1, "maximum": 5}),
        (
            Annotated[int, Field(description="how many")],
            {"type": "integer", "description": "how many"},
        ),
        (Annotated[int, "a note that says nothing to pydantic"], {"type": "integer"}),
    ],
)
def test_a_type_becomes_the_equivalent_schema(hint, schema):
    def take(a): ...

    take.__annotations__["a"] = hint
    assert properties(take) == {"a": schema}


def test_types_with_names_are_defined_in_the_schema_and_referred_to():
    def draw(color: Color, point: Point, size: Size, options: Options): ...

    made = tool(draw)
    assert set(made.input_schema["$defs"]) == {"Color", "Point", "Size", "Options"}
    assert made.input_schema["properties"]["color"] == {"$ref": "#/$defs/Color"}
    assert made.input_schema["$defs"]["Color"]["enum"] == ["red", "blue"]


def test_the_function_receives_the_types_of_its_hints():
    """Enums, dates, models and dataclasses arrive as such."""
    got = {}

    @tool
    def draw(color: Color, at: dt.datetime, point: Point, size: Size, options: Options):
        got.update(locals())

    called(
        draw,
        color="red",
        at="2026-01-02T03:04:05Z",
        point={"x": 1},
        size={"width": 2},
        options={"deep": True},
    )
    assert got["color"] is Color.RED
    assert got["at"] == dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert got["point"] == Point(x=1)
    assert got["size"] == Size(2)
    assert got["options"] == {"deep": True}


def test_constraints_that_a_schema_cannot_express_are_checked():
    """An invalid date, or a custom validator: a violation with its path, before the function runs."""

    def even(value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    @tool
    def take(at: dt.datetime, n: Annotated[int, AfterValidator(even)], point: Point): ...

    problems = take.problems_of({"at": "tomorrow", "n": 3, "point": {"x": 1}})
    assert len(problems) == 2
    assert problems[0].startswith("at: Input should be a valid datetime")
    assert problems[1] == "n: Value error, must be even"


def test_a_validator_that_raises_is_a_problem_of_the_call():
    def broken(value: int) -> int:
        raise KeyError(value)

    @tool
    def take(n: Annotated[int, AfterValidator(broken)]): ...

    assert take.problems_of({"n": 3}) == ["arguments: they cannot be checked: KeyError: 3"]


def test_nothing_is_coerced():
    """Pydantic alone would make 5 of "5"; the schema is checked first."""

    @tool
    def take(n: int, deep: bool): ...

    assert take.problems_of({"n": "5", "deep": "yes"}) == [
        'deep: expected boolean, got string "yes"',
        'n: expected integer, got string "5"',
    ]


def test_a_missing_argument_has_the_default_of_the_function():
    marker = object()

    @tool
    def take(a: int = 5, b: Any = marker):
        return a, b

    assert called(take) == (5, marker)
    assert called(take, a=6) == (6, marker)


def test_positional_only_parameters_and_their_defaults_are_passed_by_position():
    @tool
    def take(a: int, b: int = 2, /, c: int = 3):
        return a, b, c

    assert take.input_schema["required"] == ["a"]
    assert called(take, a=1) == (1, 2, 3)
    assert called(take, a=1, c=5) == (1, 2, 5)


def test_a_float_that_is_a_whole_number_arrives_as_an_int():
    """As in JSON Schema; and it is the same call as the one with 5."""

    @tool
    def take(n: int, **more):
        return n, more

    problems, arguments = take.validate({"n": 5.0, "x": 1})
    assert problems == []
    assert arguments == {"n": 5, "x": 1}
    assert type(arguments["n"]) is int


def test_arbitrary_keywords_can_be_combined_with_converted_types():
    @tool
    def take(at: dt.date, /, **more):
        return at, more

    assert called(take, at="2026-01-02", x=1) == (dt.date(2026, 1, 2), {"x": 1})


def test_arbitrary_keywords_are_passed_to_a_function_that_accepts_them():
    @tool
    def take(a: int, **more):
        return a, more

    assert take.input_schema["additionalProperties"] is True
    assert called(take, a=1, p0=2, name="x") == (1, {"p0": 2, "name": "x"})


def test_two_context_parameters_are_an_error():
    def take(first: ToolContext, n: int, second: ToolContext): ...

    with pytest.raises(
        ToolDefinitionError, match="first and second are both a ToolContext; a tool takes one"
    ):
        tool(take)


def test_variadic_positional_parameters_are_an_error():
    def take(*numbers: int): ...

    with pytest.raises(
        ToolDefinitionError, match=r"\*numbers cannot be filled; take a list instead"
    ):
        tool(take)


@pytest.mark.parametrize("name", ["schema", "copy", "json", "_hidden", "model_config", "class_"])
def test_a_parameter_may_have_a_name_that_pydantic_reserves(name):
    space = {}
    exec(f"def take({name}: int): return {name}", space)  # noqa: S102
    assert called(tool(space["take"]), **{name: 5}) == 5


def test_the_description_of_a_hint_is_kept_if_the_docstring_has_none():
    def find(
        a: Annotated[int, Field(description="hint")], b: Annotated[int, Field(description="hint")]
    ):
        """Find.

        Args:
            b: docstring.
        """

    descriptions = {name: spec["description"] for name, spec in properties(find).items()}
    assert descriptions == {"a": "hint", "b": "docstring."}


@pytest.mark.parametrize("hint", ["Missing", "list[Missing]", "int |", "dt.nothing", "5()"])
def test_hints_that_cannot_be_read_are_an_error_when_the_tool_is_made(hint):
    def take(a): ...

    take.__annotations__["a"] = hint
    with pytest.raises(ToolDefinitionError, match="tool 'take': its type hints cannot be read: "):
        tool(take)


class Socket: ...


@pytest.mark.parametrize(("hint", "text"), [(Socket, "Socket"), (Callable[[], int], "JsonSchema")])
def test_a_type_without_a_schema_is_an_error_when_the_tool_is_made(hint, text):
    def take(a): ...

    take.__annotations__["a"] = hint
    with pytest.raises(ToolDefinitionError, match=f"tool 'take': .*{text}"):
        tool(take)


def test_a_default_that_is_not_json_is_left_out_of_the_schema():
    def take(a: Any = object()): ...  # noqa: B008

    assert properties(take) == {"a": {}}


@pytest.mark.parametrize("default", [math.inf, -math.inf, math.nan])
def test_a_default_that_cannot_be_sent_is_left_out_of_the_schema(default):
    """A client refuses to send infinity: no request with this tool could be sent."""

    def take(a: Any = default): ...

    assert properties(take) == {"a": {}}


def test_a_default_that_a_field_describes_is_passed_to_the_function():
    """The default of the parameter is a `Field`, which has the value."""

    @tool
    def take(
        a: int = Field(3, description="hint", le=5),
        b: list[int] = Field(default_factory=list),  # noqa: B008 - what is tested
    ):
        return a, b

    assert take.input_schema["properties"]["a"] == {
        "type": "integer",
        "default": 3,
        "maximum": 5,
        "description": "hint",
    }
    assert called(take) == (3, [])
    assert called(take, a=4) == (4, [])
    assert take.validate({}) == ([], {})


def test_keys_arrive_as_the_type_of_the_hint():
    @tool
    def take(names: dict[int, Any]):
        return names

    assert called(take, names={"1": "x"}) == {1: "x"}
    assert take.problems_of({"names": {"a": "x"}})[0].startswith("names.a.[key]: ")


class Level(enum.StrEnum):
    LOW = "low"
    HIGH = "high"


def test_a_member_of_an_enumeration_in_a_literal_arrives_as_the_member():
    @tool
    def take(level: Literal[Level.LOW, Level.HIGH]):
        return level

    assert called(take, level="low") is Level.LOW


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    color: Color
    on: dt.date
    pair: tuple[int, int]


def test_strict_types_accept_their_json_forms():
    @tool
    def take(strict: Strict):
        return strict

    given = {"color": "red", "on": "2026-01-02", "pair": [1, 2]}
    made = Strict(color=Color.RED, on=dt.date(2026, 1, 2), pair=(1, 2))
    assert called(take, strict=given) == made
    assert tool(Strict).problems_of(given) == []
    assert take.problems_of({"strict": {**given, "on": "tomorrow"}}) != []


def test_a_lone_surrogate_reaches_a_function_of_converted_types():
    @tool
    def take(text: str, on: dt.date):
        return text, on

    assert called(take, text="\ud800", on="2026-01-02") == ("\ud800", dt.date(2026, 1, 2))


@pytest.mark.parametrize("pattern", ["(", "(?=x)x"])
def test_a_pattern_that_pydantic_cannot_compile_is_an_error_when_the_tool_is_made(pattern):
    def take(a: Annotated[str, Field(pattern=pattern)]): ...

    with pytest.raises(ToolDefinitionError, match="tool 'take'"):
        tool(take)


def test_a_model_with_a_type_without_a_schema_is_an_error_when_the_tool_is_made():
    class Take(BaseModel):
        hook: Callable[[], int]

    with pytest.raises(ToolDefinitionError, match=r"tools\[1\]: .*JsonSchema"):
        toolset([tool(lambda: 1, name="other"), Take])


def test_a_default_of_a_model_that_is_not_json_causes_no_warning():
    class Take(BaseModel):
        a: Any = object()

    assert tool(Take).input_schema["properties"] == {"a": {}}


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
