"""`AnthropicModel`: what is sent for a history and its options, and what a response becomes."""

import copy
import json

import anthropic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.providers.back_anthropic import check_body, messages_of
from tests.providers.histories import histories, texts

from treadle import OptionError
from treadle.messages import StreamAccumulator, is_list, placeholder
from treadle.model import is_retryable
from treadle.providers import backend
from treadle.providers.anthropic.stream import StreamReader

USER = {"role": "user", "content": "Hi"}
TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}},
}
FORMAT = "anthropic-messages"


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
        later = {"role": "system", "content": "Stop soon."}
        made = body(first, other, USER, later)
        assert [block["text"] for block in made["system"]] == ["Be brief.", "In verse."]
        (turn,) = made["messages"]
        assert turn["content"][1]["text"] == "<system>\nStop soon.\n</system>"

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

    def test_images_and_documents_in_results_are_blocks(self):
        said = {"role": "assistant", "content": None, "tool_calls": [call()]}
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}
        made = body(USER, said, {"role": "tool", "tool_call_id": "c1", "content": [image]})
        (block,) = made["messages"][-1]["content"][0]["content"]
        assert block["source"] == {"type": "base64", "media_type": "image/png", "data": "aaaa"}
        assert model().accepts_tool_result_parts


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

    def test_without_tools_the_calls_of_the_history_have_declared_ones_that_are_not_offered(self):
        said = {"role": "assistant", "content": None, "tool_calls": [call()]}
        made = body(USER, said, {"role": "tool", "tool_call_id": "c1", "content": "3"}, tools=None)
        assert made["tools"] == [{"name": "add", "input_schema": {"type": "object"}}]
        assert made["tool_choice"] == {"type": "none"}

    def test_a_schema_for_the_output_is_closed(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        sent = body(response_format=form)["output_config"]["format"]
        assert sent["schema"]["additionalProperties"] is False

    def test_a_form_without_a_schema_is_an_error(self):
        with pytest.raises(OptionError, match="takes a JSON schema"):
            body(response_format={"type": "json_object"})

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
        "usage": {"input_tokens": 10, "output_tokens": 5, **facts},
    }  # fmt: skip
    return model()._response(Message.model_validate(raw))


def streamed(*content, stop_reason="end_turn", **usage):
    """The response to the events that the API sends for these blocks."""
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
    reader, accumulator = StreamReader(), StreamAccumulator()
    read = TypeAdapter(RawMessageStreamEvent).validate_python
    for event in events:
        for chunk in reader.read(read(event)):
            accumulator.add(chunk)
    return accumulator.response()


def pieces(block):
    def halves(text):
        return text[: len(text) // 2], text[len(text) // 2 :]

    kind = block["type"]
    if kind == "text":
        return {**block, "text": ""}, [
            {"type": "text_delta", "text": one} for one in halves(block["text"])
        ]
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


@pytest.fixture(params=[whole, streamed], ids=["whole", "streamed"])
def respond(request):
    return request.param


THOUGHT = {"type": "thinking", "thinking": "Hmm, add.", "signature": "s1"}
SECRET = {"type": "redacted_thinking", "data": "xyz"}
USE = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}


class TestResponses:
    def test_text_and_calls(self, respond):
        made = respond({"type": "text", "text": "I add."}, USE, stop_reason="tool_use")
        (one,) = made.tool_calls
        assert (made.content, made.finish_reason) == ("I add.", "tool_calls")
        assert (one.id, one.name, json.loads(one.arguments)) == ("t1", "add", {"a": 1})

    def test_usage_includes_what_the_cache_had_and_what_went_into_it(self, respond):
        usage = respond(cache_read_input_tokens=100, cache_creation_input_tokens=20).usage
        assert (usage.input_tokens, usage.output_tokens) == (130, 5)
        assert (usage.cached_tokens, usage.cache_write_tokens) == (100, 20)
        assert usage.is_measured

    @pytest.mark.parametrize(
        ("theirs", "ours"),
        [
            ("end_turn", "stop"),
            ("max_tokens", "length"),
            ("pause_turn", "pause_turn"),
            ("stop_sequence", "stop"),
        ],
    )
    def test_the_finish_reason(self, respond, theirs, ours):
        assert respond({"type": "text", "text": "x"}, stop_reason=theirs).finish_reason == ours

    def test_a_refusal(self, respond):
        made = respond(stop_reason="refusal")
        assert (made.refusal, made.finish_reason) == ("The model refused to answer.", "refusal")

    def test_the_blocks_of_a_response_are_sent_back_as_they_came_and_in_order(self, respond):
        blocks = (THOUGHT, SEARCH, {"type": "text", "text": "So."}, SECRET, USE)
        made = respond(*blocks, stop_reason="tool_use")
        said = {"role": "assistant", "content": made.content, **made.extra}
        said["tool_calls"] = [call("t1", "add", made.tool_calls[0].arguments)]
        sent = body(USER, said, {"role": "tool", "tool_call_id": "t1", "content": "2"})
        back = sent["messages"][1]["content"]
        assert [
            {key: one[key] for key in block} for one, block in zip(back, blocks, strict=True)
        ] == [*blocks]


def failure(status, kind):
    import httpx2 as httpx

    request = httpx.Request("POST", "http://127.0.0.1")
    payload = {"type": "error", "error": {"type": kind, "message": "m"}}
    response = httpx.Response(status, request=request, json=payload)
    return model()._new_client()._make_status_error("m", body=payload, response=response)


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (429, "rate_limit_error", True),
        (529, "overloaded_error", True),
        (200, "overloaded_error", True),  # within a stream
        (400, "invalid_request_error", False),
        (401, "authentication_error", False),
    ],
)
def test_which_errors_are_retried(status, kind, expected):
    assert is_retryable(failure(status, kind)) is expected


def test_a_token_is_sent_as_one(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token")
    client = backend("anthropic:claude-sonnet-5-5")._new_client()
    assert (client.auth_token, client.api_key) == ("token", None)


def test_headers_of_the_environment_stay_away_from_other_servers(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Team: ours")
    own = model()._new_client()
    other = model(base_url="http://127.0.0.1:1")._new_client()
    assert own.default_headers["X-Team"] == "ours"
    assert not isinstance(other.default_headers.get("X-Team"), str)
    assert isinstance(own, anthropic.AsyncAnthropic)
