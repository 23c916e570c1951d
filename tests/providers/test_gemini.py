"""`GeminiModel`: what is sent for a history and its options, and what a response becomes."""

import asyncio
import base64
import copy
import functools
import json
import warnings
from contextlib import closing

import pytest
import trio
from google.genai import models as sdk_models
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.http_server import ScriptedServer
from tests.providers.back_gemini import NO_SIGNATURE, check_body, messages_of
from tests.providers.histories import PIXEL, histories, texts

from treadle import Err, Loop, ModelRetried, Ok, OptionError, TextDelta, ToolStarted, tool
from treadle.errors import ProviderError
from treadle.messages import Chunk, NotAResponseError, is_list, settled
from treadle.messages.parts import as_text_results, placeholder, text_of_parts
from treadle.messages.stream import StreamAccumulator
from treadle.model import is_retryable
from treadle.providers import backend, embedder
from treadle.providers.gemini.response import Reader

USER = {"role": "user", "content": "Hi"}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
FORMAT = "gemini-content"
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def model(name="gemini-2.5-flash", **opts):
    return backend(f"gemini:{name}", api_key="k", **opts)


@functools.cache
def converter():
    """What the SDK's converters need to know which API they convert for."""
    return model()._new_client()._sdk_client._api_client


def on_the_wire(body):
    """The body that the SDK sends for its arguments."""
    parameters = types._GenerateContentParameters(
        model=body["model"],
        contents=[types.Content.model_validate(one) for one in body["contents"]],
        config=types.GenerateContentConfig.model_validate(body["config"]),
    )
    sent = sdk_models._GenerateContentParameters_to_mldev(converter(), parameters, None, parameters)
    sent = sdk_models._common.convert_to_dict(sent)
    sent = sdk_models._common.encode_unserializable_types(sent)
    return json.loads(
        json.dumps({key: sent[key] for key in sent if key[0] != "_" and key != "config"})
    )


def body(*messages, name="gemini-2.5-flash", **opts):
    """The same for messages and options, checked; all its keys in the same form, that of JSON."""
    made = model(name)._body([*messages] or [USER], {"tools": [TOOL], **opts})
    sent = on_the_wire(made)
    check_body(sent)
    kinds = {
        "contents": list[types.Content],
        "systemInstruction": types.Content,
        "tools": list[types.Tool],
        "toolConfig": types.ToolConfig,
        "generationConfig": types.GenerationConfig,
    }
    adapters = {key: TypeAdapter(kind) for key, kind in kinds.items() if key in sent}
    return {
        key: one.dump_python(
            one.validate_json(json.dumps(sent[key])),
            mode="json",
            by_alias=True,
            exclude_none=True,
        )
        for key, one in adapters.items()
    }


def generation(**opts):
    return body(**opts).get("generationConfig")


def call(call_id="c1", name="add", arguments="{}", **extra):
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **extra}


def said(*calls, content=None, **extra):
    return {"role": "assistant", "content": content, "tool_calls": [*calls], **extra}


def result(content="3", call_id="c1"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def signed(signature="c2lnbmVk"):
    return {"extra_content": {"google": {"thought_signature": signature}}}


# Histories

signatures = st.binary(min_size=1, max_size=9).map(lambda data: base64.b64encode(data).decode())
thoughts = st.builds(
    lambda text, signature: {
        "type": "reasoning.text",
        "text": text,
        "format": FORMAT,
        "index": 0,
        **({} if signature is None else {"signature": signature}),
    },
    texts,
    st.none() | signatures,
)
reasoning = thoughts.map(lambda item: {"reasoning_details": [item]}) | st.just({})


def sendable(history):
    """What is sent of a history: no unknown keys, no names of files, and no cache hints.

    Media of results follow them in a message of the user; that is joined with one that follows. A message of one
    text part is that text.
    """
    known = {"role", "content", "tool_calls", "tool_call_id", "reasoning_details"}
    made = [
        {key: value for key, value in one.items() if key in known}
        for one in as_text_results(history)
    ]
    for one in made:
        if is_list(one["content"]):
            parts = [_sendable_part(part) for part in one["content"]]
            is_text = len(parts) == 1 and parts[0]["type"] == "text"
            one["content"] = parts[0]["text"] if is_text else parts
        for each in one.get("tool_calls") or ():
            each["function"]["arguments"] = json.dumps(json.loads(each["function"]["arguments"]))
    return made


def _sendable_part(part):
    made = copy.deepcopy({key: value for key, value in part.items() if key != "cache_control"})
    made.get("file", {}).pop("filename", None)
    return made


@settings(max_examples=150, deadline=None)
@given(histories(reasoning=reasoning))
def test_a_history_comes_back_from_what_is_sent(history):
    before = copy.deepcopy(history)
    sent = on_the_wire(model()._body(history, {"tools": [TOOL]}))
    check_body(sent)
    assert history == before  # the history keeps what is not sent
    assert messages_of(sent) == sendable(before)


class TestConversations:
    def test_system_messages_at_the_start_are_the_system_and_later_ones_are_marked(self):
        first = {"role": "system", "content": "Be brief."}
        other = {"role": "developer", "content": "In verse."}
        made = body(first, other, USER, {"role": "system", "content": "Stop soon."})
        parts = made["systemInstruction"]["parts"]
        assert [part["text"] for part in parts] == ["Be brief.", "In verse."]
        (content,) = made["contents"]
        assert content["parts"][1]["text"] == "<system>\nStop soon.\n</system>"

    def test_a_history_that_begins_with_the_assistant_gets_a_user_before(self):
        made = body({"role": "assistant", "content": "Hello."}, USER)
        assert [one["role"] for one in made["contents"]] == ["user", "model", "user"]

    def test_messages_of_one_role_are_one_content_and_empty_ones_are_left_out(self):
        empty = {"role": "assistant", "content": None}
        made = body(USER, empty, {"role": "user", "content": "Well?"})
        (content,) = made["contents"]
        assert [part["text"] for part in content["parts"]] == ["Hi", "Well?"]

    def test_all_results_of_an_exchange_are_one_content_with_the_names_of_their_calls(self):
        calls = said(call("a"), call("b", "sub"))
        results = [result("Error: no", "a"), result("3", "b")]
        made = body(USER, calls, *results, {"role": "user", "content": "And?"})
        _, _, both, asked = made["contents"]
        assert [part["functionResponse"] for part in both["parts"]] == [
            {"id": "a", "name": "add", "response": {"error": "Error: no"}},
            {"id": "b", "name": "sub", "response": {"output": "3"}},
        ]
        assert asked["parts"] == [{"text": "And?"}]

    def test_a_result_has_the_name_of_the_call_before_it_if_ids_are_used_again(self):
        exchanges = [said(call()), result(), said(call(name="sub")), result()]
        contents = body(USER, *exchanges)["contents"]
        results = [one["parts"][0]["functionResponse"] for one in contents[2::2]]
        assert [one["name"] for one in results] == ["add", "sub"]

    def test_arguments_that_are_no_json_are_sent_as_an_object(self):
        made = body(USER, said(call(arguments='{"a": 1')), result())
        assert isinstance(made["contents"][1]["parts"][0]["functionCall"].get("args", {}), dict)

    def test_reasoning_of_others_is_not_sent(self):
        detail = {"type": "reasoning.text", "text": "Hm.", "format": "anthropic-messages"}
        made = body(USER, {"role": "assistant", "content": "Yes.", "reasoning_details": [detail]})
        assert made["contents"][1]["parts"] == [{"text": "Yes."}]

    @pytest.mark.parametrize(("index", "place"), [(10**30, 1), (-1, 0), (0, 0), (None, 0)])
    def test_a_thought_of_any_index_is_sent(self, index, place):
        detail = {"type": "reasoning.text", "text": "Hm.", "format": FORMAT, "index": index}
        made = body(USER, {"role": "assistant", "content": "Yes.", "reasoning_details": [detail]})
        parts = made["contents"][1]["parts"]
        assert parts[place] == {"text": "Hm.", "thought": True}
        assert len(parts) == 2

    @pytest.mark.parametrize("part", [{"new": 1}, {"executableCode": {"new": 1}}, {"text": {1}}])
    def test_a_kept_part_that_the_sdk_does_not_know_is_left_out_and_logged(self, part, caplog):
        google = {"parts": [{"index": 0, **part}]}
        answer = {"role": "assistant", "content": "Yes.", "extra_content": {"google": google}}
        assert body(USER, answer)["contents"][1]["parts"] == [{"text": "Yes."}]
        assert "part of a Gemini response" in caplog.text

    def test_a_link_and_the_id_of_a_file_are_file_data(self):
        link = {"type": "image_url", "image_url": {"url": "https://example.com/a.webp?x=1"}}
        stored = {"type": "file", "file": {"file_id": "https://example.com/v1beta/files/x"}}
        made = body({"role": "user", "content": [link, stored]})
        assert [part["fileData"] for part in made["contents"][0]["parts"]] == [
            {"fileUri": "https://example.com/a.webp?x=1", "mimeType": "image/webp"},
            {"fileUri": "https://example.com/v1beta/files/x", "mimeType": "application/pdf"},
        ]

    def test_a_part_that_cannot_be_read_becomes_a_placeholder_that_is_logged(self, caplog):
        broken = {"type": "input_audio", "input_audio": {"data": "%%%", "format": "wav"}}
        made = body({"role": "user", "content": [broken]})
        assert made["contents"][0]["parts"] == [{"text": placeholder(broken)}]
        assert placeholder(broken) in caplog.text


class TestSignatures:
    def test_those_of_text_and_calls_are_sent_with_them(self):
        calls = said(call("a", **signed("YQ==")), call("b"), content="So.", **signed("Yg=="))
        made = body(USER, calls, result("1", "a"), result("2", "b"), name="gemini-3-pro")
        assert [part.get("thoughtSignature") for part in made["contents"][1]["parts"]] == [
            "Yg==",
            "YQ==",
            None,
        ]

    @pytest.mark.parametrize("text", ["-_-_", "+/+/"])
    def test_one_in_either_alphabet_of_base64_is_read(self, text):
        made = body(USER, said(call(**signed(text))), result())
        assert made["contents"][1]["parts"][0]["thoughtSignature"] == "-_-_"

    def test_one_without_a_text_is_sent_by_itself(self):
        made = body(USER, {"role": "assistant", "content": None, **signed()}, USER)
        assert made["contents"][1]["parts"] == [{"text": "", "thoughtSignature": "c2lnbmVk"}]

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("gemini-3-pro-preview", NO_SIGNATURE),
            ("gemini-flash-latest", NO_SIGNATURE),
            ("gemini-2.5-flash", None),
            ("models/gemini-1.5-pro", None),
        ],
    )
    def test_the_first_call_of_another_model_is_marked_for_gemini_3(self, name, expected):
        made = body(USER, said(call("a"), call("b")), result("1", "a"), result("2", "b"), name=name)
        first, second = made["contents"][1]["parts"]
        assert first.get("thoughtSignature") == expected
        assert "thoughtSignature" not in second


class TestMediaInResults:
    CONTENT = ({"type": "text", "text": "Taken."}, IMAGE)

    def sent(self, name, content=CONTENT):
        return body(USER, said(call()), result([*content]), name=name)["contents"][2:]

    def test_gemini_3_receives_them_within_the_result(self):
        ((part,),) = [one["parts"] for one in self.sent("gemini-3-flash-preview")]
        response = part["functionResponse"]
        assert response["response"] == {"output": text_of_parts(self.CONTENT)}
        assert response["parts"][0]["inlineData"]["data"] == PIXEL.replace("+", "-").replace(
            "/", "_"
        )

    def test_earlier_models_receive_them_from_the_user(self):
        results, shown = self.sent("gemini-2.5-flash")
        assert "parts" not in results["parts"][0]["functionResponse"]
        assert "inlineData" in shown["parts"][-1]

    def test_a_kind_that_results_do_not_take_comes_from_the_user(self):
        sound = {"type": "input_audio", "input_audio": {"data": "aaaa", "format": "wav"}}
        results, shown = self.sent("gemini-3-flash-preview", [sound])
        assert "parts" not in results["parts"][0]["functionResponse"]
        assert "inlineData" in shown["parts"][-1]

    def test_the_loop_leaves_them_to_the_adapter(self):
        assert model().accepts_tool_result_parts


class TestOptions:
    def test_names_of_openai_are_translated(self):
        made = generation(max_completion_tokens=5, stop="END", temperature=0, seed=7, top_k=3)
        assert made == {
            "maxOutputTokens": 5,
            "stopSequences": ["END"],
            "temperature": 0,
            "seed": 7,
            "topK": 3,
        }

    def test_a_time_limit_is_in_seconds(self):
        config = model()._body([USER], {"timeout": 2.5})["config"]
        assert config["http_options"] == {"timeout": 2500}

    def test_tools_are_declared_with_their_schema(self):
        (made,) = body()["tools"]
        (one,) = made["functionDeclarations"]
        assert one["parametersJsonSchema"] == TOOL["function"]["parameters"]
        assert (one["name"], one["description"]) == ("add", "Add.")

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            ("auto", {"mode": "AUTO"}),
            ("none", {"mode": "NONE"}),
            ("required", {"mode": "ANY"}),
            (
                {"type": "function", "function": {"name": "add"}},
                {"mode": "ANY", "allowedFunctionNames": ["add"]},
            ),
            (
                {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}},
                {"mode": "VALIDATED", "allowedFunctionNames": ["add"]},
            ),
        ],
    )
    def test_a_choice_of_tools(self, choice, expected):
        assert body(tool_choice=choice)["toolConfig"]["functionCallingConfig"] == expected

    @pytest.mark.parametrize("choice", ["any", {"type": "function"}, 1])
    def test_another_choice_is_an_error(self, choice):
        with pytest.raises(OptionError, match="tool_choice: expected one of auto"):
            body(tool_choice=choice)

    def test_without_tools_there_is_no_choice_of_them(self):
        made = body(tools=None, tool_choice="none")
        assert "tools" not in made
        assert "toolConfig" not in made

    def test_tools_that_run_at_google_are_options_by_their_names(self):
        made = body(google_search=True, url_context={}, code_execution=False)["tools"]
        assert [{*one} for one in made if "functionDeclarations" not in one] == [
            {"googleSearch"},
            {"urlContext"},
        ]
        assert len(made) == 3

    @pytest.mark.parametrize(
        ("name", "effort", "expected"),
        [
            ("gemini-2.5-pro", "low", {"thinkingBudget": 1024, "includeThoughts": True}),
            ("gemini-2.5-flash", "none", {"thinkingBudget": 0, "includeThoughts": False}),
            ("gemini-3-pro", "high", {"thinkingLevel": "HIGH", "includeThoughts": True}),
            ("gemini-3-flash", "none", {"thinkingLevel": "MINIMAL", "includeThoughts": False}),
        ],
    )
    def test_the_effort_of_reasoning(self, name, effort, expected):
        assert generation(name=name, reasoning_effort=effort)["thinkingConfig"] == expected

    def test_own_settings_of_thinking_take_precedence(self):
        made = generation(thinking_config={"include_thoughts": False}, reasoning_effort="low")
        assert made["thinkingConfig"] == {"thinkingBudget": 1024, "includeThoughts": False}

    @pytest.mark.parametrize("name", ["presence_penaltie", "user", "candidate_count", "n"])
    def test_an_option_that_the_api_does_not_have_is_an_error(self, name):
        with pytest.raises(OptionError, match=f"the Gemini API has no option '{name}'"):
            model(**{name: 1})

    def test_parallel_calls_cannot_be_forbidden(self):
        assert "toolConfig" not in body(parallel_tool_calls=True)
        with pytest.raises(OptionError, match="cannot forbid parallel calls"):
            body(parallel_tool_calls=False)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}


class TestOutput:
    def test_a_schema_is_sent(self):
        made = generation(tools=None, response_format=FORM)
        assert made == {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}

    def test_json_without_a_schema(self):
        made = generation(tools=None, response_format={"type": "json_object"})
        assert made == {"responseMimeType": "application/json"}

    def test_gemini_3_takes_it_together_with_functions(self):
        made = body(name="gemini-3-pro", response_format=FORM)
        assert made["generationConfig"]["responseJsonSchema"] == SCHEMA
        assert made["tools"]

    def test_earlier_models_are_told_it_if_there_are_functions(self):
        made = body({"role": "system", "content": "Add."}, USER, response_format=FORM)
        assert not made["generationConfig"]
        first, told = made["systemInstruction"]["parts"]
        assert first["text"] == "Add."
        assert json.dumps(SCHEMA) in told["text"]
        assert made["tools"]

    def test_functions_that_cannot_be_called_are_left_out_for_it(self):
        made = body(response_format=FORM, tool_choice="none")
        assert made["generationConfig"]["responseJsonSchema"] == SCHEMA
        assert "tools" not in made

    def test_another_form_is_an_error(self):
        with pytest.raises(OptionError, match="response_format: expected a json_schema"):
            body(response_format={"type": "grammar"})


# Responses

USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "toolUsePromptTokenCount": 7,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 30,
    "totalTokenCount": 157,
}


def response(*parts, reason="STOP", **candidate):
    content = {"role": "model", "parts": [*parts]}
    made = {"content": content, "finishReason": reason, **candidate}
    return {
        "candidates": [{key: value for key, value in made.items() if value is not None}],
        "usageMetadata": USAGE,
        "modelVersion": "gemini-x",
        "responseId": "r1",
    }


def _of_sdk(raw):
    return types.GenerateContentResponse.model_validate_json(json.dumps(raw))


def whole(*parts, **facts):
    return model()._response(_of_sdk(response(*parts, **facts)))


def streamed(*parts, **facts):
    """Each part in a piece of its own, texts in two; the finish reason in the last, which has no content."""
    reader, accumulator = Reader(), StreamAccumulator()
    pieces = []
    for part in parts:
        if len(part.get("text", "")) > 1:
            middle = len(part["text"]) // 2
            head = {key: part[key] for key in part if key != "thoughtSignature"}
            pieces += (
                {**head, "text": part["text"][:middle]},
                {**part, "text": part["text"][middle:]},
            )
        else:
            pieces.append(part)
    raws = [response(piece, reason=None) for piece in pieces]
    for raw in [*raws, response(**{"content": None, **facts})]:
        accumulator.add(reader.read(_of_sdk(raw)))
    return accumulator.response()


@pytest.fixture(params=[whole, streamed], ids=["whole", "streamed"])
def respond(request):
    return request.param


CALL = {"functionCall": {"id": "f1", "name": "add", "args": {"a": 1}}}
THOUGHT = {"text": "Hm, add.", "thought": True}
CODE = {"executableCode": {"language": "PYTHON", "code": "1+1"}}
DONE = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
TEXT = {"text": "It is 2."}


class TestResponses:
    def test_text_and_calls(self, respond):
        made = respond(TEXT, CALL, {"functionCall": {"name": "now"}})
        assert (made.content, made.finish_reason) == ("It is 2.", "STOP")
        assert [
            (one.id, one.name, json.loads(one.arguments or "{}")) for one in made.tool_calls
        ] == [
            ("f1", "add", {"a": 1}),
            ("", "now", {}),
        ]
        assert (made.model, made.id) == ("gemini-x", "r1")
        assert made.is_streamed is (respond is streamed)

    def test_usage_counts_thoughts_and_results_of_own_tools(self, respond):
        usage = respond(TEXT).usage
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (107, 50, 157)
        assert (usage.cached_tokens, usage.reasoning_tokens) == (60, 30)
        assert usage.is_measured

    @pytest.mark.parametrize(
        ("word", "ending"),
        [
            ("STOP", "complete"),
            ("MAX_TOKENS", "cut"),
            ("SAFETY", "filtered"),
            ("OTHER", "cut"),
        ],
    )
    def test_how_a_response_ended(self, respond, word, ending):
        made = respond(TEXT, reason=word)
        assert (made.finish_reason, made.ending) == (word, ending)
        assert (made.content, made.refusal) == ("It is 2.", None)

    def test_a_response_that_a_filter_took_away_is_a_refusal(self, respond):
        made = respond(reason="PROHIBITED_CONTENT")
        assert (made.finish_reason, made.ending, made.text) == (
            "PROHIBITED_CONTENT",
            "filtered",
            "",
        )

    def test_a_prompt_that_was_blocked_is_a_refusal(self):
        raw = {
            "promptFeedback": {"blockReason": "SAFETY"},
            "usageMetadata": {"promptTokenCount": 9},
        }
        made = model()._response(_of_sdk(raw))
        assert (made.finish_reason, made.ending, made.text) == ("SAFETY", "filtered", "")
        assert (made.usage.input_tokens, made.usage.is_measured) == (9, True)

    def test_the_parts_of_a_response_are_sent_back_as_they_came_and_in_order(self, respond):
        parts = [
            {**THOUGHT, "thoughtSignature": "YQ=="},
            CODE,
            DONE,
            {**TEXT, "thoughtSignature": "Yg=="},
            {**CALL, "thoughtSignature": "Yw=="},
        ]
        made = respond(*parts)
        calls = [call("f1", "add", '{"a": 1}', **made.tool_calls[0].extra)]
        history = said(*calls, content=made.content, **json.loads(json.dumps(made.extra)))
        sent = body(USER, history, result("2", "f1"), name="gemini-3-pro")
        assert sent["contents"][1]["parts"] == parts

    def test_sources_are_kept(self, respond):
        source = {"groundingMetadata": {"webSearchQueries": ["x"]}}
        kept = respond(TEXT, **source).extra["extra_content"]["google"]
        assert kept["grounding_metadata"] == {"web_search_queries": ["x"]}

    def test_a_stream_without_a_finish_reason_is_incomplete(self):
        accumulator = StreamAccumulator()
        accumulator.add(Chunk(ends_with_reason=True))
        accumulator.add(Reader().read(_of_sdk(response(TEXT, reason=None))))
        with pytest.raises(ConnectionError, match="no finish reason"):
            accumulator.response()


class TestMalformedCalls:
    @pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
    def test_one_is_worth_another_attempt(self, respond, reason):
        with pytest.raises(ProviderError, match=reason) as caught:
            settled(respond(reason=reason))
        assert is_retryable(caught.value)

    def test_a_call_that_the_api_could_read_does_not_run_either(self, respond):
        with pytest.raises(ProviderError, match="MALFORMED_FUNCTION_CALL"):
            settled(respond(CALL, reason="MALFORMED_FUNCTION_CALL"))


# Connections


def sse(*raws):
    return 200, {}, "".join(f"data: {json.dumps(raw)}\r\n\r\n" for raw in raws)


def plain(raw, status=200, **headers):
    return status, headers, raw if isinstance(raw, str) else json.dumps(raw)


@pytest.fixture
def serve():
    made = []

    def serve(*script):
        made.append(ScriptedServer(*script))
        return made[-1]

    yield serve
    for one in made:
        one.close()


def at(server, **opts):
    return backend("gemini:gemini-3-flash-preview", base_url=server.url, api_key="a key", **opts)


@tool
def add(a: int) -> str:
    """Add one."""
    return str(a + 1)


DRIVERS = {
    "run_sync": Loop.run_sync,
    "asyncio": lambda *args, **opts: asyncio.run(Loop.run(*args, **opts)),
    "trio": lambda *args, **opts: trio.run(lambda: Loop.run(*args, **opts)),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_run_under_each_driver(serve, driver, stream):
    answers = [response({**CALL, "thoughtSignature": "YQ=="}), response(TEXT)]
    server = serve(*(sse(one) if stream else plain(one) for one in answers))
    made = DRIVERS[driver]("1 + 1?", at(server, stream=stream), tools=[add])
    assert isinstance(made, Ok), made
    assert made.response.content == "It is 2."
    (_, _, first), (path, headers, second) = server.requests
    check_body(first)
    check_body(second)
    assert second["contents"][1]["parts"][0]["thoughtSignature"] == "YQ=="
    action = "streamGenerateContent?alt=sse" if stream else "generateContent"
    assert path == f"/v1beta/models/gemini-3-flash-preview:{action}"
    assert headers["x-goog-api-key"] == "a key"


@pytest.mark.parametrize("driver", ["asyncio", "trio"])
def test_a_reader_that_leaves_a_stream_closes_it(serve, driver):
    server = serve(sse(*(response({"text": "word "}, reason=None) for _ in range(50))))

    async def leave():
        llm = at(server)
        chunks = await llm([USER])
        async for chunk in chunks:
            if chunk.text:
                break
        await chunks.aclose()
        await llm.aclose()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (asyncio if driver == "asyncio" else trio).run(leave() if driver == "asyncio" else leave)


def test_a_reader_that_stops_at_the_first_chunk_closes_the_stream():
    closed = []

    class Raw:
        async def __aiter__(self):
            yield _of_sdk(response(TEXT))

        async def aclose(self):
            closed.append(True)

    async def stop():
        chunks = model()._chunks(Raw())
        await anext(chunks)
        await chunks.aclose()

    asyncio.run(stop())
    assert closed == [True]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_malformed_call_is_asked_for_again(serve, stream):
    answers = [response(reason="MALFORMED_FUNCTION_CALL"), response(CALL), response(TEXT)]
    server = serve(*(sse(one) if stream else plain(one) for one in answers))
    events = []
    made = Loop.run_sync(
        "1 + 1?", at(server, stream=stream), tools=[add], on_event=events.append, retry_delay=0.001
    )
    assert isinstance(made, Ok), made
    assert [one.call.input for one in events if isinstance(one, ToolStarted)] == [{"a": 1}]
    (retried,) = (one for one in events if isinstance(one, ModelRetried))
    assert retried.error_type == "ProviderError"


@pytest.mark.parametrize("cut", ["", 'data: {"candidates": [{"conte'], ids=["between", "within"])
def test_a_stream_that_breaks_off_is_an_error_and_is_requested_again_before_text(serve, cut):
    server = serve((200, {}, cut), sse(response(TEXT)))
    events = []
    made = Loop.run_sync("Hi", at(server), on_event=events.append, retry_delay=0.001)
    if cut:  # the first piece is no JSON: that may as well be another server
        assert isinstance(made, Err)
        assert made.reason.error_type == "NotAResponseError"
        return
    assert isinstance(made, Ok), made
    assert len([one for one in events if isinstance(one, ModelRetried)]) == 1


def test_a_stream_that_breaks_off_after_text_is_an_error(serve):
    piece = json.dumps(response(TEXT, reason=None))
    server = serve((200, {}, f"data: {piece}\r\n\r\ndata: {piece[:20]}"))
    events = []
    made = Loop.run_sync("Hi", at(server), on_event=events.append)
    assert isinstance(made, Err)
    assert made.reason.error_type == "ConnectionError"
    assert [one.text for one in events if isinstance(one, TextDelta)] == ["It is 2."]
    assert len(server.requests) == 1


def test_an_error_within_a_stream_is_the_one_of_the_sdk(serve):
    error = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "overloaded"}}
    server = serve(sse(error), sse(response(TEXT)))
    made = Loop.run_sync("Hi", at(server), retry_delay=0.001)
    assert isinstance(made, Ok), made
    assert len(server.requests) == 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
class TestErrors:
    async def ask(self, server, stream, **opts):
        made = backend("gemini:gemini-x", base_url=server.url, stream=stream, **opts)
        try:
            return await made([USER])
        finally:
            await made.aclose()

    def test_a_page_is_no_response(self, serve, stream):
        with pytest.raises(NotAResponseError, match="text that is no JSON"):
            asyncio.run(self.ask(serve(plain("<html>")), stream, api_key="k"))


def test_the_key_of_the_environment_is_that_of_the_sdk(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "b")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    assert backend("gemini-2.5-flash")._api_key == "b"
    monkeypatch.setenv("GOOGLE_API_KEY", "a")
    made = backend("google:gemini-2.5-flash")._new_client()._sdk_client._api_client
    assert made.api_key == "a"
    assert not made.vertexai


def test_texts_are_embedded_each_by_itself(serve):
    vectors = [{"values": [1.0, 2.0]}, {"values": [3.0, 4.0]}]
    server = serve(plain({"embeddings": vectors}))
    with closing(embedder("gemini:gemini-embedding-001", base_url=server.url, api_key="k")) as made:
        found = asyncio.run(_embedded(made))
    assert found == [[1.0, 2.0], [3.0, 4.0]]
    ((path, _, sent),) = server.requests
    assert path.endswith("gemini-embedding-001:batchEmbedContents")
    assert [one["content"]["parts"][0]["text"] for one in sent["requests"]] == ["a", "b"]


async def _embedded(made):
    try:
        return await made(["a", "b"])
    finally:
        await made.aclose()
