"""Values that are no model, and models whose responses are not understood: the error says what to pass instead."""

import functools
from types import SimpleNamespace

import anthropic
import google.genai
import ollama
import pytest
from anthropic.types import Message
from openai import AsyncOpenAI, OpenAI
from tests.samples import add

from treadle import Loop, OptionError, Response, ToolCall
from treadle.model import ModelClient
from treadle.testing import ScriptedLLM, call, calls

USER = [{"role": "user", "content": "Hi"}]


async def model(messages):
    return "Hello"


async def pieces(messages):
    yield "Hello"


class Broken:
    @property
    def as_tool(self):
        raise ConnectionError


@pytest.mark.parametrize(
    ("value", "kind", "advice"),
    [
        (b"gpt-5-mini", "bytes", "pass a name, such as 'openai:gpt-5-mini'"),
        (OpenAI(api_key="k"), "OpenAI", "functools.partial(client.chat.completions.create, "),
        (AsyncOpenAI(api_key="k"), "AsyncOpenAI", "client.chat.completions.create"),
        (pieces(USER), "async_generator", "pass the function itself, without calling it"),
        (iter(ScriptedLLM().sent), "list_iterator", "or a function that takes messages"),
        (
            SimpleNamespace(messages=SimpleNamespace(create=print)),
            "SimpleNamespace",
            "a function that takes messages and returns the text",
        ),
        (SimpleNamespace(run=print, as_tool=print), "SimpleNamespace", "other.as_tool("),
        (Loop(), "Loop", "an agent or a loop is no model: make it a tool"),
        ([print], "list", "tools belong in tools="),
        ({"temperature": 0}, "dict", "options of the request in llm_opts="),
        (42, "int", "pass a name, such as 'openai:gpt-5-mini'; or a method"),
        (Broken(), "Broken", "or a function that takes messages"),
    ],
    ids=lambda given: given[:30] if isinstance(given, str) else type(given).__name__,
)
def test_a_value_that_is_no_model_is_an_error_with_advice(value, kind, advice):
    for use in (
        lambda: Loop(llm_send_fn=value),
        lambda: Loop.run_sync(USER, value),
        lambda: Loop().run(USER, value),
        lambda: Loop().as_tool("ask", "Ask.", value),
    ):
        with pytest.raises(OptionError) as caught:
            use()
        assert str(caught.value).startswith(f"llm_send_fn: expected a callable, got {kind}; ")
        assert advice in str(caught.value)


def test_a_coroutine_is_closed_and_leads_to_its_function():
    with pytest.raises(OptionError, match="pass the function itself, without calling it"):
        Loop.run_sync(USER, model(USER))  # a warning would be an error


ANTHROPIC = anthropic.Anthropic(api_key="k")
OPENAI = OpenAI(api_key="k")
GEMINI = google.genai.Client(api_key="k")
METHODS = {
    "anthropic:NAME": ANTHROPIC.messages.create,
    "gemini:NAME": GEMINI.models.generate_content,
    "ollama:NAME": ollama.Client().chat,
    "openai-responses:NAME": OPENAI.responses.create,
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("is_partial", [False, True])
def test_a_method_with_responses_of_another_form_is_refused(name, is_partial):
    method = METHODS[name]
    fn = functools.partial(method, model="m") if is_partial else method
    with pytest.raises(OptionError, match=f"use the name of the model, such as '{name}'"):
        Loop.run_sync("q", fn)


def test_the_method_of_chat_completions_is_understood():
    assert ModelClient(OPENAI.chat.completions.create, {}).takes("tools")


def message(*content, stop_reason="end_turn"):
    return Message.model_validate(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "stop_reason": stop_reason,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )


def test_a_response_with_calls_of_another_form_is_refused_and_not_read_in_part():
    text, use = (
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t", "name": "add", "input": {}},
    )
    result = Loop.run_sync("q", lambda messages: message(text, use), tools=[add])
    assert "use the name of the model, such as 'anthropic:NAME'" in str(result.reason)
    assert Loop.run_sync("q", lambda messages: message(text)).unwrap().text == "Hi"
    cut = Loop.run_sync("q", lambda messages: message(text, stop_reason="max_tokens"))
    assert cut.stop_reason == "response_incomplete"


def test_calls_are_dropped_if_the_options_disable_them():
    called = Response("Hi", (ToolCall("c", "add", '{"a": 1, "b": 2}'),))
    result = Loop.run_sync("q", ScriptedLLM(called), tools=[add], llm_opts={"tool_choice": "none"})
    assert (result.unwrap().text, result.tool_calls_count) == ("Hi", 0)


def test_tools_among_the_options_are_an_error_that_says_where_they_belong():
    with pytest.raises(OptionError, match="llm_opts: tools belong in tools="):
        Loop(llm_opts={"tools": []})

    def more(ctx):
        return ctx.with_request(options={"tools": []})

    stages = Loop().pipeline.insert_before("ask_model", more)
    result = Loop.run_sync("q", ScriptedLLM(calls(call("add"))), tools=[add], stages=stages)
    assert "tools belong in tools=" in str(result.reason)
