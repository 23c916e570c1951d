"""What each provider supports, as observed: each function returns the mark that docs/providers.md should have.

Requests are read as they are made for the provider's own endpoint, and responses as the SDK reads them. What
needs a stream, or the whole model, is observed with the wire server.
"""

import importlib
import json
from dataclasses import dataclass
from functools import cached_property

import anyio
import pytest
from anthropic.types import Message
from google.genai import types
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.responses import Response as APIResponse
from tests.providers.histories import PAGES, PIXEL, SOUND
from tests.wire.conftest import weather
from tests.wire.providers import PROVIDERS

from treadle import Loop, Ok, OptionError, ReasoningDelta, TextDelta, ToolCallDelta
from treadle.messages.decode import to_response
from treadle.messages.parts import as_text_results, has_parts, placeholder, text_part
from treadle.providers import backend, embedder, providers

IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
LINK = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}}
PDF = {
    "type": "file",
    "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAGES}"},
}
UNDOCUMENTED = {"grok": (AUDIO, PDF)}
"""Parts that are sent to a provider although the reference of its API does not have them."""

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"customer": {"type": "string"}},
    "required": ["customer"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "invoice", "schema": SCHEMA}}
HINT = {"type": "ephemeral"}
THOUGHT = "Which city? Paris."


def exchange(result):
    """A history with a call, and its result."""
    function = {"name": "weather", "arguments": '{"city": "Paris"}'}
    made = {"id": "c1", "type": "function", "function": function}
    return [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


# Requests to the own endpoints


def api_of(name):
    """The API of a provider: the name of the module that reads its bodies."""
    return PROVIDERS[name].back


def body_of(name, messages, *, base_url=None, **opts):
    """The checked body of a request; Gemini's is as it is on the wire, its configuration as the SDK has it."""
    model = backend(f"{name}:{MODELS.get(name, 'some')}", base_url=base_url, api_key="k")
    if not model.accepts_tool_result_parts and any(map(has_parts, messages)):
        messages = as_text_results(messages)
    body = model._body(messages, opts)
    if name == "gemini":
        types.GenerateContentConfig.model_validate(body["config"])
        checked = {"contents": [_on_the_wire(content) for content in body["contents"]]}
        body = {**checked, **body["config"]}
    else:
        checked = body
    back_of(name).check_body(checked)
    return body


MODELS = {"openai": "gpt-5", "openai-responses": "gpt-5", "gemini": "gemini-3.5-flash"}


def _on_the_wire(content):
    made = types.Content.model_validate(content)
    return json.loads(plain(made.model_dump(mode="json", by_alias=True, exclude_none=True)))


def plain(value):
    """A value as JSON, with base64 in its usual alphabet: Gemini's SDK has that for URLs."""
    text = json.dumps(value)
    for data in (PIXEL, SOUND, PAGES):
        text = text.replace(data.replace("+", "-").replace("/", "_"), data)
    return text


def back_of(name):
    return importlib.import_module(f"tests.providers.back_{api_of(name)}")


def at(body, path):
    """What is in a body at a path such as ``text.format``; None if there is nothing."""
    for key in path.split("."):
        body = body.get(key) if isinstance(body, dict) else None
    return body


def in_place(option, value, places):
    """An observer: whether an option has its place in the body, with a value; each API has its own."""

    def observe(name):
        path, expected = places[api_of(name)]
        try:
            body = body_of(
                name, [{"role": "user", "content": "Hi"}], tools=[TOOL], **{option: value}
            )
        except OptionError as error:
            if option not in str(error):
                raise
            return "no"
        assert at(body, path) == expected, body
        return "yes"

    return observe


def part_in_prompt(part):
    """An observer: whether a content part is sent in a prompt, or a text in place of it."""
    data = next(iter({PIXEL, SOUND, PAGES, LINK["image_url"]["url"]} & set(_texts(part))))

    def observe(name):
        text = plain(body_of(name, [{"role": "user", "content": [text_part("See:"), part]}]))
        if placeholder(part) in text:
            return "text"
        assert data in text
        return "sent" if part in UNDOCUMENTED.get(name, ()) else "yes"

    return observe


def _texts(value):
    if isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    else:
        yield from (value, str(value).rpartition(",")[2])


def image_in_result(name):
    body = body_of(name, exchange([text_part("The garden:"), IMAGE]))
    (role,) = [one["role"] for one in back_of(name).messages_of(body) if PIXEL in plain(one)]
    return {"tool": "yes", "user": "message"}[role]


def tools_disabled(name):
    """Both ways to disable tools: no choice, and none in the request."""
    history = exchange("sunny")
    for opts in ({"tools": [TOOL], "tool_choice": "none"}, {}):
        body = body_of(name, history, **opts)
        assert not body.get("tools") or "none" in json.dumps(_choice(body)).lower(), body
        sent = back_of(name).messages_of(body)
        assert [one["role"] for one in sent] == ["user", "assistant", "tool"]
    return "yes"


def _choice(body):
    return body.get("tool_choice") or body.get("tool_config")


def cache_hint(name):
    messages = [{"role": "user", "content": [{**text_part("Long."), "cache_control": HINT}]}]

    def is_sent(base_url=None):
        return "cache_control" in json.dumps(body_of_any(name, messages, base_url))

    if is_sent():
        return "yes"
    return "other servers" if name == "openai" and is_sent("http://127.0.0.1:1/v1") else "left out"


def body_of_any(name, messages, base_url):
    """A body that may have keys of another server."""
    model = backend(f"{name}:{MODELS.get(name, 'some')}", base_url=base_url, api_key="k")
    return model._body(messages, {})


def error_in_result(name):
    text = "Error: no luck"
    sent, same = (
        json.dumps(body_of(name, exchange(one))) for one in (text, text.removeprefix("Error: "))
    )
    assert text in sent
    return "no" if sent.replace("Error: ", "") == same else "yes"


# Responses


def response_of(name, **given):
    """The response to what a provider returns: see `_RAW`."""
    model = backend(f"{name}:some", api_key="k", stream=False)
    return to_response(model._response(_RAW[api_of(name)](name, **given)))


def _completion(name, refusal=None):
    # xAI counts the reasoning apart from the rest of the response, and has no count of what is written to a cache.
    is_openai = name == "openai"
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50 if is_openai else 10,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 30},
        "completion_tokens_details": {"reasoning_tokens": 40},
    }
    if is_openai:
        usage["prompt_tokens_details"]["cache_write_tokens"] = 20
    message = {"role": "assistant", "content": None if refusal else "Hi.", "refusal": refusal}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    own = {"id": "1", "object": "chat.completion", "created": 1, "model": "some"}
    return ChatCompletion.model_validate({**own, "choices": [choice], "usage": usage})


def _api_response(_name, refusal=None):
    usage = {
        "input_tokens": 100,
        "output_tokens": 50,
        "total_tokens": 150,
        "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 20},
        "output_tokens_details": {"reasoning_tokens": 40},
    }
    part = {"type": "output_text", "text": "Hi.", "annotations": []}
    content = [{"type": "refusal", "refusal": refusal} if refusal else part]
    said = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    own = {"id": "r", "object": "response", "created_at": 1, "model": "some", "tools": []}
    return APIResponse.construct(
        **own, status="completed", output=[{**said, "content": content}], usage=usage
    )


def _message(_name, refusal=None):
    usage = {
        "input_tokens": 50,
        "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 20,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 40},
    }
    own = {"id": "m", "type": "message", "role": "assistant", "model": "some"}
    content = [{"type": "text", "text": refusal or "Hi."}]
    reason = "refusal" if refusal else "end_turn"
    return Message.model_validate(
        {**own, "content": content, "stop_reason": reason, "usage": usage}
    )


def _generated(_name, refusal=None):
    usage = {
        "prompt_token_count": 100,
        "candidates_token_count": 10,
        "thoughts_token_count": 40,
        "cached_content_token_count": 30,
        "total_token_count": 150,
    }
    said = {"content": {"role": "model", "parts": [{"text": "Hi."}]}, "finish_reason": "STOP"}
    own = {"prompt_feedback": {"block_reason": "SAFETY"}} if refusal else {"candidates": [said]}
    return types.GenerateContentResponse.model_validate({**own, "usage_metadata": usage})


def _chat(_name, refusal=None):
    # Ollama has no field for a refusal: it is the text of a response.
    said = {"role": "assistant", "content": refusal or "Hi."}
    counts = {"prompt_eval_count": 100, "eval_count": 50}
    return {"model": "some", "message": said, "done": True, "done_reason": "stop", **counts}


_RAW = {
    "openai": _completion,
    "openai_responses": _api_response,
    "anthropic": _message,
    "gemini": _generated,
    "ollama": _chat,
}
"""What each API returns, with all counts of tokens that it has."""


def count_of(field, expected):
    """An observer: whether a count of tokens is in the usage. The whole counts are always there."""

    def observe(name):
        usage = response_of(name).usage
        assert (usage.input_tokens, usage.output_tokens) == (100, 50)
        found = getattr(usage, field)
        assert found in {0, expected}
        return "yes" if found else "no"

    return observe


def refusal(name):
    made = response_of(name, refusal="I will not.")
    return "yes" if made.refusal or made.ending == "filtered" else "no"


def embeddings(name):
    if providers()[name].open_embedder is None:
        with pytest.raises(OptionError, match="no models that embed"):
            embedder(f"{name}:some", api_key="k")
        return "no"
    assert callable(embedder(f"{name}:some", api_key="k"))
    return "yes"


OFFLINE = {
    "one call at a time (`parallel_tool_calls=False`)": in_place(
        "parallel_tool_calls",
        False,
        {
            "openai": ("parallel_tool_calls", False),
            "openai_responses": ("parallel_tool_calls", False),
            "anthropic": ("tool_choice.disable_parallel_tool_use", True),
            "gemini": ("", None),
            "ollama": ("", None),
        },
    ),
    "tools disabled, with calls in the history": tools_disabled,
    "images in prompts": part_in_prompt(IMAGE),
    "links to images in prompts": part_in_prompt(LINK),
    "audio in prompts": part_in_prompt(AUDIO),
    "PDF files in prompts": part_in_prompt(PDF),
    "images in tool results": image_in_result,
    "errors in tool results are marked": error_in_result,
    "JSON output by a schema": in_place(
        "response_format",
        FORMAT,
        {
            "openai": ("response_format", FORMAT),
            "openai_responses": ("text.format.schema", SCHEMA),
            "anthropic": ("output_config.format.schema", SCHEMA),
            "gemini": ("response_json_schema", SCHEMA),
            "ollama": ("format", SCHEMA),
        },
    ),
    "JSON output without a schema": in_place(
        "response_format",
        {"type": "json_object"},
        {
            "openai": ("response_format.type", "json_object"),
            "openai_responses": ("text.format.type", "json_object"),
            "anthropic": ("", None),
            "gemini": ("response_mime_type", "application/json"),
            "ollama": ("format", "json"),
        },
    ),
    "`reasoning_effort`": in_place(
        "reasoning_effort",
        "low",
        {
            "openai": ("reasoning_effort", "low"),
            "openai_responses": ("reasoning.effort", "low"),
            "anthropic": ("output_config.effort", "low"),
            "gemini": ("thinking_config.thinking_level", "low"),
            "ollama": ("think", "low"),
        },
    ),
    "cache hints (`cache_control`)": cache_hint,
    "tokens read from a cache, in the usage": count_of("cached_tokens", 30),
    "tokens written to a cache, in the usage": count_of("cache_write_tokens", 20),
    "tokens of reasoning, in the usage": count_of("reasoning_tokens", 40),
    "refusals": refusal,
    "embeddings": embeddings,
}
"""The observers that need no server, by the name of the feature."""


# With the wire server


@dataclass
class Probe:
    """Asks a provider on the wire server."""

    name: str
    wire: object
    relay: object

    def run(self, *script):
        """The result of a streamed run, and its events."""
        self.wire.script(*script)
        model = PROVIDERS[self.name].open(self.relay.url)
        return self._run(model, model.close)

    def _run(self, model, close):
        events = []
        result = Loop.run_sync("Weather?", model, tools=[weather], on_event=events.append)
        close()
        assert isinstance(result, Ok), result
        return result, events

    def pieces(self, kind, *script):
        """The mark for the number of events of a kind: one means that what they report came whole."""
        _, events = self.run(*script)
        return _mark(event for event in events if isinstance(event, kind))

    def sent(self, **opts):
        """The body of a request, as it was sent."""
        self.relay.clear()
        self.wire.script("{}")
        model = PROVIDERS[self.name].open(self.relay.url, stream=False)

        async def ask():
            await model([{"role": "user", "content": "Weather?"}], tools=[TOOL], **opts)
            await model.aclose()

        anyio.run(ask)
        ((_, body),) = self.relay.requests
        back_of(self.name).check_body(body)
        return body

    @cached_property
    def reasoned(self):
        """A run with reasoning: its result and its events."""
        if self.name == "ollama":  # the wire server has none for it
            return self._replay()
        return self.run({**CALL, "reasoning": THOUGHT, "reasoningSignature": "c2lnbmVk"}, "Sunny.")

    def _replay(self):
        """A run on the pieces that Ollama sends."""
        called = {"function": {"name": "weather", "arguments": {"city": "Paris"}}}
        streams = iter(
            (
                [{"thinking": "Which "}, {"thinking": "city? Paris."}, {"tool_calls": [called]}],
                [{"content": "Sunny."}],
            )
        )
        model = backend("ollama:some")

        async def stream():
            for piece in next(streams):
                said = {"role": "assistant", "content": "", **piece}
                yield {"model": "some", "message": said, "done": False}
            yield {"model": "some", "message": {"role": "assistant", "content": ""}, "done": True}

        async def send(messages, **opts):
            return model._chunks(stream())

        return self._run(send, model.close)


CALL = {"toolCalls": [{"name": "weather", "arguments": '{"city": "Paris"}'}]}
CALLS = {
    "toolCalls": [
        {"name": "weather", "arguments": json.dumps({"city": city})} for city in ("Paris", "Rome")
    ]
}


def _mark(events):
    return "yes" if len(list(events)) > 1 else "whole"


def streamed_text(probe):
    return probe.pieces(TextDelta, "It is sunny in Paris.")


def streamed_arguments(probe):
    _, events = probe.run(CALL, "Sunny.")
    return _mark(one for one in events if isinstance(one, ToolCallDelta) and one.arguments)


def parallel_calls(probe):
    result, _ = probe.run(CALLS, "Sunny in both.")
    assert result.tool_calls_count == 2
    return "yes"


def streamed_reasoning(probe):
    _, events = probe.reasoned
    found = [event for event in events if isinstance(event, ReasoningDelta)]
    assert "".join(event.text for event in found) == THOUGHT
    return _at_openai(probe.name, _mark(found))


def kept_reasoning(probe):
    result, _ = probe.reasoned
    assert THOUGHT in json.dumps(result.messages[1])
    return _at_openai(probe.name, "yes")


def _at_openai(name, mark):
    """OpenAI's own chat completions show no reasoning; other servers have a key for it."""
    has_key = "reasoning_content" in ChatCompletionMessage.model_fields
    return "other servers" if name == "openai" and not has_key else mark


def reasoning_sent_back(probe):
    result, _ = probe.reasoned
    if THOUGHT in json.dumps(body_of(probe.name, result.messages)):
        return "yes"
    other = body_of_any(probe.name, result.messages, "http://127.0.0.1:1/v1")
    return "other servers" if probe.name == "openai" and THOUGHT in json.dumps(other) else "no"


def choice_of_tools(choice, places):
    """An observer: whether a choice of tools is in its place in a body."""

    def observe(probe):
        body = probe.sent(tool_choice=choice)
        if probe.name == "ollama":
            return _by_json(body)
        path, expected = places[api_of(probe.name)]
        assert at(body, path) == expected, body
        return "yes"

    return observe


def _by_json(body):
    """The mark if the tools are described in the prompt, and the response is constrained to JSON."""
    assert "tools" not in body
    assert "weather" in json.dumps(body["messages"])
    assert "weather" in json.dumps(body["format"])
    return "JSON"


def tools_and_schema(probe):
    body = probe.sent(response_format=FORMAT)
    if "tools" not in body:
        assert "customer" in json.dumps(body["format"])
        return _by_json(body)
    assert "weather" in json.dumps(body["tools"])
    assert "customer" in json.dumps({**body, "tools": None})
    return "yes"


NAMED = {"type": "function", "function": {"name": "weather"}}
FUNCTION = {"type": "function", "name": "weather"}
MODE = "toolConfig.functionCallingConfig"

ON_WIRE = {
    "streamed text": streamed_text,
    "streamed arguments of calls": streamed_arguments,
    "streamed reasoning": streamed_reasoning,
    "reasoning kept in the history": kept_reasoning,
    "reasoning sent back": reasoning_sent_back,
    "parallel calls": parallel_calls,
    '`tool_choice="required"`': choice_of_tools(
        "required",
        {
            "openai": ("tool_choice", "required"),
            "openai_responses": ("tool_choice", "required"),
            "anthropic": ("tool_choice.type", "any"),
            "gemini": (f"{MODE}.mode", "ANY"),
        },
    ),
    "`tool_choice` of one tool": choice_of_tools(
        NAMED,
        {
            "openai": ("tool_choice", NAMED),
            "openai_responses": ("tool_choice", FUNCTION),
            "anthropic": ("tool_choice", {"type": "tool", "name": "weather"}),
            "gemini": (f"{MODE}.allowedFunctionNames", ["weather"]),
        },
    ),
    "tools and JSON output by a schema, together": tools_and_schema,
}
"""The observers that need the wire server; each takes a `Probe`."""
