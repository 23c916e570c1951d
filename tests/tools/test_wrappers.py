"""Tools of wrapped functions: the schema describes the arguments with which the wrapper can be called."""

import functools
from typing import NotRequired, Required, TypedDict, Unpack

import pytest

from treadle import Loop, tool
from treadle.errors import ToolDefinitionError
from treadle.testing import ScriptedLLM, call, calls

DB = "the database"


def forecast(db: str, city: str, days: int = 3) -> str:
    """Forecast.

    Args:
        db: The database.
        city: The city.
    """
    return f"{db}, {city}, {days}"


def binds(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(DB, *args, **kwargs)

    return wrapper


def injects(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, db=DB, **kwargs)

    return wrapper


def sets(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        kwargs["db"] = DB
        return fn(*args, **kwargs)

    return wrapper


def sets_a_default(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        kwargs.setdefault("db", DB)
        return fn(*args, **kwargs)

    return wrapper


def updates(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        kwargs.update(db=DB)
        return fn(*args, **kwargs)

    return wrapper


def names(fn):
    @functools.wraps(fn)
    def wrapper(city, days=3):
        return fn(DB, city, days)

    return wrapper


def awaits(fn):
    @functools.wraps(fn)
    async def wrapper(*args, **kwargs):
        return fn(DB, *args, **kwargs)

    return wrapper


def passes(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


def adds(fn):
    @functools.wraps(fn)
    def wrapper(*args, loud=False, **kwargs):
        made = fn(*args, **kwargs)
        return made.upper() if loud else made

    return wrapper


def ran(made, **arguments):
    """The result of a call that the model makes."""
    llm = ScriptedLLM(calls(call(made.name, **arguments)), "Done.")
    result = Loop.run_sync("q", llm, tools=[made])
    return next(one["content"] for one in result.messages if one["role"] == "tool")


FILLING = {
    "binds": binds(forecast),
    "injects": injects(forecast),
    "sets": sets(forecast),
    "sets a default": sets_a_default(forecast),
    "updates": updates(forecast),
    "names": names(forecast),
    "awaits": awaits(forecast),
    "passes what binds": passes(binds(forecast)),
    "binds what passes": binds(passes(forecast)),
    "partial": functools.partial(forecast, DB),
    "partial by name": functools.partial(forecast, db=DB),
}


@pytest.mark.parametrize("fn", FILLING.values(), ids=FILLING)
def test_an_argument_that_the_wrapper_fills_is_not_in_the_schema(fn):
    made = tool(fn, name="forecast")
    assert list(made.input_schema["properties"]) == ["city", "days"]
    assert made.input_schema["required"] == ["city"]
    assert ran(made, city="Rome") == f"{DB}, Rome, 3"


def test_a_wrapper_that_passes_everything_has_the_schema_of_its_function():
    assert tool(passes(forecast)).input_schema == tool(forecast).input_schema


def test_a_parameter_that_the_wrapper_adds_is_in_the_schema():
    made = tool(adds(forecast))
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


class Options(TypedDict, total=False):
    city: Required[str]
    days: int


class MoreOptions(TypedDict):
    city: str
    days: NotRequired[int]


@pytest.mark.parametrize("kind", [Options, MoreOptions])
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
    assert made.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city."},
            "days": {"type": "integer", "description": "The days."},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
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
    def look_up(**options: Unpack[Options]) -> str:
        """Look up."""
        return repr(options)

    look_up.__annotations__["options"] = Unpack[Options]
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


DOCSTRINGS = {
    "args": """Args:
        city: The city.
        days: The days.
    """,
    "arguments": """Arguments:
        city: The city.
        days: The days.
    """,
    "keyword args": """Keyword Args:
        city: The city.
        days: The days.
    """,
    "with returns": """Args:
        city: The city.
        days: The days.

    Returns:
        The forecast.
    """,
    "both": """Look up.

    Args:
        city: The city.

    Keyword Args:
        days: The days.
    """,
}


@pytest.mark.parametrize("text", DOCSTRINGS.values(), ids=DOCSTRINGS)
def test_a_docstring_that_begins_with_the_arguments_describes_them(text):
    def look_up(city: str, *, days: int = 3) -> str:
        return f"{city}, {days}"

    look_up.__doc__ = text
    properties = tool(look_up).input_schema["properties"]
    assert {name: properties[name].get("description") for name in properties} == {
        "city": "The city.",
        "days": "The days.",
    }


def test_the_error_of_a_local_type_says_where_to_define_it():
    source = "from __future__ import annotations\ndef fn(value: Local) -> str: ...\n"
    namespace = {}
    exec(source, namespace)  # noqa: S102 - a module of its own
    with pytest.raises(
        ToolDefinitionError, match="define or import the name at the top of the module"
    ):
        tool(namespace["fn"])
