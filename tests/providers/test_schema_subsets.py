"""What is sent to a provider is within the subset of JSON Schema that its documentation lists."""

import copy
import dataclasses
import datetime as dt
import decimal
import enum
import json
import re
import uuid
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openai.lib._pydantic import _ensure_strict_json_schema
from pydantic import AnyUrl, BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from treadle import Loop, Output
from treadle.providers.anthropic.options import AnthropicSchema
from treadle.providers.gemini.options import GeminiSchema
from treadle.testing import ScriptedLLM
from treadle.tools.strict_schema import NotInSubsetError, strict_form

# The documented subsets, written down a second time.

FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
COMMON = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "enum"}
COMMON |= {"$ref", "$defs", "definitions", "description", "title"}
NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
KEYWORDS = {
    "openai": COMMON | NUMBERS | {"const", "format", "pattern", "minItems", "maxItems"},
    "anthropic": COMMON | {"const", "format", "minItems"},
    "gemini": COMMON | {"format", "minimum", "maximum", "minItems", "maxItems", "prefixItems"},
}
SUBSETS = {"anthropic": AnthropicSchema, "gemini": GeminiSchema}


def subschemas(node):
    for key in ("properties", "$defs", "definitions"):
        yield from node.get(key, {}).values()
    for key in ("anyOf", "prefixItems"):
        yield from node.get(key, [])
    if "items" in node:
        yield node["items"]
    if isinstance(node.get("additionalProperties"), dict):
        yield node["additionalProperties"]


def check(node, provider):
    """Assert that a schema is within the documented subset of a provider."""
    assert isinstance(node, dict)
    assert set(node) <= KEYWORDS[provider], set(node) - KEYWORDS[provider]
    kinds = node.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if provider != "gemini":
        assert kinds or {"anyOf", "$ref", "enum", "const"} & set(node), "any type"
        if "object" in kinds:
            assert node["additionalProperties"] is False
    if provider == "openai":
        check_openai(node, kinds)
    if provider == "anthropic":
        assert node.get("minItems", 0) in (0, 1)
        assert isinstance(node.get("type", ""), str)
        assert node.get("format", "uri") in {*FORMATS, "uri"}
    if "$ref" in node:
        assert set(node) <= {"$ref", "$defs", "definitions"}
    assert all(not isinstance(value, (list, dict)) for value in node.get("enum", []))
    for part in subschemas(node):
        check(part, provider)


def check_openai(node, kinds):
    assert kinds or "anyOf" in node or "$ref" in node
    assert node.get("format", "uuid") in FORMATS
    assert not re.search(r"\(\?[=!<]", node.get("pattern", ""))
    if "object" in kinds:
        assert sorted(node["required"]) == sorted(node["properties"])
    if "array" in kinds:
        assert isinstance(node["items"], dict)


# Ordinary and hostile schemas


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Plain(BaseModel):
    a: int
    b: str


class Nullable(BaseModel):
    a: int | None = None
    b: Plain | None = None


class WithDefault(BaseModel):
    a: int = 5


class Described(BaseModel):
    plain: Plain = Field(description="The plain one.", examples=[1])


class Nested(BaseModel):
    plain: Plain
    many: list[Plain]
    color: Color


class Allowing(BaseModel, extra="allow"):
    a: int


class Forbidding(BaseModel, extra="forbid"):
    a: int


class HoldsAllowing(BaseModel):
    inner: Allowing


class Tree(BaseModel):
    kids: list["Tree"]


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Pet(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class PlainDict(TypedDict):
    a: int


class PartDict(TypedDict):
    a: int
    b: NotRequired[int]


@dataclasses.dataclass
class Data:
    a: int
    b: int | None = None


class Pair(NamedTuple):
    a: int
    b: str


class Empty(BaseModel):
    pass


def field(hint):
    return type("Holder", (BaseModel,), {"__annotations__": {"value": hint}})


TYPES = [
    (Plain, True), (Nullable, True), (WithDefault, False), (Described, True), (Nested, True),
    (Allowing, False), (Forbidding, True), (HoldsAllowing, False), (Tree, True), (Pet, True),
    (Cat, True), (PlainDict, True), (PartDict, False), (Data, True), (Empty, True),
    (field(list), False), (field(dict), False), (field(dict[str, int]), False), (field(Any), False),
    (field(tuple[int, str]), False), (field(tuple[int, ...]), True), (field(set[int]), False),
    (field(list[list[int]]), True), (field(Pair), False), (field(Cat | Dog), True),
    (field(int | str | None), True), (field(Literal["a", 1] | None), True), (field(Color), True),
    (field(dt.datetime), True), (field(uuid.UUID), True), (field(AnyUrl), False),
    (field(bytes), True), (field(decimal.Decimal), True), (field(dt.timedelta), True),
    (field(Annotated[int, Field(ge=1, lt=9, multiple_of=2)]), True),
    (field(Annotated[str, Field(min_length=1)]), False),
    (field(Annotated[str, Field(pattern="^(?:a|b)$")]), True),
    (field(Annotated[list[int], Field(min_length=2, max_length=3)]), True),
    (field(Annotated[int, Field(json_schema_extra={"x-of": [1]})]), True),
]  # fmt: skip


def holding(part, **more):
    """A closed object with one required field."""
    schema = {"type": "object", "properties": {"a": part}, "required": ["a"]}
    return {**schema, "additionalProperties": False, **more}


INT, TEXT = {"type": "integer"}, {"type": "string"}
ONE_OF = {"oneOf": [holding({"const": name}) for name in ("x", "y")]}
DEEP: dict[str, Any] = INT
for _ in range(9):
    DEEP = holding(DEEP)
CHAIN = {f"n{i}": holding({"$ref": f"#/$defs/n{i + 1}"}) for i in range(10)} | {"n10": holding(INT)}

SCHEMAS = [
    (holding(INT), True), (holding({}), False), (holding(True), False), (holding(False), False),
    (holding({"type": "array"}), False), (holding({"type": "array", "items": {}}), False),
    (holding({"type": "array", "items": INT}), True),
    (holding({"type": "array", "prefixItems": [INT]}), False),
    (holding({"type": "array", "items": INT, "uniqueItems": True}), False),
    (holding({"type": "array", "items": INT, "contains": INT}), False),
    (holding({"type": "object"}), False),
    (holding({"type": "object", "properties": {}}), False),
    (holding({"type": "object", "additionalProperties": False}), True),
    (holding({"type": "object", "patternProperties": {"^a": INT}}), False),
    (holding({"type": "object", "additionalProperties": INT}), False),
    (holding({"type": "object", "additionalProperties": {}}), False),
    (holding(holding(INT, minProperties=1)), False),
    (holding(holding(INT, dependentRequired={"a": ["b"]})), False),
    (holding(holding(INT, required=["a", "b"])), False),
    (holding(INT, required=[]), False),
    (holding(ONE_OF), True),
    (holding({"oneOf": [INT, TEXT]}), True),
    (holding({"oneOf": [INT, {"type": "number"}]}), True),
    (holding({"oneOf": [holding(INT), holding({"type": "number"})]}), True),
    (holding({"oneOf": [INT, {"not": INT}]}), False),
    (holding({"oneOf": [{"enum": [1]}, {"enum": [True]}]}), True),
    (holding({"allOf": [INT]}), True), (holding({"allOf": [INT, {"minimum": 1}]}), False),
    (holding({"not": INT}), False), (holding({"type": "integer", "not": {"const": 1}}), False),
    (holding({"if": INT, "then": {"minimum": 1}, "else": TEXT}), False),
    (holding({"anyOf": [INT, {"type": "null"}]}), True),
    (holding({"type": "integer", "anyOf": [{"minimum": 1}]}), False),
    (holding({"type": ["integer", "null"], "minimum": 1}), True),
    (holding({"enum": ["x", 1, None]}), True), (holding({"enum": [{"x": 1}]}), False),
    (holding({"const": "x"}), True), (holding({"const": [1]}), False),
    (holding({"type": "string", "format": "uri"}), True),
    (holding({"type": "string", "pattern": "^(?=a)"}), False),
    (holding({"type": "string", "pattern": "(a)\\1"}), False),
    (holding({"type": "string", "maxLength": 5}), False),
    (holding({"type": "string", "minimum": 5, "properties": {"a": True}}), True),
    (holding({"type": "integer", "default": 1, "title": "A", "deprecated": True}), True),
    (holding({"$ref": "#/$defs/x", "description": "d"}, **{"$defs": {"x": INT}}), True),
    (holding({"$ref": "#/$defs/x", "minimum": 1}, **{"$defs": {"x": INT}}), False),
    (holding({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"not": INT}}}), False),
    (holding({"$ref": "#/definitions/x"}, definitions={"x": INT}), True),
    (holding({"anyOf": [{"$ref": "#"}, {"type": "null"}]}), True),
    (holding({"$ref": "#/properties/b"}), False),
    (holding(INT, **{"$schema": "https://json-schema.org/draft/2020-12/schema"}), True),
    (holding({"enum": list(range(1000))}), True), (holding({"enum": list(range(1001))}), False),
    (holding({"enum": [f"{i:060}" for i in range(251)]}), False),
    (holding({"enum": [f"{i:060}" for i in range(250)]}), True),
    (holding({"const": "x" * 120_000}), False), (holding(DEEP), True),
    (holding(holding(DEEP)), False),
    (holding({"$ref": "#/$defs/n0"}, **{"$defs": CHAIN}), False),
    (holding({"type": "object", "properties": {f"p{i}": INT for i in range(5000)},
              "required": [f"p{i}" for i in range(5000)], "additionalProperties": False}), False),
]  # fmt: skip


def fitted(schema, provider):
    """The schema in the subset, or None; the given one stays as it is."""
    before = copy.deepcopy(schema)
    try:
        if provider == "openai":
            return strict_form(schema)
        return SUBSETS[provider](schema).fitted()
    except NotInSubsetError:
        return None
    finally:
        assert schema == before


@pytest.mark.parametrize(("schema", "is_strict"), SCHEMAS, ids=lambda one: str(one)[62:110])
def test_a_schema_is_strict_if_the_subset_has_all_its_keywords(schema, is_strict):
    sent = fitted(schema, "openai")
    assert (sent is not None) is is_strict
    if sent is not None:
        check(sent, "openai")


@pytest.mark.parametrize(("kind", "is_strict"), TYPES, ids=lambda one: str(one)[:50])
def test_an_ordinary_type_is_sent_closed_and_strict(kind, is_strict):
    model = ScriptedLLM("x")
    Loop.run_sync("Go.", model, output=Output(kind, mode="json", max_retries=0))
    sent = model.sent[0].opts["response_format"]["json_schema"]
    assert sent["strict"] is is_strict
    if is_strict:
        check(sent["schema"], "openai")


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
@pytest.mark.parametrize("given", [*TYPES, *SCHEMAS], ids=lambda one: str(one[0])[:80])
def test_other_providers_get_their_subsets(given, provider):
    kind = given[0]
    schema = kind if isinstance(kind, dict) else TypeAdapter(kind).json_schema()
    sent = fitted(schema, provider)
    if sent is not None:
        check(sent, provider)
    if given[1] and "$ref': '#'" not in str(schema) and kind is not Tree:
        assert sent is not None


@pytest.mark.parametrize(
    "schema", [INT, {"anyOf": [holding(INT)]}, {"$ref": "#/$defs/x", "$defs": {"x": holding(INT)}}]
)
def test_a_schema_whose_root_is_no_object_is_not_strict(schema):
    assert fitted(schema, "openai") is None


def test_a_schema_that_contains_itself_has_no_form_for_anthropic():
    assert fitted(TypeAdapter(Tree).json_schema(), "anthropic") is None


# Second opinions


@pytest.mark.parametrize("kind", [Plain, Nested, Forbidding, Data, PlainDict, Nullable])
def test_openais_own_function_makes_the_same_of_an_ordinary_type(kind):
    """The titles that pydantic generates and the defaults of null are left out, which says the same."""
    schema = TypeAdapter(kind).json_schema()
    theirs = _ensure_strict_json_schema(copy.deepcopy(schema), path=(), root=schema)
    assert strict_form(schema, is_of_type=True) == theirs


@pytest.mark.parametrize("kind", [Plain, Nested, Forbidding, Data, PlainDict, WithDefault, Pet])
def test_what_anthropics_own_function_would_still_change_is_nothing(kind):
    sent = AnthropicSchema(TypeAdapter(kind).json_schema()).fitted()
    again = anthropic.transform_schema(copy.deepcopy(sent))

    def without_types(node):  # the function leaves out the type of an enumeration
        if isinstance(node, list):
            return [without_types(part) for part in node]
        if not isinstance(node, dict):
            return node
        is_listed = "enum" in node or "const" in node
        return {k: without_types(v) for k, v in node.items() if k != "type" or not is_listed}

    assert without_types(again) == without_types(sent)


# Any schema

LEAVES = st.sampled_from([
    INT, TEXT, {"type": "number", "minimum": 1}, {"type": "null"}, {"enum": ["x", 1]}, {},
    {"const": "x"}, {"const": "y", "default": "y"}, {"type": ["integer", "null"], "default": None},
    {"type": "string", "minLength": 1}, {"type": "string", "format": "uri"}, {"not": INT}, True,
    {"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x", "description": "d"}, {"type": "array"},
])  # fmt: skip


def grown(inner):
    names = st.sampled_from(["a", "b"])
    options = {"required": st.lists(names, unique=True), "additionalProperties": st.booleans()}
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, inner)}, optional=options
    )
    unions = st.tuples(st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(inner, min_size=1))
    lists = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner}, optional={"maxItems": st.just(2)}
    )
    return objects | lists | unions.map(lambda made: {made[0]: made[1][:3]})


ROOTS = st.recursive(LEAVES, grown, max_leaves=6).map(
    lambda part: holding(part, **{"$defs": {"x": holding(INT)}})
)
SCALARS = st.sampled_from(["x", "y", "", 0, 1, 1.5, None, True])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=5,
).map(lambda value: {"a": value})


def completed(schema, root, value):
    """A value with the fields that mean the same if they are left out."""
    if isinstance(schema, dict) and "$ref" in schema:
        schema = root["$defs"]["x"]
    if not isinstance(schema, dict):
        return value
    for part in [p for key in ("anyOf", "oneOf", "allOf") for p in schema.get(key, [])]:
        if Draft202012Validator(
            {**part, "$defs": root["$defs"]} if isinstance(part, dict) else part
        ).is_valid(value):
            return completed(part, root, value)
    if isinstance(value, list):
        return [completed(schema.get("items"), root, one) for one in value]
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties", {})
    implied = {n: p["default"] for n, p in fields.items() if isinstance(p, dict) and "default" in p}
    return {**implied, **{n: completed(fields.get(n), root, v) for n, v in value.items()}}


@given(ROOTS, st.lists(VALUES, max_size=8))
def test_what_is_strict_is_in_the_subset_and_has_the_same_values(schema, values):
    """Apart from values that fit two parts of a `oneOf`, which the check against the whole schema finds."""
    sent = fitted(schema, "openai")
    if sent is None:
        return
    check(sent, "openai")
    theirs, ours = Draft202012Validator(schema), Draft202012Validator(sent)
    loose = Draft202012Validator(json.loads(json.dumps(schema).replace('"oneOf"', '"anyOf"')))
    for value in values:
        if ours.is_valid(value):
            assert loose.is_valid(value)
        if theirs.is_valid(value):
            assert ours.is_valid(completed(schema, schema, value))


@given(ROOTS)
def test_what_other_providers_get_of_any_schema_is_in_their_subset(schema):
    for provider in ("anthropic", "gemini"):
        sent = fitted(schema, provider)
        if sent is not None:
            check(sent, provider)
