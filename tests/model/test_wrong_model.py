"""Values that are given as the model and are none: the error says what to pass instead."""

from types import SimpleNamespace

import pytest
from openai import AsyncOpenAI, OpenAI

from treadle import Loop, OptionError
from treadle.testing import ScriptedLLM

USER = [{"role": "user", "content": "Hi"}]


async def model(messages):
    return "Hello"


async def pieces(messages):
    yield "Hello"


class Broken:
    @property
    def chat(self):
        raise ConnectionError


@pytest.mark.parametrize(
    ("value", "kind", "advice"),
    [
        (b"gpt-5-mini", "bytes", "a name of a model is text, such as 'openai:gpt-5-mini'"),
        (OpenAI(api_key="k"), "OpenAI", "functools.partial(client.chat.completions.create, "),
        (AsyncOpenAI(api_key="k"), "AsyncOpenAI", "client.chat.completions.create"),
        (pieces(USER), "async_generator", "pass the function itself, without calling it"),
        (iter(ScriptedLLM().sent), "list_iterator", "the model is a callable that takes messages"),
        (
            SimpleNamespace(messages=SimpleNamespace(create=print)),
            "SimpleNamespace",
            "calls this client",
        ),
        (
            SimpleNamespace(invoke=print),
            "SimpleNamespace",
            "calls this object and returns the text",
        ),
        (SimpleNamespace(run=print, as_tool=print), "SimpleNamespace", "other.as_tool("),
        (Loop(), "Loop", "an agent or a loop is no model: make it a tool"),
        ([print], "list", "tools belong in tools="),
        ({"temperature": 0}, "dict", "options of the request in llm_opts="),
        (42, "int", "the model is a callable that takes messages"),
        (43, "int", "pass a name, such as 'openai:gpt-5-mini'; otherwise"),
        (OpenAI(api_key="k"), "OpenAI", "pass a name, such as 'openai:gpt-5-mini', or a method"),
        (Broken(), "Broken", "the model is a callable that takes messages"),
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
