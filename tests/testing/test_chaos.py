"""`ChaosLLM`: runs with it end without limits, and the same seed does the same again."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator

import anyio
import pytest

from treadle import Chunk, DeadlineExceeded, Err, Loop, Ok, OptionError, Response, Tool, tool
from treadle.testing import ChaosLLM, ChaosTools, check_history
from treadle.testing.chaos.arguments import valid_arguments
from treadle.testing.chaos.dice import Dice

USER = [{"role": "user", "content": "Go."}]


@tool
def add(a: int, b: int = 1) -> int:
    """Add two integers."""
    return a + b


@pytest.mark.parametrize("seed", range(20))
def test_a_run_with_default_limits_ends(seed):
    model = ChaosLLM(seed, [add], is_async=bool(seed % 2))
    result = Loop.run_sync(USER, model, tools=[add], retry_delay=0)
    assert isinstance(result, (Ok, Err))
    check_history(result.messages)


# The same seed does the same.


def asked(model, messages=(), opts=None):
    """The reply to one request, or the error that it raises."""
    try:
        return model([dict(message) for message in messages], opts)
    except BaseException as error:
        return error


def after(requests, seed, **options):
    """A model after some requests."""
    model = ChaosLLM(seed, [add], **options)
    for _ in range(requests):
        asked(model)
    return model


def shown(answer):
    """A reply as text that is the same for the same reply."""
    if not isinstance(answer, Iterator):
        return re.sub(r"0x[0-9a-f]+", "", f"{type(answer)} {vars_of(answer)}")
    pieces = []
    try:
        pieces.extend(map(shown, answer))
    except BaseException as error:
        pieces.append(type(error).__name__)
    return str(pieces)


def vars_of(answer):
    has_text = isinstance(answer, (str, dict, Response, Chunk))
    try:
        return repr(answer) if has_text else repr(getattr(answer, "__dict__", ""))
    except ValueError:
        return "a number beyond what Python shows"


@pytest.mark.parametrize("seed", range(40))
def test_the_same_seed_does_the_same(seed):
    one, other = ChaosLLM(seed, [add]), ChaosLLM(seed, [add])
    for _ in range(10):
        assert shown(asked(one)) == shown(asked(other))
    assert one.behaviours == other.behaviours
    assert one.sent == other.sent == 10


def test_another_seed_does_something_else():
    assert len({str(after(5, seed).behaviours) for seed in range(50)}) > 45


def test_what_it_does_does_not_depend_on_what_it_is_sent():
    one, other = ChaosLLM(3, [add]), ChaosLLM(3, [add])
    for place in range(8):
        assert shown(asked(one)) == shown(asked(other, USER * place, {"x": place}))


@pytest.mark.parametrize("seed", [2, 8, 11])
def test_a_run_with_it_is_the_same_whichever_way_it_is_driven(seed):
    def run(way):
        model = ChaosLLM(seed, [add], is_async=way != "sync")
        options = {"tools": [add], "retry_delay": 0, "max_iterations": 6}
        if way == "sync":
            result = Loop.run_sync(USER, model, **options)
        else:
            result = anyio.run(lambda: Loop.run(USER, model, **options), backend=way)
        return result.stop_reason, result.iterations, model.behaviours

    assert run("sync") == run("asyncio") == run("trio")


def test_its_text_makes_it_again():
    model = ChaosLLM(5, ChaosTools(5), turns=3, longest=500, most_calls=20)
    again = eval(repr(model))  # noqa: S307 - that is what it is for
    for _ in range(6):
        assert shown(asked(model)) == shown(asked(again))
    assert repr(ChaosLLM(5, [add])).startswith("ChaosLLM(5, [add], is_async=False")


# It does everything that it lists.


def test_every_behaviour_occurs():
    """Within four hundred seeds of twenty requests each."""
    seen = set()
    for seed in range(400):
        model = ChaosLLM(seed, ChaosTools(seed), turns=19, most_calls=10, longest=100)
        for _ in range(20):
            asked(model, USER, {"tools": [add.as_openai()]})
        seen.update(name for name in model.behaviours if not name.startswith("request "))
        if seen == set(ChaosLLM.BEHAVIOURS):
            break
    assert seen == set(ChaosLLM.BEHAVIOURS)


def test_behaviours_are_listed_request_by_request():
    model = after(3, 0)
    assert model.behaviours[0].startswith("mood: ")
    requests = [name for name in model.behaviours if name.startswith("request ")]
    assert requests == ["request 1", "request 2", "request 3"]
    assert (model.seed, model.sent) == (0, 3)


def test_the_size_of_a_response_is_bounded():
    """`longest` and `most_calls` bound the texts and calls of a response."""
    sizes = [
        len(shown(asked(model)))
        for model in (ChaosLLM(seed, [add], longest=10, most_calls=10) for seed in range(300))
        for _ in range(5)
    ]
    assert max(sizes) < 400_000  # the deepest nesting, in several calls
    for seed in range(300):
        answer = asked(ChaosLLM(seed, [add], most_calls=10))
        if isinstance(answer, dict) and isinstance(answer.get("tool_calls"), list):
            assert len(answer["tool_calls"]) <= 10


def test_after_its_turns_it_only_answers():
    model = ChaosLLM(7, [add], turns=2)
    answers = [asked(model) for _ in range(6)]
    assert answers[2:] == [{"role": "assistant", "content": "Done."}] * 4
    assert model.behaviours[-2:] == ["request 6", "after its turns: answers"]
    assert Loop.run_sync(USER, ChaosLLM(7, turns=0)).unwrap().content == "Done."


@pytest.mark.parametrize("option", ["longest", "most_calls"])
def test_bounds_below_ten_are_refused(option):
    with pytest.raises(OptionError, match="at least 10"):
        ChaosLLM(0, **{option: 9})


def test_without_tools_it_calls_those_that_the_first_request_offers():
    offered = {"tools": [add.as_openai(), "no tool", {"type": "other"}]}
    text = "".join(shown(asked(ChaosLLM(seed), USER, offered)) for seed in range(60))
    assert text.count("'name': 'add'") > 9


def test_an_async_model_returns_a_coroutine():
    async def main():
        return await ChaosLLM(0, [add], turns=0, is_async=True)(USER)

    assert asyncio.run(main()) == {"role": "assistant", "content": "Done."}


# Hanging.


def seed_that(behaviour, **options):
    """The first seed whose first request does something."""
    for seed in range(5_000):
        model = ChaosLLM(seed, [add], **options)
        model.release()
        asked(model)
        if behaviour in model.behaviours:
            return seed
    raise AssertionError(behaviour)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("way", ["sync", "asyncio", "trio"])
@pytest.mark.parametrize(
    "behaviour", ["does: hangs", "stream: falls silent", "stream: does not end"]
)
def test_a_time_limit_ends_a_run_whose_model_hangs(way, behaviour):
    seed = seed_that(behaviour, hangs=True)
    model = ChaosLLM(seed, [add], is_async=way != "sync", hangs=True)
    options = {"tools": [add], "max_seconds": 0.05, "max_retries": 0}
    if way == "sync":
        result = Loop.run_sync(USER, model, **options)
    else:
        result = anyio.run(lambda: Loop.run(USER, model, **options), backend=way)
    model.release()
    assert isinstance(result.reason, DeadlineExceeded)
    check_history(result.messages)


def test_without_hangs_it_waits_some_milliseconds_instead():
    assert ChaosLLM(seed_that("does: hangs"), [add])([]) == "late"


def test_a_released_model_does_not_hang():
    model = ChaosLLM(seed_that("does: hangs", hangs=True), [add], hangs=True)
    model.release()
    with pytest.raises(TimeoutError):
        model([])


# Its parts.


SCHEMAS = {
    "types": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 3, "maxLength": 5},
            "count": {"type": "integer", "minimum": -2, "maximum": 2},
            "even": {"type": "integer", "multipleOf": 2, "exclusiveMinimum": 4},
            "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "most": {"type": "number", "maximum": 3},
            "flag": {"type": "boolean"},
            "none": {"type": "null"},
            "either": {"type": ["string", "integer"]},
            "choice": {"enum": ["a", 1, None]},
            "one": {"const": {"a": 1}},
            "any": {},
            "date": {"type": "string", "format": "date"},
            "example": {"type": "string", "pattern": "^[A-Z]{3}$", "examples": ["ABC", "XYZ"]},
        },
        "required": ["text", "count", "even", "share", "flag", "none", "either", "choice", "one"],
        "additionalProperties": False,
    },
    "arrays": {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
            "pair": {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": "integer"}],
                "minItems": 2,
                "maxItems": 2,
            },
            "set": {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
        },
        "required": ["list", "pair", "set"],
    },
    "alternatives": {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "b": {"oneOf": [{"const": 1}, {"const": 2}]},
            "c": {"allOf": [{"type": "integer"}, {"minimum": 5}]},
        },
        "required": ["a", "b", "c"],
    },
    "references": {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/tree"}},
        "required": ["tree"],
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    },
    "a map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "nothing": {"type": "object", "properties": {}},
    "more is required than described": {"type": "object", "required": ["x"]},
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_good_arguments_are_valid_for_their_schema(schema):
    made_for = Tool("t", "", schema, fn=lambda **_: None)
    made = [valid_arguments(Dice(str(seed)), schema) for seed in range(150)]
    assert [made_for.problems_of(arguments) for arguments in made] == [[]] * 150
    assert len({json.dumps(arguments) for arguments in made}) > 1 or not schema.get("properties")
