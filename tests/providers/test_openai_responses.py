"""The translation to OpenAI's Responses API and back."""

import copy
import itertools
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response as APIResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter
from tests.providers.back_openai_responses import check_body, messages_of
from tests.providers.histories import PAGES, PIXEL, SOUND, histories, texts

from treadle import OptionError
from treadle.errors import ProviderError
from treadle.messages import Chunk
from treadle.messages.parts import placeholder
from treadle.messages.stream import StreamAccumulator
from treadle.model import is_retryable
from treadle.providers import backend, translation
from treadle.providers.openai_responses.provider_state import FORMAT
from treadle.providers.openai_responses.response import response_of
from treadle.providers.openai_responses.stream import StreamReader

HERE = "http://127.0.0.1:1/v1"
USER = [{"role": "user", "content": "Hi"}]
EVENTS = TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def model():
    return backend("openai-responses:gpt-5", base_url=HERE)


def body_of(adapter, messages, **opts):
    body = adapter._body(messages, opts)
    check_body(body)
    return body


def items_of(adapter, *messages, **opts):
    return body_of(adapter, list(messages), **opts)["input"]


# Whole responses, and the same in a stream


def api_response(output, status="completed", **more):
    facts = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5-2025"}
    own = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return APIResponse.construct(**facts, **own, status=status, output=output, **more)


def message_of(response):
    """The assistant message for a response, as the loop makes it."""
    message = {"role": "assistant", "content": response.content, **response.extra}
    calls = [
        {
            "id": one.id,
            "type": "function",
            "function": {"name": one.name, "arguments": one.arguments},
            **one.extra,
        }
        for one in response.tool_calls
    ]
    return {**message, **({"tool_calls": calls} if calls else {})}


def pieces(text):
    half = len(text) // 2
    return filter(None, (text[:half], text[half:]))


def events_of(output, response, last="response.completed"):
    """The events of a stream with this output."""
    made = [{"type": "response.created", "response": api_response([], "in_progress").to_dict()}]
    for place, item in enumerate(output):
        at = {"output_index": place, "item_id": item.get("id", "x")}
        empty = {key: [] if isinstance(item[key], list) else item[key] for key in item}
        if "arguments" in empty:
            empty["arguments"] = ""
        made.append({"type": "response.output_item.added", **at, "item": empty})
        made += itertools.chain.from_iterable(_deltas(item, at))
        made.append({"type": "response.output_item.done", **at, "item": item})
    made.append({"type": last, "response": response.to_dict()})
    return [
        EVENTS.validate_python({"sequence_number": number, **event})
        for number, event in enumerate(made)
    ]


_DELTAS = {
    ("message", "output_text"): ("response.output_text.delta", "text", {"logprobs": []}),
    ("message", "refusal"): ("response.refusal.delta", "refusal", {}),
    ("reasoning", "summary_text"): ("response.reasoning_summary_text.delta", "text", {}),
    ("reasoning", "reasoning_text"): ("response.reasoning_text.delta", "text", {}),
}


def _deltas(item, at):
    for number, part in enumerate([*item.get("summary", ()), *item.get("content", ())]):
        kind, key, more = _DELTAS[item["type"], part["type"]]
        before = len(item["summary"]) if part["type"] == "reasoning_text" else 0
        places = {"content_index": number - before, "summary_index": number}
        yield [{"type": kind, "delta": one, **at, **places, **more} for one in pieces(part[key])]
    if item["type"] == "function_call":
        kind = "response.function_call_arguments.delta"
        yield [{"type": kind, "delta": one, **at} for one in pieces(item["arguments"])]


def streamed(events):
    reader, stream = StreamReader(), StreamAccumulator()
    stream.add(Chunk(ends_with_reason=True))
    for event in events:
        for chunk in reader.read(event):
            stream.add(chunk)
    return stream.response()


# Every output that the API may return

annotations = st.just(
    {"type": "url_citation", "url": "https://a.b", "title": "A", "start_index": 0, "end_index": 1}
)
text_contents = st.fixed_dictionaries(
    {
        "type": st.just("output_text"),
        "text": texts,
        "annotations": st.lists(annotations, max_size=1),
    }
)
refusals = st.fixed_dictionaries({"type": st.just("refusal"), "refusal": texts})
statuses = st.just("completed")
reasoning_items = st.fixed_dictionaries(
    {
        "type": st.just("reasoning"),
        "summary": st.lists(
            texts.map(lambda text: {"type": "summary_text", "text": text}), max_size=3
        ),
        "encrypted_content": texts,
    },
    optional={
        "status": statuses,
        "content": st.lists(
            texts.map(lambda text: {"type": "reasoning_text", "text": text}), min_size=1, max_size=2
        ),
    },
)
message_items = st.fixed_dictionaries(
    {
        "type": st.just("message"),
        "role": st.just("assistant"),
        "status": statuses,
        "content": st.lists(text_contents, min_size=1, max_size=2),
    },
    optional={"phase": st.sampled_from(["commentary", "final_answer"])},
)
call_items = st.fixed_dictionaries(
    {
        "type": st.just("function_call"),
        "name": st.just("look"),
        "arguments": st.sampled_from(["{}", '{"a": 1}', '{"a": ']),
        "status": statuses,
    },
    optional={"namespace": st.just("n")},
)
search_items = st.just(
    {
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "q", "queries": ["q"]},
    }
)


@st.composite
def outputs(draw):
    """Outputs in any order, with unique ids."""
    kinds = st.one_of(reasoning_items, message_items, call_items, search_items)
    found = []
    for number, item in enumerate(draw(st.lists(kinds, min_size=1, max_size=6))):
        ids = {"id": f"{item['type']}_{number}"}
        if item["type"] == "function_call":
            ids["call_id"] = f"call_{number}"
        found.append({**item, **ids})
    return found


@given(outputs())
def test_an_output_that_is_stored_goes_back_exactly_as_it_came(output):
    model = backend("openai-responses:gpt-5", base_url=HERE)
    message = message_of(response_of(api_response(output)))
    assert items_of(model, message, store=True) == output


@given(outputs())
def test_an_output_that_is_not_stored_goes_back_in_order_with_its_reasoning(output):
    """Without ids of messages and calls, and without citations: the API looks for items by their ids."""
    model = backend("openai-responses:gpt-5", base_url=HERE)
    message = message_of(response_of(api_response(output)))
    assert items_of(model, message) == list(map(without_id, output))


def without_id(item):
    match item["type"]:
        case "message":
            text = "".join(part["text"] for part in item["content"])
            phase = {"phase": item["phase"]} if "phase" in item else {}
            return {"type": "message", "role": "assistant", "content": text, **phase}
        case "function_call":
            return {key: item[key] for key in item if key != "id"}
    return item


@given(outputs())
def test_a_stream_makes_the_same_response(output):
    raw = api_response(output)
    assert streamed(events_of(output, raw)) == response_of(raw)


@given(outputs())
def test_items_that_come_without_pieces_are_not_lost(output):
    raw = api_response(output)
    done = [event for event in events_of(output, raw) if event.type.endswith(("done", "completed"))]
    assert streamed(done) == response_of(raw)
    assert streamed(done[-1:]) == response_of(raw)


def test_a_refusal_is_the_refusal_of_the_response(model):
    part = {"type": "refusal", "refusal": "I will not."}
    output = [
        {
            "type": "message",
            "role": "assistant",
            "id": "m",
            "status": "completed",
            "content": [part],
        }
    ]
    raw = api_response(output)
    for response in (response_of(raw), streamed(events_of(output, raw))):
        assert (response.refusal, response.content) == ("I will not.", None)
        message = message_of(response)
        assert items_of(model, message)[0]["content"] == "I will not."
        assert items_of(model, message, store=True) == output


# Histories of any provider


def other_reasoning():
    details = [{"type": "reasoning.text", "text": "t", "format": "anthropic-claude-v1", "index": 0}]
    return st.just({"reasoning_details": details, "extra_content": {"google": {"x": 1}}})


@st.composite
def own_reasoning(draw):
    """Reasoning in the form that this API's has in a history."""
    same = {"format": FORMAT, "id": f"rs_{draw(st.integers(0, 10**6))}", "index": 0}
    summary = {"type": "reasoning.summary", "summary": draw(texts), **same}
    return {
        "reasoning_details": [summary, {"type": "reasoning.encrypted", "data": draw(texts), **same}]
    }


def sent_part(part):
    if part["type"] == "input_audio":
        return {"type": "text", "text": placeholder(part)}
    return {key: part[key] for key in part if key != "cache_control"}


def sent(message):
    """What is sent of a message: not unknown keys, hints of others' caches, and reasoning of others."""
    known = {"role", "content", "tool_call_id", "tool_calls"}
    found = {key: message[key] for key in message if key in known}
    if isinstance(found["content"], list):
        found["content"] = list(map(sent_part, found["content"]))
    own = [one for one in message.get("reasoning_details", ()) if one["format"] == FORMAT]
    return {**found, "reasoning_details": own} if own else found


@given(histories(reasoning=st.one_of(own_reasoning(), other_reasoning())))
def test_a_history_is_sent_and_read_back_unchanged(history):
    model = backend("openai-responses:gpt-5", base_url=HERE)
    before = copy.deepcopy(history)
    body = body_of(model, history)
    assert messages_of(body) == list(map(sent, history))
    assert history == before


class TestRequest:
    def test_parts_have_the_forms_of_the_api(self, model):
        url = f"data:image/png;base64,{PIXEL}"
        data = f"data:application/pdf;base64,{PAGES}"
        content = [
            {"type": "text", "text": "See", "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}},
            {"type": "file", "file": {"file_data": data, "filename": "a.pdf"}},
            {"type": "file", "file": {"file_id": "file-1"}},
        ]
        expected = [
            {"type": "input_text", "text": "See", "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "input_image", "image_url": url, "detail": "low"},
            {"type": "input_image", "image_url": "https://a.b/c.png", "detail": "auto"},
            {"type": "input_file", "file_data": data, "filename": "a.pdf"},
            {"type": "input_file", "file_id": "file-1"},
        ]
        result = {"role": "tool", "tool_call_id": "a", "content": content}
        question, output = items_of(model, {"role": "user", "content": content}, result)
        assert question["content"] == output["output"] == expected
        assert model.accepts_tool_result_parts

    def test_a_part_that_the_api_does_not_take_is_a_text_and_logged_once(self, model, caplog):
        translation._log_once.cache_clear()
        sound = {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}}
        with caplog.at_level(logging.WARNING, "treadle.providers"):
            (item,) = items_of(model, {"role": "user", "content": [sound, sound]})
        assert item["content"] == [{"type": "input_text", "text": placeholder(sound)}] * 2
        (logged,) = caplog.messages
        assert logged.startswith("OpenAI's Responses API takes no content of this kind")

    def test_a_text_that_was_changed_in_the_history_is_sent_as_it_is_now(self, model):
        parts = [{"type": "output_text", "text": one, "annotations": []} for one in "ab"]
        output = [
            {
                "type": "message",
                "role": "assistant",
                "id": one["text"],
                "status": "completed",
                "content": [one],
            }
            for one in parts
        ]
        message = message_of(response_of(api_response(output)))
        assert message["content"] == "a\n\nb"
        (item,) = items_of(model, {**message, "content": "redacted"})
        assert item["content"] == "redacted"

    def test_calls_and_reasoning_that_were_taken_out_of_the_history_are_not_sent(self, model):
        output = [
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "id": "f", "call_id": "c", "name": "n", "arguments": "{}"},
            {"type": "function_call", "id": "g", "call_id": "d", "name": "n", "arguments": "{}"},
        ]
        message = message_of(response_of(api_response(output)))
        message["tool_calls"].pop()
        del message["reasoning_details"]
        (item,) = items_of(model, message)
        assert item["call_id"] == "c"

    @pytest.mark.parametrize(("store", "count"), [(False, 0), (True, 1)])
    def test_reasoning_that_the_api_cannot_read_is_sent_only_if_it_is_stored(
        self, store, count, model
    ):
        output = [
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}]}
        ]
        message = {**message_of(response_of(api_response(output))), "content": "Yes."}
        *reasoning, _ = items_of(model, message, store=store)
        assert reasoning == output[:count]

    def test_long_ids_of_calls_are_shortened_in_the_call_and_in_its_result(self, model):
        ids = ["c" * 100, "c" * 101]
        calls = [
            {"id": one, "type": "function", "function": {"name": "n", "arguments": "{}"}}
            for one in ids
        ]
        results = [{"role": "tool", "tool_call_id": one, "content": "r"} for one in ids]
        items = items_of(
            model, {"role": "assistant", "content": None, "tool_calls": calls}, *results
        )
        first, second, *outputs = [item["call_id"] for item in items]
        assert [first, second] == outputs
        assert first != second
        assert len(first) == len(second) == 64

    @pytest.mark.parametrize(
        "kept",
        [
            {"extra_content": {"openai": {"items": [{"type": "reasoning", "id": ["r"]}]}}},
            {"extra_content": {"openai": {"items": [{"type": "message", "content": [5]}]}}},
            {"reasoning_details": [{"format": FORMAT, "id": ["r"], "text": "hm"}]},
        ],
    )
    def test_what_no_response_can_have_had_is_not_sent(self, kept, model):
        """A history may come from anywhere."""
        said = {"role": "assistant", "content": "Yes.", **kept}
        assert items_of(model, said) == items_of(model, {"role": "assistant", "content": "Yes."})

    def test_an_empty_assistant_message_is_left_out(self, model):
        assert items_of(model, {"role": "assistant", "content": ""}, *USER) == USER


TOOL = {
    "type": "function",
    "function": {"name": "n", "description": "d", "parameters": {"type": "object"}},
}
SCHEMA = {"name": "out", "schema": {"type": "object"}, "strict": True}


class TestOptions:
    @pytest.mark.parametrize(
        ("opts", "expected"),
        [
            ({}, {"store": False, "include": ["reasoning.encrypted_content"]}),
            ({"store": True}, {"store": True}),
            ({"max_tokens": 5}, {"max_output_tokens": 5}),
            ({"max_completion_tokens": 5}, {"max_output_tokens": 5}),
            ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
            (
                {"reasoning_effort": "low", "reasoning": {"summary": "auto"}},
                {"reasoning": {"effort": "low", "summary": "auto"}},
            ),
            (
                {
                    "response_format": {"type": "json_schema", "json_schema": SCHEMA},
                    "verbosity": "low",
                },
                {"text": {"format": {"type": "json_schema", **SCHEMA}, "verbosity": "low"}},
            ),
            (
                {"response_format": {"type": "json_object"}},
                {"text": {"format": {"type": "json_object"}}},
            ),
            (
                {"tools": [TOOL, {"type": "web_search"}]},
                {
                    "tools": [
                        {"type": "function", "strict": False, **TOOL["function"]},
                        {"type": "web_search"},
                    ]
                },
            ),
            ({"tool_choice": "required"}, {"tool_choice": "required"}),
            (
                {"tool_choice": {"type": "function", "function": {"name": "n"}}},
                {"tool_choice": {"type": "function", "name": "n"}},
            ),
            (
                {
                    "tool_choice": {
                        "type": "allowed_tools",
                        "allowed_tools": {
                            "mode": "auto",
                            "tools": [{"type": "function", "function": {"name": "n"}}],
                        },
                    }
                },
                {
                    "tool_choice": {
                        "type": "allowed_tools",
                        "mode": "auto",
                        "tools": [{"type": "function", "name": "n"}],
                    }
                },
            ),
            (
                {"logprobs": True, "include": ["code_interpreter_call.outputs"]},
                {
                    "include": [
                        "message.output_text.logprobs",
                        "code_interpreter_call.outputs",
                        "reasoning.encrypted_content",
                    ]
                },
            ),
            (
                {"parallel_tool_calls": False, "user": "u"},
                {"parallel_tool_calls": False, "user": "u"},
            ),
            ({"model": "o3"}, {"model": "o3"}),
            ({"previous_response_id": "resp_1"}, {"previous_response_id": "resp_1"}),
        ],
    )
    def test_options_have_the_names_of_the_api(self, opts, expected, model):
        body = body_of(model, USER, **opts)
        assert {key: body.get(key) for key in expected} == expected

    def test_options_of_the_sdk_are_passed_on(self, model):
        opts = {"timeout": 5, "extra_headers": {"a": "b"}, "extra_body": {"c": 1}}
        body = model._body(USER, opts)
        assert {key: body[key] for key in opts} == opts

    @pytest.mark.parametrize(
        "name", ["gpt-4.1", "gpt-4o-mini", "chatgpt-4o-latest", "gpt-5-chat-latest"]
    )
    def test_a_model_without_reasoning_is_not_asked_for_it(self, name):
        """It refuses the request."""
        model = backend(f"openai-responses:{name}", base_url=HERE)
        assert "include" not in body_of(model, USER)

    @pytest.mark.parametrize(
        "option", ["presence_penalty", "stop", "seed", "n", "input", "max_token"]
    )
    def test_an_option_that_the_api_does_not_have_is_an_error(self, option, model):
        expected = f"Responses API has no option '{option}'"
        with pytest.raises(OptionError, match=expected):
            backend("openai-responses:gpt-5", base_url=HERE, **{option: 1})
        with pytest.raises(OptionError, match=expected):
            model._body(USER, {option: 1})

    def test_a_similar_option_is_a_hint(self):
        with pytest.raises(OptionError, match="did you mean 'max_tokens'"):
            backend("openai-responses:gpt-5", base_url=HERE, max_token=1)

    @pytest.mark.parametrize("option", ["reasoning", "text"])
    def test_an_option_that_is_no_dict_is_an_error(self, option, model):
        with pytest.raises(OptionError, match=f"{option}: expected a dict, got int"):
            body_of(model, [], **{option: 5})

    def test_a_response_format_that_is_no_dict_is_an_error(self, model):
        with pytest.raises(OptionError, match="response_format: expected a dict, got str"):
            model._body(USER, {"response_format": "json"})


class TestResponse:
    def test_log_probabilities_are_in_the_response_and_not_sent_back(self, model):
        tokens = [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}]
        part = {"type": "output_text", "text": "a", "annotations": []}
        message = {"type": "message", "role": "assistant", "id": "m", "status": "completed"}
        output = [{**message, "content": [{**part, "logprobs": tokens}]}]
        raw = api_response(output)
        for response in (response_of(raw), streamed(events_of(output, raw))):
            assert response.extra["logprobs"] == tokens
            sent = items_of(model, message_of(response), store=True)
            assert sent == [{**message, "content": [part]}]

    @pytest.mark.parametrize(
        ("status", "details", "calls", "expected"),
        [
            ("completed", None, 0, ("completed", "complete")),
            ("completed", None, 1, ("completed", "complete")),
            ("incomplete", {"reason": "max_output_tokens"}, 1, ("max_output_tokens", "cut")),
            ("incomplete", {"reason": "content_filter"}, 0, ("content_filter", "filtered")),
            ("incomplete", {"reason": "max_messages"}, 0, ("incomplete", "cut")),
            ("incomplete", None, 0, ("incomplete", "cut")),
        ],
    )
    def test_how_a_response_ended(self, status, details, calls, expected):
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": "n", "arguments": "{}"}
        raw = api_response([item] * calls, status, incomplete_details=details)
        last = f"response.{status}"
        for made in (response_of(raw), streamed(events_of([item] * calls, raw, last))):
            assert (made.finish_reason, made.ending) == expected

    def test_the_usage_has_all_details(self):
        usage = {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 15},
            "total_tokens": 120,
        }
        raw = api_response([], usage=usage)
        for found in (response_of(raw).usage, streamed(events_of([], raw)).usage):
            assert (found.input_tokens, found.output_tokens, found.total_tokens) == (100, 20, 120)
            assert (found.cached_tokens, found.cache_write_tokens) == (60, 30)
            assert found.reasoning_tokens == 15
        assert response_of(api_response([])).usage is None

    def test_the_model_and_the_id_are_those_of_the_response(self):
        raw = api_response([])
        for found in (response_of(raw), streamed(events_of([], raw))):
            assert (found.model, found.id) == ("gpt-5-2025", "resp_1")

    def test_a_response_that_failed_is_the_error_of_the_provider(self, model):
        error = {"code": "server_error", "message": "it broke"}
        raw = api_response([], "failed", error=error)
        with pytest.raises(ProviderError, match="it broke") as caught:
            model._response(raw)
        assert is_retryable(caught.value)


class TestStream:
    def test_text_reasoning_and_arguments_come_in_pieces(self):
        output = [
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hmhm"}]},
            {
                "type": "message",
                "role": "assistant",
                "id": "m",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Well.", "annotations": []}],
            },
            {
                "type": "function_call",
                "id": "f",
                "call_id": "c",
                "name": "n",
                "arguments": '{"a": 1}',
            },
        ]
        reader = StreamReader()
        chunks = [
            chunk
            for event in events_of(output, api_response(output))
            for chunk in reader.read(event)
        ]
        assert [chunk.reasoning for chunk in chunks if chunk.reasoning] == ["hm", "hm"]
        assert [chunk.text for chunk in chunks if chunk.text] == ["We", "ll."]
        first, *rest = [piece for chunk in chunks for piece in chunk.tool_calls]
        assert (first.id, first.name, first.arguments) == ("c", "n", "")
        assert [piece.arguments for piece in rest] == ['{"a"', ": 1}"]

    def test_arguments_of_a_call_that_was_not_announced_are_not_those_of_another(self):
        calls = [
            {"type": "function_call", "id": f"f{n}", "call_id": n, "name": n, "arguments": f'"{n}"'}
            for n in "ab"
        ]
        events = events_of(calls, api_response(calls))
        announced = [one for one in events if one.type == "response.output_item.added"]
        events.remove(announced[1])
        assert [(one.name, one.arguments) for one in streamed(events).tool_calls] == [
            ("a", '"a"'),
            ("b", '"b"'),
        ]

    def test_a_stream_that_breaks_off_is_no_response(self):
        """A call may be incomplete, so nothing of it runs."""
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": "n", "arguments": "{}"}
        with pytest.raises(ConnectionError, match="the stream ended before the answer did"):
            streamed(events_of([item], api_response([item]))[:-1])

    @pytest.mark.parametrize(
        ("code", "is_temporary"),
        [("server_error", True), ("rate_limit_exceeded", True), ("invalid_prompt", False)],
    )
    def test_an_error_in_the_stream_is_the_error_of_the_provider(self, code, is_temporary):
        error = {"code": code, "message": "it broke"}
        failed = api_response([], "failed", error=error)
        for event in (
            {"type": "response.failed", "response": failed.to_dict()},
            {"type": "error", **error, "param": None},
        ):
            with pytest.raises(ProviderError, match="it broke") as caught:
                streamed([EVENTS.validate_python({"sequence_number": 0, **event})])
            assert is_retryable(caught.value) is is_temporary
