"""The regular expressions of schemas: what they match, and that none of them can take long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.growth import is_linear

from treadle.errors import ToolDefinitionError
from treadle.tools import Tool
from treadle.tools.patterns import MAX_BACKTRACKED, UnsupportedPatternError, matcher_of

EMAIL = (  # as zod writes it
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
)
LOOKAHEADS = r"^(?=.*[A-Z])(?=.*[0-9]).{3,}$"

PATTERNS = [
    "^x",
    "a|b",
    r"^\d{2,4}$",
    r"^[\w.\-]+$",
    r"^(?!a|b)[a-c]+$",
    r"^(?![)(])[a-c()]+$",
    r"^(?=[]a])[\]a-c]+$",
    r"^(?!\))a|b",
    r"(?<!a)b",
    r"(a)b\1",
    r"(?<!x)(?:ab|cA|1\d)+\)",
    r"(?<!c)a{2,3}(?:b|(?!x)c)?1",
    r"([ab]+)c\1",
    LOOKAHEADS,
    EMAIL,
]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=st.text(alphabet="abcxA1().]-@\u00e9", max_size=12))
def test_a_pattern_matches_the_texts_that_it_matches_in_python(pattern, text):
    assert matcher_of(pattern)(text) is (re.search(pattern, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (EMAIL, "a.b@example.com", True),
        (EMAIL, ".a@example.com", False),
        (EMAIL, "a..b@c.de", False),
        ("^a$", "a\n", False),  # as in ECMA 262, which JSON Schema refers to
        ("b$", "\ud800b", True),
    ],
)
def test_a_pattern_is_matched_as_json_schema_says(pattern, text, matches):
    assert matcher_of(pattern)(text) is matches


@pytest.mark.parametrize(
    "pattern", [r"^(a+)+$", r"^(a|a)*$", r"(\w+\s?)*!", r"^(?=(a+)+$)a", r"^(?!(a|aa)+$)"]
)
def test_a_pattern_takes_time_linear_in_the_text(pattern):
    """With Python's engine, each further character doubles it."""

    fields = {"properties": {"a": {"pattern": pattern}}, "patternProperties": {pattern: {}}}
    tool = Tool("t", input_schema={"type": "object", **fields, "additionalProperties": False})

    def make(size):
        text = "a" * size + "!"
        return lambda: tool.problems_of({"a": text, text: 1})

    assert is_linear(make, 30)
    assert is_linear(make, 10_000)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?<=x)(a+)+$",
        r"^(a+)\1+$",
        r"x(?=(a+)+$)",
        r"(?<!b)(a|a|a)*!",
        r"(?<!b)(a|ab|b)*!",
        r"(?<!b)(?i:(?:ab|Ac)*)!",
        r"(?<!b)(?:ab?)*!",
        r"(?<!b)(?>a*)*!",
        r"(?<!b)(?:a?){30}b",
        r"(?<!b)" + "(?:a|a)" * 30 + "b",
        r"(?<!b)" + "a?" * 30 + "a" * 30,
        r"(?<!b)(.*)*!",
        r"(?<!b)\w*\w*!",
        r"(?<!b)\s*\s*$",
        r"(?<!b)a{0,900}a{0,900}!",
        r"(?<!b)(?:(?=a*b)a)*c",
        r"(?<!b)(?:(?:){1000}){1000000}!",
        r"(?<!b)a*" + r"(?<!a{99}a{99}x)" * 9,
        r"(?<!b)(?<!a{9}x)*" * 200,
        r"(a+)(?:\1)*!",
        r"(a?)(?:\1)*!",
        r"(a)?(?(1)a*|b)a*(?<!x)",
    ],
)
def test_a_pattern_that_may_take_exponential_time_is_refused_when_the_tool_is_made(pattern):
    for schema in (
        {"type": "object", "properties": {"a": {"pattern": pattern}}},
        {"type": "object", "patternProperties": {pattern: {}}},
        {"type": "object", "propertyNames": {"pattern": pattern}},
        {"type": "object", "anyOf": [{"not": {"items": {"pattern": pattern}}}]},
    ):
        with pytest.raises(
            ToolDefinitionError, match=r"tool 't': input_schema: the pattern .* exponential"
        ):
            Tool("t", input_schema=schema)


def test_a_pattern_that_is_no_regular_expression_is_refused_when_the_tool_is_made():
    draft = "http://json-schema.org/draft-04/schema#"
    schema = {"$schema": draft, "type": "object", "patternProperties": {"(": {}}}
    with pytest.raises(ToolDefinitionError, match="it is not a regular expression"):
        Tool("t", input_schema=schema)


def test_the_engine_that_backtracks_searches_short_texts_only():
    matches = matcher_of(r"(?<!x)a*b")
    assert matches("a" * (MAX_BACKTRACKED - 1) + "b")
    assert not matches("a" * MAX_BACKTRACKED + "b")
    with pytest.raises(UnsupportedPatternError):
        matcher_of(r"(?<!x)a*b*")


def test_a_schema_whose_patterns_another_keyword_would_search_is_refused():
    schema = {"type": "object", "patternProperties": {"^x": {}}}
    with pytest.raises(ToolDefinitionError, match="cannot be used together"):
        Tool("t", input_schema={**schema, "allOf": [{"unevaluatedProperties": False}]})
