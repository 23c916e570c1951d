"""Methods and responses of SDKs whose form is not understood are refused, with the name to use."""

import functools

import anthropic
import google.genai
import ollama
import openai
import pytest
from anthropic.types import Message

from treadle import Loop, OptionError, Response, ToolCall, tool
from treadle.model import ModelClient
from treadle.providers.middleware import ResponseCache
from treadle.testing import ScriptedLLM, call, calls

ANTHROPIC = anthropic.Anthropic(api_key="k")
OPENAI = openai.OpenAI(api_key="k")
GEMINI = google.genai.Client(api_key="k")
METHODS = {
    "anthropic:NAME": ANTHROPIC.messages.create,
    "gemini:NAME": GEMINI.models.generate_content,
    "ollama:NAME": ollama.Client().chat,
    "openai-responses:NAME": OPENAI.responses.create,
}


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


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


class Mine:
    """A model with a setting that it does not show."""

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, messages):
        return self.answer

    def ask(self, messages):
        return self.answer


@pytest.mark.parametrize(
    "of", [Mine, lambda text: Mine(text).ask, lambda text: functools.partial(said, text)]
)
def test_models_with_other_settings_or_arguments_share_no_entry_of_a_cache(of):
    cache = ResponseCache()
    answers = [
        Loop.run_sync("q", of(text), model_middleware=[cache]).unwrap().text
        for text in ("one", "two", "one")
    ]
    assert answers == ["one", "two", "one"]


def said(text, messages):
    return text


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
