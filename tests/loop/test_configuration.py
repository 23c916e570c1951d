"""What a loop is made of, as data; and what has changed of it, in sentences."""

import json

import pytest

from treadle import Limits, Loop, Pauses, Tool, ToolSearch, stage, tool
from treadle.recording.configuration import changes_between
from treadle.recording.configuration_of import configuration_of


@tool
def search(text: str) -> str:
    """Search the web."""
    return text


@stage
def guard(ctx):
    """Do nothing."""
    return ctx


def model(messages):
    """Say hello."""
    return "Hi." if messages else ""


def configured(**options):
    """The configuration of a loop, as it is read from a file."""
    written = json.dumps(configuration_of(Loop(llm_send_fn=model, **options)))
    return json.loads(written)


def changes(old, new):
    return changes_between(configured(**old), configured(**new))


def test_it_has_the_tools_the_stages_the_instructions_and_the_options():
    limits = Limits(max_iterations=5)
    made = configured(tools=[search], instructions="Be brief.", limits=limits, dedupe="off")
    assert made["tools"] == {
        "search": {
            "description": "Search the web.",
            "parameters": dict(search.input_schema),
            "parallel_safe": True,
        }
    }
    assert made["stages"][:2] == ["ask_model", "parse_tool_calls"]
    assert made["instructions"] == "Be brief."
    assert made["options"]["max_iterations"] == 5
    assert made["options"]["dedupe"] == "off"
    assert "max_cost" not in made["options"]


def test_functions_and_objects_are_in_it_by_name():
    class Approver:
        def __call__(self, arguments):
            return bool(arguments)

    def by_text(arguments):
        return arguments["text"]

    made = configured(
        tools=[
            tool(search.fn, requires_approval=Approver(), lock=by_text),
            tool(name="two")(search.fn),
        ],
        instructions=lambda ctx: "Be brief.",
        output=[int, list[str], {"type": "object", "title": "Data", "properties": {}}],
        tool_search=ToolSearch(always=["two"]),
        resolve_tool=Approver(),
    )
    assert made["tools"]["search"]["requires_approval"] == "Approver"
    assert made["tools"]["search"]["lock"].endswith("by_text")
    assert made["instructions"].endswith("<lambda>")
    assert made["options"]["output"][:2] == ["int", "list[str]"]
    assert made["options"]["output"][2]["title"] == "Data"
    assert made["options"]["tool_search"]["always"] == ["two"]
    assert made["options"]["resolve_tool"] == "Approver"


def test_it_has_no_secrets():
    made = configured(
        pauses=Pauses(secret=b"swordfish"),
        deps={"password": "swordfish"},
        llm_opts={
            "api_key": "swordfish",
            "extra_headers": {"X-Custom": "swordfish"},
            "extra_body": {"user": "ann", "session_token": "swordfish"},
            "base_url": "https://me:swordfish@host/v1",
            "temperature": 0.5,
        },
    )
    assert "swordfish" not in json.dumps(made)
    assert made["requests"] == {
        "extra_body": {"user": "ann"},
        "base_url": "https://[redacted]@host/v1",
        "temperature": 0.5,
    }


def test_the_model_is_in_it_as_far_as_it_is_known():
    class Backend:
        model = "qwen3:4b"
        provider = "ollama"

        def __call__(self, messages):
            return model(messages)

    made = configuration_of(Loop(), Backend())
    assert (made["model"], made["provider"]) == ("qwen3:4b", "ollama")
    made = configuration_of(Loop(llm_send_fn="anthropic:claude-sonnet-5-5"))
    assert made["model"] == "anthropic:claude-sonnet-5-5"
    assert configuration_of(Loop())["model"] is None


def test_options_of_one_run_are_not_in_it():
    plain = configuration_of(Loop(tools=[search]))
    options = {"on_event": print, "middleware": [lambda steps: steps], "deps": object()}
    assert configuration_of(Loop(tools=[search], **options)) == plain


SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
EXCERPTS = (
    "…e of each fact. Use metric units. Answer in one sentence, an…",
    "…e of each fact. Use imperial units. Answer in one sentence, …",
)
LONG = "Answer in one sentence, and name the source of each fact. "


CHANGES = {
    "nothing": ({}, {}, []),
    "removed": ({"tools": [search]}, {}, ["tool 'search' was removed"]),
    "added": ({}, {"tools": [search]}, ["tool 'search' was added"]),
    "tool": (
        {"tools": [Tool("a", "Search.", SCHEMA, print)]},
        {"tools": [Tool("a", "Find.", SCHEMA, print, retries=3)]},
        [
            "tool 'a': description changed from 'Search.' to 'Find.'",
            "tool 'a': retries changed from None to 3",
        ],
    ),
    "schema": (
        {"tools": [Tool("a", "", SCHEMA, print)]},
        {"tools": [Tool("a", "", {**SCHEMA, "properties": {}}, print)]},
        ["""tool 'a': parameters.properties.text changed from {"type": "string"} to None"""],
    ),
    "first stage": ({}, {"stages": [guard, ...]}, ["stage 'guard' was added as the first one"]),
    "stage removed": ({"stages": [..., guard]}, {}, ["stage 'guard' was removed"]),
    "last stage": (
        {},
        {"stages": [..., guard]},
        ["stage 'guard' was added after 'circuit_breaker'"],
    ),
    "options": (
        {"max_iterations": 5, "llm_opts": {"seed": 1}},
        {"max_iterations": 8, "llm_opts": {"seed": 2}},
        ["option max_iterations changed from 5 to 8", "request option seed changed from 1 to 2"],
    ),
    "long text": (
        {"instructions": f"{LONG * 2}Use metric units. {LONG}"},
        {"instructions": f"{LONG * 2}Use imperial units. {LONG}"},
        [f"instructions changed from {EXCERPTS[0]} to {EXCERPTS[1]}"],
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES.values(), ids=CHANGES)
def test_changes_are_named(old, new, expected):
    assert changes(old, new) == expected


def test_the_order_of_the_stages_is_named():
    old, new = configured(stages=[guard, ...]), configured(stages=[..., guard])
    [sentence] = changes_between(old, new)
    assert sentence.startswith("the order of the stages changed from guard, ask_model, ")
    assert sentence.endswith(", circuit_breaker, guard")


def test_the_order_of_the_tools_is_named():
    old, new = ({"tools": {name: {} for name in names}} for names in ("abc", "bda"))
    assert changes_between(old, new) == [
        "tool 'c' was removed",
        "tool 'd' was added",
        "the order of the tools changed from a, b to b, a",
    ]


def test_the_loop_of_a_subagent_is_a_part_of_its_tool():
    def outer(**options):
        child = Loop(llm_send_fn=model, **options)
        return configured(tools=[child.as_tool("research", "Research a question.")])

    assert outer()["tools"]["research"]["loop"]["options"]["max_iterations"] == 10
    assert changes_between(outer(), outer(max_iterations=3, tools=[search])) == [
        "tool 'research': its loop: tool 'search' was added",
        "tool 'research': its loop: option max_iterations changed from 10 to 3",
    ]
