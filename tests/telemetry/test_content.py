"""Captured content: JSON in the format of the conventions, for any input of models and users."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import Chunk, Response, ToolCall, tool
from treadle.messages import ToolResult
from treadle.telemetry import content, names
from treadle.testing import ScriptedLLM, call, calls

from .exits import double
from .watching import DRIVERS, Watch, go

TEXT = {"type": "string"}
PART = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": TEXT},
    "allOf": [
        {
            "if": {"properties": {"type": {"enum": ["text", "reasoning"]}}},
            "then": {"required": ["content"], "properties": {"content": TEXT}},
        },
        {
            "if": {"properties": {"type": {"const": "tool_call"}}},
            "then": {
                "required": ["name"],
                "properties": {"name": TEXT, "id": {"type": ["string", "null"]}},
            },
        },
        {
            "if": {"properties": {"type": {"const": "tool_call_response"}}},
            "then": {"required": ["response"]},
        },
    ],
}
PARTS = {"type": "array", "items": PART}
ROLE = {"enum": ["system", "user", "assistant", "tool"]}
INPUT = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["role", "parts"],
        "properties": {"role": ROLE, "parts": PARTS},
    },
}
OUTPUT = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["role", "parts", "finish_reason"],
        "properties": {"role": ROLE, "parts": PARTS, "finish_reason": TEXT},
    },
}
DEFINITIONS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type", "name"],
        "properties": {"type": {"const": "function"}, "name": TEXT},
    },
}
# Those of the conventions: gen-ai-input-messages.json and its siblings, as far as they matter here.
SCHEMAS = {
    names.INPUT_MESSAGES: INPUT,
    names.OUTPUT_MESSAGES: OUTPUT,
    names.SYSTEM_INSTRUCTIONS: PARTS,
    names.TOOL_DEFINITIONS: DEFINITIONS,
}


def not_json(name):
    raise AssertionError(f"{name} is no JSON")


def read(attributes):
    """The values of the attributes with content, checked against strict JSON and the schemas."""
    reported = {}
    for name, text in attributes.items():
        if name in SCHEMAS:
            text.encode()
            reported[name] = json.loads(text, parse_constant=not_json)
            jsonschema.validate(reported[name], SCHEMAS[name])
            json.dumps(
                reported[name], ensure_ascii=False
            ).encode()  # no half of a character in escapes
    return reported


def sent(*messages, guidance=None, tools=()):
    return read(content.request_attributes(messages, guidance, tools))


def parts_sent(message):
    return sent(message)[names.INPUT_MESSAGES][0]["parts"]


def answered(response):
    (message,) = read(content.response_attributes(response))[names.OUTPUT_MESSAGES]
    return message


class TestRequest:
    """The attributes of requests."""

    def test_instructions_are_a_separate_attribute(self):
        reported = sent(
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": "Hi"},
        )
        assert reported == {
            names.SYSTEM_INSTRUCTIONS: [
                {"type": "text", "content": "Be brief."},
                {"type": "text", "content": "Be kind."},
            ],
            names.INPUT_MESSAGES: [{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}],
        }

    def test_calls_and_their_results(self):
        asked = calls(call("double", "c1", n=1), text="Let me see.")
        reported = sent(asked, {"role": "tool", "tool_call_id": "c1", "content": "2"})
        assert reported[names.INPUT_MESSAGES] == [
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "content": "Let me see."},
                    {"type": "tool_call", "id": "c1", "name": "double", "arguments": {"n": 1}},
                ],
            },
            {
                "role": "tool",
                "parts": [{"type": "tool_call_response", "id": "c1", "response": "2"}],
            },
        ]

    def test_guidance_is_the_last_message(self):
        reported = sent({"role": "user", "content": "Hi"}, guidance="Answer now.")
        assert reported[names.INPUT_MESSAGES][-1] == {
            "role": "user",
            "parts": [{"type": "text", "content": "Answer now."}],
        }

    def test_tools(self):
        (reported,) = sent(tools=[double.as_openai()])[names.TOOL_DEFINITIONS]
        assert reported == {"type": "function", **double.as_openai()["function"]}

    def test_reasoning_and_refusal_of_an_earlier_message(self):
        message = {
            "role": "assistant",
            "content": None,
            "refusal": "No.",
            "reasoning_content": "Hm.",
        }
        assert parts_sent(message) == [
            {"type": "reasoning", "content": "Hm."},
            {"type": "text", "content": "No."},
        ]

    def test_parts_without_a_type(self):
        assert parts_sent({"role": "user", "content": [{"x": 1}, "plain", None]}) == [
            {"type": "other", "x": 1},
            {"type": "text", "content": "plain"},
            {"type": "text", "content": "None"},
        ]


class TestResponse:
    """The attributes of responses."""

    def test_a_text(self):
        assert answered(Response("Hi", finish_reason="length")) == {
            "role": "assistant",
            "parts": [{"type": "text", "content": "Hi"}],
            "finish_reason": "length",
        }

    def test_calls_are_the_default_finish_reason(self):
        message = answered(Response(tool_calls=(ToolCall("c1", "double", '{"n": 1}'),)))
        assert message["finish_reason"] == "tool_call"
        assert message["parts"][0]["arguments"] == {"n": 1}

    def test_a_refusal_is_text_and_an_empty_response_has_no_parts(self):
        assert answered(Response(refusal="No."))["parts"] == [{"type": "text", "content": "No."}]
        assert answered(Response())["parts"] == []

    @pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
    def test_reasoning_comes_first(self, key):
        assert answered(Response("Hi", extra={key: "Hm."}))["parts"] == [
            {"type": "reasoning", "content": "Hm."},
            {"type": "text", "content": "Hi"},
        ]

    def test_reasoning_that_is_not_text_is_omitted(self):
        (part,) = answered(Response("Hi", extra={"reasoning": [1]}))["parts"]
        assert part == {"type": "text", "content": "Hi"}

    def test_content_with_several_parts(self):
        given = [{"type": "text", "text": "Look:"}, {"type": "picture", "id": "p1"}]
        assert answered(Response("Look:", extra={"content": given}))["parts"] == [
            {"type": "text", "content": "Look:"},
            {"type": "picture", "id": "p1"},
        ]


ARGUMENTS = [
    ('{"n": 1', '{"n": 1'),
    ("", ""),
    ("[1, 2]", [1, 2]),
    ('{"n": NaN}', {"n": "nan"}),
    ('{"n": 1e999}', {"n": "inf"}),
    ('{"n": "\\ud800"}', {"n": "?"}),
    ('{"\\ud800": 1}', {"?": 1}),
    ("\ud800", "?"),
    ("9" * 10_000, "9" * 10_000),
]


class TestInvalid:
    """Invalid arguments, numbers that JSON does not have, lone surrogates, deep nesting."""

    @pytest.mark.parametrize(("given", "expected"), ARGUMENTS)
    def test_arguments(self, given, expected):
        (part,) = answered(Response(tool_calls=(ToolCall("c1", "double", given),)))["parts"]
        assert part["arguments"] == expected

    def test_texts(self):
        parts = answered(Response("a\ud800b", extra={"reasoning": "\udfff"}))["parts"]
        assert [part["content"] for part in parts] == ["?", "a?b"]

    def test_values_that_are_not_json(self):
        reported = sent(
            {"role": "user", "content": [{"type": "x", "a": {1, 2}, "b": float("nan"), 5: object}]}
        )
        (part,) = reported[names.INPUT_MESSAGES][0]["parts"]
        assert part["b"] == "nan"
        assert part["5"] == str(object)

    @pytest.mark.parametrize("start", ['{"a": ', '{"b": NaN, "a": '])
    def test_deep_nesting(self, start):
        """At some depth Python reads what it cannot write again, and that depth is not always the same."""
        for depth in (10, 100, *range(400, 1_000), 100_000):
            nested = start + "[" * depth + "]" * depth + "}"
            message = calls(call("double", "c1"))
            message["tool_calls"][0]["function"]["arguments"] = nested
            reported = content.response_attributes(
                Response(tool_calls=(ToolCall("c1", "double", nested),))
            )
            reported |= content.request_attributes([message], None, ())
            assert all(text.startswith("[") for text in reported.values())
            if depth <= 100:
                assert all("tool_call" in text for text in reported.values())

    def test_arguments_and_results_are_not_parsed(self):
        assert content.call_attributes(ToolCall("c1", "double", '{"n": "\ud800')) == {
            "gen_ai.tool.call.arguments": '{"n": "?'
        }
        assert content.result_attributes(ToolResult("c1", "a\ud800")) == {
            "gen_ai.tool.call.result": "a?"
        }

    @given(st.text(), st.text(), st.text())
    def test_any_text_of_a_model_is_valid_content(self, text, arguments, reasoning):
        call_made = ToolCall("c1", text, arguments)
        answered(Response(text, (call_made,), extra={"reasoning_content": reasoning}))


USER = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_span_has_its_content(driver):
    watch = Watch()
    first = calls(call("double", "c1", n=4), text="Let me see.")
    model = ScriptedLLM(first, [Chunk("It is "), Chunk("8.")])
    go(
        driver,
        USER,
        model,
        tools=[double],
        **watch.reporting(capture_content=True),
    )
    one, two = watch.kind(names.CHAT)
    agent = watch.one("invoke_agent")
    reported = {span: read(span.attributes) for span in (one, two, agent)}
    question = [{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]
    assert reported[one][names.INPUT_MESSAGES] == reported[agent][names.INPUT_MESSAGES] == question
    assert [m["role"] for m in reported[two][names.INPUT_MESSAGES]] == ["user", "assistant", "tool"]
    assert reported[two][names.OUTPUT_MESSAGES] == reported[agent][names.OUTPUT_MESSAGES]
    assert reported[agent][names.OUTPUT_MESSAGES][0]["parts"] == [
        {"type": "text", "content": "It is 8."}
    ]
    assert all(set(each) == set(SCHEMAS) for each in reported.values())
    call_span = watch.one("execute_tool double")
    assert json.loads(call_span.attributes[names.TOOL_CALL_ARGUMENTS]) == {"n": 4}
    assert call_span.attributes[names.TOOL_CALL_RESULT] == "8"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://x.org/a.png", {"type": "uri", "modality": "image", "uri": "https://x.org/a.png"}),
        (
            "data:image/png;base64,aGk=",
            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "aGk="},
        ),
        (
            "data:image/svg+xml;charset=utf-8;base64,aGk=",
            {"type": "blob", "modality": "image", "mime_type": "image/svg+xml", "content": "aGk="},
        ),
        ("data:,hi", {"type": "uri", "modality": "image", "uri": "data:,hi"}),
    ],
)
def test_an_image_is_a_uri_or_a_blob(url, expected):
    for image in ({"url": url, "detail": "low"}, url):
        part = {"type": "image_url", "image_url": image}
        assert parts_sent({"role": "user", "content": [part]}) == [expected]


def test_audio_is_a_blob():
    part = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
    expected = {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": "aGk="}
    assert parts_sent({"role": "user", "content": [part]}) == [expected]
    del part["input_audio"]["format"], expected["mime_type"]
    assert parts_sent({"role": "user", "content": [part]}) == [expected]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url"},
        {"type": "image_url", "image_url": {"url": 5}},
        {"type": "input_audio", "input_audio": "aGk="},
        {"type": "input_audio", "input_audio": {"format": "wav"}},
        {"type": "file", "file": {"file_id": "f1"}},
    ],
)
def test_a_part_that_the_conventions_do_not_define_is_kept_as_it_is(part):
    assert parts_sent({"role": "user", "content": [part]}) == [part]


def test_a_message_has_its_name():
    messages = [{"role": "user", "name": "ada", "content": "x"}, {"role": "user", "content": "x"}]
    assert [one.get("name") for one in sent(*messages)[names.INPUT_MESSAGES]] == ["ada", None]


def test_lone_surrogates_are_replaced_escaped_ones_too():
    reported = content.response_attributes(Response("a \ud800 \U0001f9f5 \x00"))[
        names.OUTPUT_MESSAGES
    ]
    assert "\\ud800" not in reported
    assert json.loads(reported)[0]["parts"][0]["content"] == "a ? \U0001f9f5 \x00"
    reported.encode()


@pytest.mark.parametrize(
    ("written", "recorded"), [("", "{}"), ('{"n": 1}', '{"n": 1}'), ("no", "no")]
)
def test_arguments_are_recorded_as_written_and_an_empty_text_as_no_arguments(written, recorded):
    assert content.call_attributes(ToolCall("c1", "t", written)) == {
        names.TOOL_CALL_ARGUMENTS: recorded
    }


@tool
def broken():
    raise LookupError("no such city\ud800")


class TestExceptions:
    """The span of a call has the exception of its tool, if content is captured."""

    def span_of(self, driver, **options):
        watch = Watch()
        model = ScriptedLLM(calls(call("broken", "c1")), "ok")
        go(driver, USER, model, tools=[broken], **watch.reporting(**options))
        return watch.one("execute_tool broken")

    @pytest.mark.parametrize("driver", DRIVERS)
    def test_it_is_an_event_of_the_conventions(self, driver):
        span = self.span_of(driver, capture_content=True)
        (event,) = span.events
        assert event.name == "exception"
        assert event.timestamp == span.end_time
        facts = dict(event.attributes)
        trace = facts.pop("exception.stacktrace")
        assert facts == {
            "exception.type": "LookupError",
            "exception.message": "no such city?",
        }
        assert "in broken\n" in trace
        assert trace.endswith("LookupError: no such city?")

    @pytest.mark.parametrize("driver", DRIVERS)
    def test_without_content_there_is_only_the_type_of_the_error(self, driver):
        span = self.span_of(driver, capture_content=False)
        assert span.events == ()
        assert span.attributes["error.type"] == "tool_error"

    def test_the_type_has_its_module_unless_it_is_a_builtin(self):
        assert content.exception_attributes(jsonschema.SchemaError("x"))["exception.type"] == (
            "jsonschema.exceptions.SchemaError"
        )
