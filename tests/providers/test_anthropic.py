"""`AnthropicModel`: what is sent for a history and its options, and what a response becomes."""

import copy
import json

import pytest
from anthropic._models import FinalRequestOptions, construct_type
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.http_server import ScriptedServer
from tests.providers.back_anthropic import check_body, messages_of
from tests.providers.histories import histories, texts

from treadle import Err, Loop, OptionError, tool
from treadle.messages import NotAResponseError, is_list
from treadle.messages.parts import placeholder
from treadle.messages.stream import StreamAccumulator
from treadle.providers import backend
from treadle.providers.anthropic.response import response_of
from treadle.providers.anthropic.stream import StreamReader

USER = {"role": "user", "content": "Hi"}
TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}},
}
FORMAT = "anthropic-messages"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}


def model(**opts):
    return backend("anthropic:claude-sonnet-5-5", api_key="k", **opts)


def body(*messages, **opts):
    made = model()._body([*messages] or [USER], {"tools": [TOOL], **opts})
    check_body(made)
    return made


def call(call_id="c1", name="add", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


signed = st.builds(
    lambda text, signature: {"type": "reasoning.text", "text": text, "signature": signature},
    texts,
    texts,
)
hidden = texts.map(lambda data: {"type": "reasoning.encrypted", "data": data})
reasoning = st.lists(signed | hidden, min_size=0, max_size=2).map(
    lambda items: (
        {
            "reasoning_details": [
                {**item, "format": FORMAT, "index": index} for index, item in enumerate(items)
            ]
        }
        if items
        else {}
    )
)


def sendable(message):
    """What is sent of a message: no unknown keys, and a placeholder for sound, which Anthropic does not take."""
    known = {"role", "content", "tool_calls", "tool_call_id", "reasoning_details"}
    made = {key: value for key, value in message.items() if key in known}
    content = made["content"]
    if is_list(content):
        parts = [_as_text(part) if part["type"] == "input_audio" else part for part in content]
        is_plain = len(parts) == 1 and parts[0].keys() == {"type", "text"}
        made["content"] = parts[0]["text"] if is_plain else parts
    for one in made.get("tool_calls") or ():
        one["function"]["arguments"] = json.dumps(json.loads(one["function"]["arguments"]))
    return made


def _as_text(part):
    hint = {key: part[key] for key in part if key == "cache_control"}
    plain = {key: part[key] for key in part if key != "cache_control"}
    return {"type": "text", "text": placeholder(plain), **hint}


@settings(max_examples=200, deadline=None)
@given(histories(reasoning=reasoning))
def test_a_history_comes_back_from_what_is_sent(history):
    given_one = copy.deepcopy(history)
    made = model()._body(history, {"tools": [TOOL]})
    check_body(made)
    assert history == given_one  # the history keeps what is not sent
    assert messages_of(made) == [sendable(message) for message in given_one]


class TestConversations:
    def test_system_messages_at_the_start_are_the_system_and_later_ones_are_marked(self):
        first, other = (
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": "In verse."},
        )
        later = {"role": "system", "content": "Stop </system> soon."}
        made = body(first, other, USER, later)
        assert [block["text"] for block in made["system"]] == ["Be brief.", "In verse."]
        (turn,) = made["messages"]
        assert turn["content"][1]["text"] == "<system>\nStop &lt;/system> soon.\n</system>"

    def test_a_history_that_begins_with_the_assistant_gets_a_user_before(self):
        assert (
            body({"role": "assistant", "content": "Hello."}, USER)["messages"][0]["role"] == "user"
        )

    def test_all_results_of_an_exchange_are_one_message_and_an_error_is_marked(self):
        said = {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]}
        results = [
            {"role": "tool", "tool_call_id": "a", "content": "Error: no"},
            {"role": "tool", "tool_call_id": "b", "content": "3"},
        ]
        *_, last = body(USER, said, *results, {"role": "user", "content": "And?"})["messages"]
        kinds = [(block["type"], block.get("is_error")) for block in last["content"]]
        assert kinds == [("tool_result", True), ("tool_result", None), ("text", None)]

    def test_ids_that_the_api_refuses_are_replaced_alike_in_call_and_result(self):
        said = {"role": "assistant", "content": None, "tool_calls": [call("a.b|1")]}
        _, answer, result = body(
            USER, said, {"role": "tool", "tool_call_id": "a.b|1", "content": "x"}
        )["messages"]
        assert answer["content"][0]["id"] == result["content"][0]["tool_use_id"] != "a.b|1"

    def test_reasoning_of_others_and_without_a_signature_is_not_sent(self):
        details = [
            {"type": "reasoning.text", "text": "a", "format": "gemini"},
            {"type": "reasoning.text", "text": "b", "format": FORMAT},
        ]
        made = body(
            USER, {"role": "assistant", "content": "Yes.", "reasoning_details": details}, USER
        )
        assert made["messages"][1]["content"] == [{"type": "text", "text": "Yes."}]

    def test_white_space_at_the_end_of_a_text_to_continue_is_removed(self):
        made = body(USER, {"role": "assistant", "content": "One, \n"})
        assert made["messages"][-1]["content"][0]["text"] == "One,"

    def test_the_cache_hint_of_a_message_is_that_of_its_last_block(self):
        hint = {"type": "ephemeral"}
        made = body({"role": "system", "content": "Long.", "cache_control": hint}, USER)
        assert made["system"] == [{"type": "text", "text": "Long.", "cache_control": hint}]

    def test_a_reasoning_block_takes_no_cache_hint(self):
        details = [{"type": "reasoning.text", "text": "a", "signature": "s", "format": FORMAT}]
        said = {"role": "assistant", "content": None, "reasoning_details": details}
        made = body(USER, {**said, "cache_control": {"type": "ephemeral"}}, USER)
        assert made["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "a", "signature": "s"}
        ]

    def test_an_error_with_an_image_is_not_marked_since_the_api_takes_only_texts_in_it(self):
        said = {"role": "assistant", "content": None, "tool_calls": [call()]}
        parts = [{"type": "text", "text": "Error: no"}, IMAGE]
        made = body(USER, said, {"role": "tool", "tool_call_id": "c1", "content": parts})
        (block,) = made["messages"][-1]["content"]
        assert "is_error" not in block

    @pytest.mark.parametrize("role", ["system", "assistant"])
    def test_an_image_where_the_api_takes_only_texts_is_a_placeholder(self, role):
        made = body({"role": role, "content": [IMAGE]}, USER)
        (block,) = made["system"] if role == "system" else made["messages"][1]["content"]
        assert block == {"type": "text", "text": placeholder(IMAGE)}

    def test_a_text_file_is_a_document(self):
        data = "data:text/csv;base64,YSxi"
        part = {"type": "file", "file": {"filename": "t.csv", "file_data": data}}
        (block,) = body({"role": "user", "content": [part]})["messages"][0]["content"]
        source = {"type": "text", "media_type": "text/plain", "data": "a,b"}
        assert block == {"type": "document", "source": source, "title": "t.csv"}

    def test_a_call_of_a_name_that_the_api_refuses_is_renamed_like_its_declared_tool(self):
        said = {"role": "assistant", "content": None, "tool_calls": [call(name="a.b")]}
        made = body(USER, said, {"role": "tool", "tool_call_id": "c1", "content": "x"}, tools=None)
        assert made["messages"][1]["content"][0]["name"] == made["tools"][0]["name"] == "a_b"

    def test_images_and_documents_in_results_are_blocks(self):
        said = {"role": "assistant", "content": None, "tool_calls": [call()]}
        made = body(USER, said, {"role": "tool", "tool_call_id": "c1", "content": [IMAGE]})
        (block,) = made["messages"][-1]["content"][0]["content"]
        assert block["source"] == {"type": "base64", "media_type": "image/png", "data": "aaaa"}
        assert model().accepts_tool_result_parts


def output(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


class TestOptions:
    def test_names_of_openai_are_translated(self):
        made = body(
            max_completion_tokens=5,
            stop="END",
            user="u1",
            temperature=0,
            reasoning_effort="minimal",
        )
        assert made["max_tokens"] == 5
        assert made["stop_sequences"] == ["END"]
        assert made["metadata"] == {"user_id": "u1"}
        assert made["extra_body"] == {"temperature": 0}
        assert made["output_config"] == {"effort": "low"}

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            ("auto", {"type": "auto"}),
            ("none", {"type": "none"}),
            ("required", {"type": "any"}),
            ({"type": "function", "function": {"name": "add"}}, {"type": "tool", "name": "add"}),
        ],
    )
    def test_a_choice_of_tools(self, choice, expected):
        assert body(tool_choice=choice)["tool_choice"] == expected

    def test_one_call_at_a_time(self):
        made = body(parallel_tool_calls=False)
        assert made["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}

    def test_a_forced_call_is_made_without_thinking(self):
        assert "thinking" not in body(tool_choice="required", thinking={"type": "adaptive"})

    def test_a_forced_call_leaves_disabled_thinking_disabled(self):
        off = {"type": "disabled"}
        assert body(tool_choice="required", thinking=off)["thinking"] == off

    @pytest.mark.parametrize(
        ("opts", "thinking"),
        [
            ({"reasoning_effort": "high"}, {"type": "adaptive"}),
            ({"reasoning_effort": "none"}, {"type": "disabled"}),
            (
                {"thinking": {"type": "between_tools"}, "reasoning_effort": "low"},
                {"type": "between_tools"},
            ),
        ],
    )
    def test_an_effort_is_one_of_thinking(self, opts, thinking):
        assert body(**opts)["thinking"] == thinking

    def test_the_default_limit_is_above_the_budget_of_thinking(self):
        budget = {"type": "enabled", "budget_tokens": 20_000}
        assert body(thinking=budget)["max_tokens"] == 36_384

    def test_an_option_of_none_is_left_out_but_for_the_time_limit(self):
        made = body(metadata=None, stop=None, timeout=None)
        assert made.pop("timeout") is None
        assert None not in made.values()
        assert "stop_sequences" not in made

    def test_a_tool_without_parameters_and_with_a_cache_hint(self):
        hint = {"type": "ephemeral"}
        plain = {"type": "function", "function": {"name": "now"}, "cache_control": hint}
        (made,) = body(tools=[plain])["tools"]
        assert made == {"name": "now", "input_schema": {"type": "object"}, "cache_control": hint}

    def test_without_tools_the_calls_of_the_history_have_declared_ones_that_are_not_offered(self):
        said = {"role": "assistant", "content": None, "tool_calls": [call()]}
        made = body(USER, said, {"role": "tool", "tool_call_id": "c1", "content": "3"}, tools=None)
        assert made["tools"] == [{"name": "add", "input_schema": {"type": "object"}}]
        assert made["tool_choice"] == {"type": "none"}

    def test_a_schema_for_the_output_is_closed(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        sent = body(response_format=output(schema))["output_config"]["format"]
        assert sent["schema"]["additionalProperties"] is False

    def test_a_form_without_a_schema_is_an_error(self):
        with pytest.raises(OptionError, match="no JSON without a schema"):
            body(response_format={"type": "json_object"})

    @pytest.mark.parametrize(
        ("schema", "problem"),
        [
            ({}, "a has any type"),
            (True, "a has any type"),
            (
                {"type": "object", "additionalProperties": {"type": "integer"}},
                "a is an object with",
            ),
            ({"type": "object"}, "a is an object with free keys"),
            ({"type": "array", "items": {}}, r"a\[\] has any type"),
            ({"anyOf": [{"type": "null"}, {"type": "object"}]}, "a is an object with free keys"),
        ],
    )
    def test_a_schema_that_the_api_would_narrow_or_refuse_is_an_error(self, schema, problem):
        with pytest.raises(OptionError, match=f"the output.{problem}.*mode='tool'"):
            body(response_format=output({"type": "object", "properties": {"a": schema}}))

    def test_a_schema_with_a_list_of_types_and_a_limit(self):
        part = {"type": ["integer", "null"], "minimum": 1}
        made = body(response_format=output({"type": "object", "properties": {"a": part}}))
        sent = made["output_config"]["format"]["schema"]["properties"]["a"]["anyOf"]
        assert sent == [{"type": "integer", "description": "{minimum: 1}"}, {"type": "null"}]

    @pytest.mark.parametrize("option", ["extra_body", "output_config", "tool_choice"])
    def test_an_option_that_is_no_dict_is_an_error(self, option):
        with pytest.raises(OptionError, match=f"{option}: expected a dict, got int"):
            body(**{option: 5})

    def test_own_options_pass(self):
        made = body(thinking={"type": "adaptive"}, cache_control={"type": "ephemeral"})
        assert made["thinking"] == {"type": "adaptive"}
        assert made["cache_control"] == {"type": "ephemeral"}

    @pytest.mark.parametrize("name", ["presence_penalty", "seed", "max_token"])
    def test_an_option_that_the_api_does_not_have_is_an_error(self, name):
        with pytest.raises(OptionError, match=f"Anthropic's API has no option '{name}'"):
            model(**{name: 1})


def whole(*content, **facts):
    raw = {
        "id": "m", "type": "message", "role": "assistant", "model": "claude", "content": list(content),
        "stop_reason": facts.pop("stop_reason", "end_turn"), "stop_sequence": None,
        "stop_details": facts.pop("stop_details", None),
        "usage": {"input_tokens": 10, "output_tokens": 5, **facts},
    }  # fmt: skip
    return model()._response(Message.model_validate(raw))


def events_of(*content, stop_reason="end_turn", **usage):
    """The events that the API sends for these blocks."""
    start = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": []}
    start |= {"stop_reason": None, "stop_sequence": None}
    start["usage"] = {"input_tokens": 10, "output_tokens": 1, **usage}
    events = [{"type": "message_start", "message": start}]
    for index, block in enumerate(content):
        begun, deltas = pieces(block)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": one} for one in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
    return [*events, {"type": "message_stop"}]


def streamed(*content, **facts):
    """The response to these events."""
    reader, accumulator = StreamReader(), StreamAccumulator()
    read = TypeAdapter(RawMessageStreamEvent).validate_python
    for event in events_of(*content, **facts):
        for chunk in reader.read(read(event)):
            accumulator.add(chunk)
    return accumulator.response()


def pieces(block):
    def halves(text):
        return text[: len(text) // 2], text[len(text) // 2 :]

    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": one} for one in halves(block["text"])]
        cited = [{"type": "citations_delta", "citation": one} for one in block.get("citations", ())]
        return {"type": "text", "text": ""}, [*deltas, *cited]
    if kind in {"tool_use", "server_tool_use"}:
        parts = halves(json.dumps(block["input"]))
        return {**block, "input": {}}, [
            {"type": "input_json_delta", "partial_json": one} for one in parts
        ]
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": one} for one in halves(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    return block, []


def sent_back(made, **changed):
    """The blocks that are sent for a response with one call, after it went through a history."""
    (one,) = made.tool_calls
    said = {"role": "assistant", "content": made.content, **made.extra, **changed}
    said["tool_calls"] = [{**call("t1", "add", one.arguments), **one.extra}]
    sent = body(USER, said, {"role": "tool", "tool_call_id": "t1", "content": "2"})
    return sent["messages"][1]["content"]


@pytest.fixture(params=[whole, streamed], ids=["whole", "streamed"])
def respond(request):
    return request.param


THOUGHT = {"type": "thinking", "thinking": "Hmm, add.", "signature": "s1"}
SECRET = {"type": "redacted_thinking", "data": "xyz"}
USE = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "s1",
    "content": [
        {
            "type": "web_search_result",
            "url": "u",
            "title": "t",
            "encrypted_content": "e",
            "page_age": None,
        }
    ],
}
CITATION = {
    "type": "web_search_result_location",
    "url": "u",
    "title": "t",
    "encrypted_index": "e",
    "cited_text": "c",
}
CITED = {"type": "text", "text": "It is so.", "citations": [CITATION]}


class TestResponses:
    def test_text_and_calls(self, respond):
        made = respond({"type": "text", "text": "I add."}, USE, stop_reason="tool_use")
        (one,) = made.tool_calls
        assert (made.content, made.finish_reason) == ("I add.", "tool_use")
        assert (one.id, one.name, json.loads(one.arguments)) == ("t1", "add", {"a": 1})

    def test_usage_includes_what_the_cache_had_and_what_went_into_it(self, respond):
        usage = respond(cache_read_input_tokens=100, cache_creation_input_tokens=20).usage
        assert (usage.input_tokens, usage.output_tokens) == (130, 5)
        assert (usage.cached_tokens, usage.cache_write_tokens) == (100, 20)
        assert usage.is_measured

    @pytest.mark.parametrize(
        ("word", "ending"),
        [
            ("end_turn", "complete"),
            ("max_tokens", "cut"),
            ("pause_turn", "paused"),
            ("stop_sequence", "complete"),
        ],
    )
    def test_how_a_response_ended(self, respond, word, ending):
        made = respond({"type": "text", "text": "x"}, stop_reason=word)
        assert (made.finish_reason, made.ending) == (word, ending)

    def test_a_refusal(self, respond):
        made = respond({"type": "text", "text": "I"}, stop_reason="refusal")
        assert (made.content, made.refusal) == ("I", None)
        assert (made.finish_reason, made.ending) == ("refusal", "filtered")

    @pytest.mark.parametrize("text", ["It is harmful.", None])
    def test_the_reason_of_a_refusal(self, text):
        details = {"type": "refusal", "category": "bio", "explanation": text}
        made = whole(stop_reason="refusal", stop_details=details)
        assert made.refusal == made.extra.get("refusal") == text

    @pytest.mark.parametrize(
        "blocks",
        [
            (THOUGHT, SEARCH, FOUND, {"type": "text", "text": "So."}, SECRET, USE),
            (THOUGHT, {"type": "text", "text": "I look."}, SEARCH, FOUND, CITED, SECRET, USE),
            (THOUGHT, USE, {"type": "text", "text": "And that."}),
            (SEARCH, {**USE, "caller": {"type": "code_execution_20260120", "tool_id": "s1"}}),
        ],
    )
    def test_the_blocks_of_a_response_are_sent_back_as_they_came_and_in_order(
        self, respond, blocks
    ):
        made = respond(*blocks, stop_reason="tool_use")
        back = sent_back(made)
        assert [
            {key: one[key] for key in block} for one, block in zip(back, blocks, strict=True)
        ] == [*blocks]

    def test_a_text_that_was_changed_is_sent_as_it_is_now(self, respond):
        made = respond({"type": "text", "text": "One."}, SEARCH, FOUND, CITED, USE)
        back = sent_back(made, content="Two.")
        assert [one.get("text", one["type"]) for one in back] == [
            "Two.", "server_tool_use", "web_search_tool_result", "tool_use",
        ]  # fmt: skip

    def test_a_plain_response_keeps_nothing_else(self, respond):
        made = respond({"type": "text", "text": "I add."}, USE)
        assert (made.extra, made.tool_calls[0].extra) == ({}, {})

    @pytest.mark.parametrize("block", [{}, {"type": ["text"]}, {"type": "text", "text": None}])
    def test_what_no_response_can_have_had_is_not_sent(self, block):
        """A history may come from anywhere."""
        kept = {"extra_content": {"anthropic": {"blocks": [{**block, "index": 0}]}}}
        said = {"role": "assistant", "content": "Yes.", **kept}
        assert body(USER, said, USER)["messages"][1]["content"] == [
            {"type": "text", "text": "Yes."}
        ]

    @pytest.mark.parametrize(("index", "place"), [(10**15, 1), (-1, 0)])
    def test_a_block_with_any_index_is_sent_in_its_order(self, index, place):
        kept = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
        blocks = {"extra_content": {"anthropic": {"blocks": [{**kept, "index": index}]}}}
        said = {"role": "assistant", "content": "Yes.", **blocks}
        assert body(USER, said, USER)["messages"][1]["content"][place] == kept

    @pytest.mark.parametrize("raw", [[], None, construct_type(type_=Message, value={})])
    def test_json_that_is_no_message_is_an_error(self, raw):
        with pytest.raises(NotAResponseError, match="no message of Anthropic's API"):
            response_of(raw)

    def test_a_message_without_content_is_an_empty_response(self):
        raw = construct_type(type_=Message, value={"type": "message", "content": None})
        assert response_of(raw).content is None

    def test_a_block_that_is_no_object_is_an_error(self):
        with pytest.raises(NotAResponseError, match="has int 5 where an object is expected"):
            response_of(construct_type(type_=Message, value={"content": [5]}))

    def test_a_block_of_a_kind_that_the_sdk_does_not_know_is_kept(self):
        new = {"type": "new_block", "data": [1]}
        raw = construct_type(value={"content": [new], "usage": None}, type_=Message)
        kept = response_of(raw).extra["extra_content"]["anthropic"]["blocks"]
        assert kept == [{**new, "index": 0}]


def test_a_token_is_sent_as_one(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token")
    client = backend("anthropic:claude-sonnet-5-5")._new_client()
    assert (client.auth_token, client.api_key) == ("token", None)


def headers_to(**opts):
    """The headers of a request."""
    options = FinalRequestOptions(method="post", url="/v1/messages", json_data={})
    return model(**opts)._new_client()._build_request(options).headers


def test_what_the_environment_has_for_anthropic_stays_away_from_other_servers(monkeypatch):
    given = "X-Team: ours\nx-api-key: theirs\nAuthorization: Bearer theirs"
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", given)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token")
    own, other = headers_to(), headers_to(base_url="http://127.0.0.1:1")
    assert (own["X-Team"], own["X-Api-Key"]) == ("ours", "theirs")
    assert other["X-Api-Key"] == "k"
    assert not {"X-Team", "Authorization"} & {*other}


def sse(*events):
    text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    return 200, {"Content-Type": "text/event-stream"}, text


PING = {"type": "ping"}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
ANSWER = events_of({"type": "text", "text": "Yes, it is."})
CALL = events_of(USE, stop_reason="tool_use")
FAST = {"retry_delay": 0.001}


class TestStreams:
    def test_pings_are_passed_over(self):
        with ScriptedServer(sse(ANSWER[0], PING, *ANSWER[1:])) as server:
            result = Loop.run_sync("Is it?", model(base_url=server.url))
        assert result.output == "Yes, it is."

    def test_an_overload_within_a_stream_is_retried(self):
        with ScriptedServer(sse(ANSWER[0], PING, OVERLOADED), sse(*ANSWER)) as server:
            result = Loop.run_sync("Is it?", model(base_url=server.url), **FAST)
            assert len(server.requests) == 2
        assert result.output == "Yes, it is."

    @pytest.mark.parametrize("length", range(1, len(CALL) - 1))
    def test_a_call_of_a_stream_that_is_cut_off_never_runs(self, length):
        ran = []

        @tool
        def add(a: int) -> None:
            """Add."""
            ran.append(a)

        with ScriptedServer(sse(*CALL[:length])) as server:
            opened = model(base_url=server.url)
            result = Loop.run_sync("Add.", opened, tools=[add], max_retries=1, **FAST)
            assert len(server.requests) == 2
        assert isinstance(result, Err)
        assert result.reason.error_type == "ConnectionError"
        assert not ran

    def test_a_stream_without_events_is_a_broken_one(self):
        with ScriptedServer((200, {"Content-Type": "text/event-stream"}, "")) as server:
            result = Loop.run_sync("Is it?", model(base_url=server.url), max_retries=0)
        assert "no finish reason came" in result.reason.message
