"""The loop on official clients of OpenAI's, against a server that speaks their wire format."""

import pytest
from tests.http_server import free_port
from tests.wire.conftest import calls, weather

from treadle import DeadlineExceeded, Err, LLMError, Ok, Usage, tool
from treadle.events import RunFinished, RunStarted, ToolFinished
from treadle.testing import check_history

pytestmark = pytest.mark.wire

QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
LATE = {"chaos": {"latencyMs": 3_000}}


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def usage(prompt, completion):
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def test_a_tool_is_called_and_the_model_answers(wire, ask):
    """One call, its result sent back, the answer: the whole turn, and nothing but it."""
    wire.script(calls(("weather", {"city": "Paris"})), "It is sunny.")

    result = ask(QUESTION, tools=[weather])

    assert isinstance(result, Ok)
    assert result.response.content == "It is sunny."
    assert (result.iterations, result.tool_calls_count) == (2, 1)
    check_history(result.messages)
    first, second = wire.requests
    assert first["messages"] == QUESTION
    assert [made["function"]["name"] for made in first["tools"]] == ["weather"]
    assert second["messages"] == result.messages[:-1]
    assert second["messages"][-1]["content"] == "sunny in Paris"
    assert second["messages"][-1]["tool_call_id"] == second["messages"][1]["tool_calls"][0]["id"]


def test_parallel_calls_are_answered_in_the_order_of_the_request(wire, ask):
    """Sync and async tools side by side; each call has its own result."""
    wire.script(
        calls(
            ("weather", {"city": "Oslo"}), ("add", {"a": 1, "b": 2}), ("weather", {"city": "Rome"})
        ),
        "Done.",
    )

    result = ask(QUESTION, tools=[weather, add])

    assert isinstance(result, Ok)
    assert result.tool_calls_count == 3
    sent = wire.requests[1]["messages"]
    assert [message["content"] for message in sent[2:]] == ["sunny in Oslo", "3", "sunny in Rome"]
    assert len(ask.events_of(ToolFinished)) == 3


def test_usage_is_summed_over_the_run(wire, ask):
    """The tokens of all model calls, streamed or not."""
    wire.script(
        calls(("add", {"a": 1, "b": 2}), usage=usage(100, 7)),
        {"content": "Three.", "usage": usage(130, 5)},
    )

    result = ask(QUESTION, tools=[add])

    assert result.usage == Usage(230, 12, 242)


def test_keys_that_treadle_does_not_know_survive(wire, ask):
    """The caller's and the provider's, on the way out, in the history and back."""
    wire.script(calls(("add", {"a": 1, "b": 2}), reasoning="Let me add."), "Three.")
    question = {"role": "user", "content": "1 + 2?", "cache_control": {"type": "ephemeral"}}

    result = ask([question], tools=[add], model="o3")

    assert isinstance(result, Ok)
    assert result.messages[0] == question
    sent = wire.requests[1]["messages"]
    assert sent[0] == question
    assert sent[1]["reasoning_content"] == "Let me add."


def test_options_reach_the_server(wire, ask):
    """`llm_opts` are OpenAI's own words."""
    wire.script("Hello.")

    ask(QUESTION, llm_opts={"temperature": 0.25, "max_tokens": 9})

    (sent,) = wire.requests
    assert (sent["temperature"], sent["max_tokens"]) == (0.25, 9)
    assert "tools" not in sent


def test_a_server_that_is_not_there_is_an_error(ask_at):
    """A refused connection is retried, and then reported; the history is what it was."""
    result = ask_at(f"http://127.0.0.1:{free_port()}/v1")(QUESTION, max_retries=1)

    assert isinstance(result, Err)
    assert isinstance(result.reason, LLMError)
    assert (result.reason.error_type, result.reason.attempts) == ("APIConnectionError", 2)
    assert result.messages == QUESTION


def test_a_time_limit_ends_a_request_under_way(wire, ask):
    """The server takes its time; the run does not wait for it."""
    wire.script(calls(("add", {"a": 1, "b": 2})), {"content": "-", "how": LATE})

    result = ask(QUESTION, tools=[add], max_seconds=1.5, linger=1.8)

    assert isinstance(result, Err)
    assert isinstance(result.reason, DeadlineExceeded)
    check_history(result.messages)
    assert result.messages[-1]["content"] == "3"
    ended = ask.events_of(RunFinished)[0].at
    assert ended - ask.events_of(RunStarted)[0].at < 1.9
