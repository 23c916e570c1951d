"""From callables and type hints to a schema, and from arguments to the types of the parameters."""

import dataclasses
import datetime as dt
import enum
import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, Unpack

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model
from typing_extensions import TypedDict

from treadle import Loop
from treadle.errors import ToolDefinitionError
from treadle.testing import ScriptedLLM, call, calls
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
    def now(): ...
    def book(city: str, nights: int = 1, *, breakfast: bool = False) -> str: ...

    closed = {"type": "object", "additionalProperties": False}
    assert tool(now).input_schema == {**closed, "properties": {}}
    assert tool(book).input_schema == {
        **closed,
        "properties": {
            "city": {"type": "string"},
            "nights": {"type": "integer", "default": 1},
            "breakfast": {"type": "boolean", "default": False},
        },
        "required": ["city"],
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

    @tool
    def draw(color: Color, at: dt.datetime, point: Point, size: Size, options: Options):
        return color, at, point, size, options

    given = {"color": "red", "at": "2026-01-02T03:04:05Z", "point": {"x": 1}, "size": {"width": 2}}
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    made = called(draw, **given, options={"deep": True})
    assert made == (Color.RED, at, Point(x=1), Size(2), {"deep": True})


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


def test_arbitrary_keywords_are_passed_to_a_function_that_accepts_them():
    @tool
    def take(a: int, **more):
        return a, more

    @tool
    def convert(at: dt.date, /, **more):
        return at, more

    assert take.input_schema["additionalProperties"] is True
    assert called(take, a=1, p0=2, name="x") == (1, {"p0": 2, "name": "x"})
    assert called(convert, at="2026-01-02", x=1) == (dt.date(2026, 1, 2), {"x": 1})


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
    text = "tool 'take': its type hints cannot be read: .*define or import the name at the top of"
    with pytest.raises(ToolDefinitionError, match=text):
        tool(take)


class Socket: ...


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (Socket, "Socket"),
        (Callable[[], int], "JsonSchema"),
        (Annotated[str, Field(pattern="(")], "regex"),
        (Annotated[str, Field(pattern="(?=x)x")], "look-around"),
    ],
)
def test_a_type_without_a_schema_is_an_error_when_the_tool_is_made(hint, text):
    def take(a): ...

    take.__annotations__["a"] = hint
    with pytest.raises(ToolDefinitionError, match=rf"(?s)tool 'take': .*{text}"):
        tool(take)


def test_a_model_with_a_type_without_a_schema_is_an_error_when_the_tool_is_made():
    model = create_model("Take", hook=Callable[[], int])
    with pytest.raises(ToolDefinitionError, match=r"tools\[1\]: .*JsonSchema"):
        toolset([tool(lambda: 1, name="other"), model])


@pytest.mark.parametrize("default", [object(), math.inf, -math.inf, math.nan])
def test_a_default_that_is_not_json_is_left_out_of_the_schema(default):
    """A client refuses to send infinity: no request with this tool could be sent."""

    def take(a: Any = default): ...

    assert properties(take) == properties(create_model("Take", a=(Any, default))) == {"a": {}}


def test_a_default_that_a_field_describes_is_passed_to_the_function():
    """The default of the parameter is a `Field`, which has the value."""

    @tool
    def take(
        a: int = Field(3, description="hint", le=5),
        b: list[int] = Field(default_factory=list),  # noqa: B008 - what is tested
    ):
        return a, b

    described = {"type": "integer", "default": 3, "maximum": 5, "description": "hint"}
    assert take.input_schema["properties"]["a"] == described
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


def take_many(*numbers: int): ...


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
    query = {"type": "string", "description": "what to look for."}
    assert made.input_schema["properties"] == {"query": query}
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

    times = {"type": "integer", "default": 1}
    assert greet.input_schema["properties"] == {"name": {"type": "string"}, "times": times}
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
        (take_many, r"\*numbers cannot be filled; take a list instead"),
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

        assert called(take, a=1) == (1, CONTEXT)
        unknown = "arguments: unknown field 'run'; the fields are a"
        assert take.problems_of({"a": 1, "run": {"call_id": "x"}}) == [unknown]

    @pytest.mark.parametrize("hint", [ToolContext | None, Annotated[ToolContext, "x"]])
    def test_it_is_found_within_other_hints(self, hint):
        def take(a: int, run=None):
            return run

        take.__annotations__["run"] = hint
        made = tool(take)
        assert list(made.input_schema["properties"]) == ["a"]
        assert called(made, a=1) is CONTEXT


# Wrapped functions: the schema describes the arguments with which the wrapper can be called.

DB = "the database"


def forecast(db: str, city: str, days: int = 3) -> str:
    """Forecast.

    Args:
        db: The database.
        city: The city.
    """
    return f"{db}, {city}, {days}"


def filling(fn):
    """Wrappers of a function that fill its first argument."""

    @functools.wraps(fn)
    def binds(*args, **kwargs):
        return fn(DB, *args, **kwargs)

    @functools.wraps(fn)
    def injects(*args, **kwargs):
        return fn(*args, db=DB, **kwargs)

    @functools.wraps(fn)
    def sets(*args, **kwargs):
        kwargs["db"] = DB
        return fn(*args, **kwargs)

    @functools.wraps(fn)
    def sets_a_default(*args, **kwargs):
        kwargs.setdefault("db", DB)
        return fn(*args, **kwargs)

    @functools.wraps(fn)
    def updates(*args, **kwargs):
        kwargs.update(db=DB)
        return fn(*args, **kwargs)

    @functools.wraps(fn)
    def names(city, days=3):
        return fn(DB, city, days)

    @functools.wraps(fn)
    async def awaits(*args, **kwargs):
        return fn(DB, *args, **kwargs)

    return [binds, injects, sets, sets_a_default, updates, names, awaits]


def passes(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


def ran(made, **arguments):
    """The result of a call that the model makes."""
    llm = ScriptedLLM(calls(call(made.name, **arguments)), "Done.")
    result = Loop.run_sync("q", llm, tools=[made])
    return next(one["content"] for one in result.messages if one["role"] == "tool")


FILLING = [
    *filling(forecast),
    passes(filling(forecast)[0]),
    filling(passes(forecast))[0],
    functools.partial(forecast, DB),
    functools.partial(forecast, db=DB),
]


@pytest.mark.parametrize("fn", FILLING, ids=range(len(FILLING)))
def test_an_argument_that_the_wrapper_fills_is_not_in_the_schema(fn):
    made = tool(fn, name="forecast")
    assert list(made.input_schema["properties"]) == ["city", "days"]
    assert made.input_schema["required"] == ["city"]
    assert ran(made, city="Rome") == f"{DB}, Rome, 3"


def test_a_wrapper_that_passes_everything_has_the_schema_of_its_function():
    assert tool(passes(forecast)).input_schema == tool(forecast).input_schema


def test_a_parameter_that_the_wrapper_adds_is_in_the_schema():
    @functools.wraps(forecast)
    def adds(*args, loud=False, **kwargs):
        made = forecast(*args, **kwargs)
        return made.upper() if loud else made

    made = tool(adds)
    assert list(made.input_schema["properties"]) == ["db", "city", "days", "loud"]
    assert ran(made, db="x", city="Rome", loud=True) == "X, ROME, 3"


def test_a_cached_function_is_called_with_its_own_parameters():
    @functools.cache
    def double(number: int) -> int:
        """Double."""
        return 2 * number

    assert ran(tool(double), number=4) == "8"


@functools.singledispatch
def describe(value: int) -> str:
    """Describe."""
    return f"the number {value}"


class Describing:
    @functools.singledispatchmethod
    def describe(self, value: int) -> str:
        """Describe."""
        return f"the number {value}"


@pytest.mark.parametrize("fn", [describe, Describing().describe], ids=["function", "method"])
def test_a_function_that_dispatches_on_its_first_argument(fn):
    made = tool(fn)
    assert list(made.input_schema["properties"]) == ["value"]
    assert ran(made, value=3) == "the number 3"


class Wanted(TypedDict, total=False):
    city: Required[str]
    days: int


class MoreOptions(TypedDict):
    city: str
    days: NotRequired[int]


@pytest.mark.parametrize("kind", [Wanted, MoreOptions])
def test_the_keys_of_an_unpacked_dict_are_parameters(kind):
    def look_up(**options: Unpack[kind]) -> str:
        """Look up.

        Args:
            city: The city.
            days: The days.
        """
        return repr(options)

    look_up.__annotations__["options"] = Unpack[kind]
    made = tool(look_up)
    city = {"type": "string", "description": "The city."}
    days = {"type": "integer", "description": "The days."}
    schema = {"type": "object", "properties": {"city": city, "days": days}, "required": ["city"]}
    assert made.input_schema == {**schema, "additionalProperties": False}
    assert ran(made, city="Rome") == "{'city': 'Rome'}"
    assert "not run" in ran(made, city="Rome", more=1)


def with_city(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        kwargs["city"] = "Oslo"
        return fn(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    "fill", [with_city, lambda fn: functools.partial(fn, city="Oslo")], ids=["wrapper", "partial"]
)
def test_a_key_of_an_unpacked_dict_that_is_filled_is_not_in_the_schema(fill):
    def look_up(**options: Unpack[Wanted]) -> str:
        """Look up."""
        return repr(options)

    look_up.__annotations__["options"] = Unpack[Wanted]
    made = tool(fill(look_up))
    assert list(made.input_schema["properties"]) == ["days"]
    assert sorted(eval(ran(made, days=2)).items()) == [("city", "Oslo"), ("days", 2)]  # noqa: S307
    assert "not run" in ran(made, city="Rome")


def test_an_object_is_described_by_its_class_and_its_call():
    class Weather:
        def __call__(self, city: str) -> str:
            """Get the weather.

            Args:
                city: The city.
            """
            return city

    made = tool(Weather())
    assert made.description == "Get the weather."
    assert made.input_schema["properties"]["city"]["description"] == "The city."


def test_the_hint_of_further_arguments_is_their_type():
    def count(name: str, **counts: int) -> str:
        """Count."""
        return repr(counts)

    made = tool(count)
    assert made.input_schema["additionalProperties"] == {"type": "integer"}
    assert ran(made, name="x", apples=3, pears=1.0) == "{'apples': 3, 'pears': 1}"
    assert "apples: expected integer" in ran(made, name="x", apples="three")
