"""OpenAI's chat completions: what is sent to its own endpoint, to xAI's, and to other servers."""

import copy
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import chat
from openai.types.chat import chat_completion_content_part_image_param as image_param
from openai.types.chat import chat_completion_content_part_input_audio_param as audio_param
from openai.types.chat import chat_completion_content_part_param as part_param
from openai.types.chat import chat_completion_message_custom_tool_call_param as custom_param
from openai.types.chat import chat_completion_message_function_tool_call_param as function_param
from tests.completion import COMPLETION
from tests.providers.back_openai import check_body, messages_of
from tests.providers.histories import histories

from treadle import Loop, OptionError
from treadle.messages import Chunk
from treadle.messages.decode import to_chunk, to_response
from treadle.messages.parts import placeholder
from treadle.messages.stream import StreamAccumulator
from treadle.providers import backend
from treadle.providers.openai_messages import (
    CALL_KEYS,
    MESSAGE_KEYS,
    PART_HINT,
    PART_KEYS,
    known_messages,
)

HERE = "http://127.0.0.1:1/v1"
USER = [{"role": "user", "content": "Hi"}]
CALL = {"id": "c", "type": "function", "function": {"name": "n", "arguments": "{}"}}
REASONING_KEYS = {
    "reasoning_content": "hm",
    "reasoning_details": [
        {"type": "reasoning.text", "text": "hm", "format": "unknown", "index": 0}
    ],
    "extra_content": {"google": {"thought_signature": "eA=="}},
}
REASONING = st.just(REASONING_KEYS)


def own(name="openai:gpt-5"):
    return backend(name, api_key="k")


class TestKeys:
    """The tables are those of the SDK's types."""

    def test_the_keys_of_messages(self):
        assert {
            role: frozenset(
                typing.get_type_hints(getattr(chat, f"ChatCompletion{role.title()}MessageParam"))
            )
            for role in MESSAGE_KEYS
        } == MESSAGE_KEYS

    def test_the_keys_of_calls(self):
        kinds = {"function": function_param.Function, "custom": custom_param.Custom}
        assert {kind: frozenset(typing.get_type_hints(kinds[kind])) for kind in kinds} == CALL_KEYS

    def test_the_keys_of_parts(self):
        inner = {
            "image_url": image_param.ImageURL,
            "input_audio": audio_param.InputAudio,
            "file": part_param.FileFile,
        }
        for kind, keys in PART_KEYS.items():
            if keys is not None:
                assert keys == typing.get_type_hints(inner[kind]).keys()
        for param in (
            chat.ChatCompletionContentPartTextParam,
            chat.ChatCompletionContentPartImageParam,
            chat.ChatCompletionContentPartInputAudioParam,
            part_param.File,
        ):
            (kind,) = typing.get_args(typing.get_type_hints(param)["type"])
            assert typing.get_type_hints(param).keys() == {"type", kind, PART_HINT}


@pytest.mark.parametrize("name", ["openai:gpt-5", "grok:grok-4"])
@given(history=histories(reasoning=REASONING))
def test_the_own_endpoint_receives_the_keys_that_it_knows(name, history):
    """Unknown keys of messages and of parts stay in the history; parts of results are sent by the loop as text."""
    before = copy.deepcopy(history)
    body = own(name)._body(history, {})
    check_body(body)
    assert messages_of(body) == list(map(known, history))
    assert history == before


def known(message):
    keys = {"role", "content", "tool_calls", "tool_call_id"}
    found = {key: message[key] for key in message if key in keys}
    if isinstance(found["content"], list):
        found["content"] = [_known_part(part, message["role"]) for part in found["content"]]
    return found


def _known_part(part, role):
    if role == "tool" and part["type"] != "text":
        return {"type": "text", "text": placeholder(part)}
    return {key: part[key] for key in part if key != "cache_control"}


@given(histories(reasoning=REASONING))
def test_any_other_server_receives_messages_as_they_are(history):
    """It may need its own keys, such as OpenRouter's or DeepSeek's."""
    body = backend("openai:gpt-5", base_url=HERE)._body(history, {})
    assert messages_of(body) == history


class TestOwnEndpoint:
    def test_long_ids_of_calls_are_shortened_in_the_call_and_in_its_result(self):
        long = {**CALL, "id": "c" * 41}
        result = {"role": "tool", "tool_call_id": long["id"], "content": "r"}
        said, answered = known_messages([{"role": "assistant", "tool_calls": [long]}, result])
        assert said["tool_calls"][0]["id"] == answered["tool_call_id"]
        assert len(answered["tool_call_id"]) == 40

    def test_a_custom_call_keeps_its_input(self):
        custom = {"id": "c", "type": "custom", "custom": {"name": "n", "input": "i"}}
        (sent,) = known_messages([{"role": "assistant", "tool_calls": [custom]}])
        assert sent["tool_calls"] == [custom]

    def test_a_sound_of_the_model_is_sent_back_by_its_id(self):
        audio = {"id": "audio_1", "data": "UklG", "transcript": "Hi", "expires_at": 1}
        said = {"role": "assistant", "content": None, "audio": audio}
        assert known_messages([said]) == [{**said, "audio": {"id": "audio_1"}}]

    def test_a_refusal_is_sent_back(self):
        said = {"role": "assistant", "content": None, "refusal": "No."}
        parts = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
        assert known_messages([said, parts]) == [said, parts]

    def test_a_part_that_the_role_cannot_have_becomes_text(self):
        image = {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}
        (sent,) = known_messages([{"role": "assistant", "content": [image]}])
        assert sent["content"] == [{"type": "text", "text": placeholder(image)}]


class TestOptions:
    def test_options_are_the_parameters_of_the_sdk(self):
        opts = {
            "max_completion_tokens": 5,
            "seed": 1,
            "web_search_options": {},
            "extra_body": {"search_parameters": {"mode": "auto"}},
            "extra_headers": {"a": "b"},
            "timeout": 5,
        }
        for name in ("openai:m", "grok:m"):
            assert backend(name, base_url=HERE, **opts)._body(USER, opts).items() >= opts.items()

    @pytest.mark.parametrize(
        ("option", "hint"),
        [
            ("max_token", "did you mean 'max_tokens'?"),
            ("top_k", "extra_body={...}"),
            ("messages", "known are"),
        ],
    )
    def test_an_unknown_option_is_an_error_that_names_it(self, option, hint):
        with pytest.raises(
            OptionError, match=f"chat completions have no option '{option}'"
        ) as caught:
            backend("openai:m", base_url=HERE, **{option: 1})
        assert hint in str(caught.value)
        with pytest.raises(OptionError, match="xAI's chat completions have no option"):
            backend("grok:m", base_url=HERE)._body(USER, {option: 1})


class TestResponse:
    def test_what_else_a_message_has_is_kept(self):
        more = {
            "audio": {"id": "a", "data": "UklG", "transcript": "Hi", "expires_at": 1},
            "reasoning_content": "hm",
            "annotations": [{"type": "url_citation"}],
        }
        message = {"role": "assistant", "content": None, "refusal": "No.", **more}
        choice = {**COMPLETION["choices"][0], "message": message}
        raw = chat.ChatCompletion.construct(**{**COMPLETION, "choices": [choice]})
        response = to_response(raw)
        assert response.refusal == "No."
        assert {key: response.extra[key] for key in more} == more

    def test_log_probabilities_are_in_the_response_and_not_in_the_history(self):
        tokens = [
            {"token": token, "logprob": -0.1, "bytes": [], "top_logprobs": []} for token in "ab"
        ]

        def whole(messages):
            choice = {**COMPLETION["choices"][0], "logprobs": {"content": tokens, "refusal": None}}
            return {**COMPLETION, "choices": [choice]}

        def pieces(messages):
            for token in tokens:
                delta = {"content": token["token"]}
                yield {"choices": [{"delta": delta, "logprobs": {"content": [token]}}]}
            yield {"choices": [{"delta": {}, "finish_reason": "stop", "logprobs": None}]}

        for model in (whole, pieces):
            result = Loop.run_sync("Hi", model)
            assert result.unwrap().extra["logprobs"] == tokens
            assert result.messages[-1].keys() == {"role", "content"}

    def test_pieces_of_reasoning_become_one_block(self):
        """As OpenRouter and xAI send it."""
        deltas = [
            {
                "reasoning_content": text,
                "reasoning_details": [
                    {
                        "type": "reasoning.text",
                        "text": text,
                        "index": 0,
                        "format": "xai-responses-v1",
                    }
                ],
            }
            for text in ("h", "m")
        ]
        stream = StreamAccumulator()
        for delta in deltas:
            chunk = to_chunk(
                chat.ChatCompletionChunk.construct(
                    id="c", choices=[{"index": 0, "delta": delta, "finish_reason": None}]
                )
            )
            assert chunk.reasoning == delta["reasoning_content"]
            stream.add(chunk)
        stream.add(Chunk(finish_reason="stop"))
        extra = stream.response().extra
        assert extra["reasoning_content"] == "hm"
        assert [one["text"] for one in extra["reasoning_details"]] == ["hm"]
