"""Parity with Orbiter: the call runner, its results and its retries."""

import dataclasses
import json

import anyio
import pytest
from tests.samples import add

from treadle import (
    Err,
    LLMError,
    MaxIterationsReached,
    Ok,
    RunNodeStatus,
    RunState,
    Usage,
    tool,
)
from treadle.effects import Sleep, map_effects
from treadle.events import LimitReached, ModelRetried
from treadle.testing import ScriptedLLM, call, calls


def answer(message, prompt_tokens, completion_tokens):
    """A chat completion with its usage."""
    if isinstance(message, str):
        message = {"role": "assistant", "content": message}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


class ProviderError(Exception):
    """The exception of an SDK, with the status of the HTTP response."""

    def __init__(self, status_code):
        super().__init__(f"status {status_code}")
        self.status_code = status_code


def test_a_run_makes_its_state_and_returns_output_messages_usage_and_steps(run):
    """The result has all of it: a node for each iteration, with its usage and its calls.

    In Orbiter one node covers a whole agent run, its usage is the last call's, the messages
    are empty; here a node is an iteration, usage sums, and the messages are all there.
    """
    first = answer(calls(call("add", "c1", a=1, b=2), call("add", "c2", a=3, b=4)), 10, 5)
    result = run("Sums?", ScriptedLLM(first, answer("3 and 7", 30, 6)), tools=[add], name="clerk")
    state = result.run
    assert result.response.content == "3 and 7"
    assert (result.usage, state.total_usage) == (Usage(40, 11), Usage(40, 11))
    assert (state.agent_name, state.status) == ("clerk", RunNodeStatus.SUCCESS)
    assert [node.usage for node in state.nodes] == [Usage(10, 5), Usage(30, 6)]
    assert [node.status for node in state.nodes] == [RunNodeStatus.SUCCESS] * 2
    assert (state.iterations, result.iterations) == (2, 2)
    assert state.messages == result.messages
    assert len(result.messages) == 5
    made = state.nodes[0].tool_calls
    assert [(node.name, node.group_id) for node in made] == [("add", "c1"), ("add", "c2")]
    assert all(node.status is RunNodeStatus.SUCCESS for node in made)
    assert all(node.duration >= 0 for node in [*state.nodes, *made])


def test_a_passed_state_is_used_and_continued(run):
    """A second run continues in it: nodes, iterations and usage add up."""
    state = RunState("clerk")
    one = run("1 + 2?", ScriptedLLM(answer("3", 4, 1)), state=state)
    assert one.run is state
    messages = [*one.messages, {"role": "user", "content": "And 3 + 4?"}]
    llm = ScriptedLLM(answer(calls(call("add", a=3, b=4)), 8, 2), answer("7", 12, 1))
    two = run(messages, llm, tools=[add], state=state)
    assert two.run is state
    assert [node.step_index for node in state.nodes] == [0, 1, 2]
    assert [node.step_index for node in state.nodes[1].tool_calls] == [1]
    assert (state.iterations, state.total_usage) == (3, Usage(24, 4))
    assert (two.iterations, two.usage) == (2, Usage(20, 3))
    assert state.messages == two.messages
    assert state.status is RunNodeStatus.SUCCESS


def test_a_failed_run_leaves_its_state_failed_with_the_error_on_the_node(run):
    """The node of the iteration that failed has the error, and so has the state."""
    state = RunState()
    llm = ScriptedLLM(calls(call("add", a=1, b=2)), ValueError("no model"))
    result = run("1 + 2?", llm, tools=[add], state=state, max_retries=0)
    assert isinstance(result, Err)
    assert state.status is RunNodeStatus.FAILED
    assert [node.status.value for node in state.nodes] == ["success", "failed"]
    assert "no model" in state.nodes[1].error
    assert "no model" in state.error


def test_a_failed_tool_leaves_its_node_failed_and_the_run_continues(run):
    """The node of the call has the error; the iteration itself succeeded."""

    @tool
    def search() -> str:
        raise LookupError("no page")

    result = run("Find it.", ScriptedLLM(calls(call("search")), "No."), tools=[search])
    (node,) = result.run.nodes[0].tool_calls
    assert (node.status, node.error) == (RunNodeStatus.FAILED, "Error: LookupError: no page")
    assert result.run.nodes[0].status is RunNodeStatus.SUCCESS
    assert isinstance(result, Ok)


def test_a_run_that_exceeds_its_time_limit_leaves_its_state_and_node_timed_out(run):
    """The time limit has a separate status, of the state and of the running node."""

    @tool
    async def wait() -> str:
        await anyio.sleep(30)
        return "late"

    result = run("Wait.", ScriptedLLM(calls(call("wait"))), tools=[wait], max_seconds=0.4)
    assert result.run.status is RunNodeStatus.TIMEOUT
    assert result.run.nodes[0].status is RunNodeStatus.TIMEOUT


# Retries


@pytest.mark.parametrize(
    "error",
    [ProviderError(429), ProviderError(500), ProviderError(503), ConnectionError("reset")],
    ids=str,
)
def test_provider_errors_are_retried(run, error):
    """A temporary failure is retried up to ``max_retries`` times."""
    llm = ScriptedLLM(error, error, error, "Here.")
    result = run("Hello?", llm)
    assert result.unwrap().content == "Here."
    assert result.iterations == 1
    assert [sent.messages for sent in llm.sent] == [[{"role": "user", "content": "Hello?"}]] * 4


def test_the_delay_between_retries_doubles(run):
    """Exponential backoff: twice as long each time, less a jitter of up to a quarter."""
    slept = []

    def at_once(effect):
        if isinstance(effect, Sleep):
            slept.append(effect.seconds)
            return Sleep(0)
        return effect

    events = []
    llm = ScriptedLLM(*[ProviderError(503)] * 4, "Here.")
    layer = {"middleware": [lambda steps: map_effects(steps, at_once)]}
    run("Hello?", llm, max_retries=4, retry_delay=1.0, on_event=events.append, **layer)
    assert all(full * 0.75 <= s <= full for s, full in zip(slept, (1, 2, 4, 8), strict=True))
    retried = [event for event in events if isinstance(event, ModelRetried)]
    assert [(event.attempt, event.error_type) for event in retried] == [
        (n, "ProviderError") for n in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(("max_retries", "attempts"), [(3, 4), (1, 2), (0, 1)])
def test_retries_end_with_the_error_and_the_number_of_attempts(run, max_retries, attempts):
    """After the last attempt the run ends with the exception."""
    llm = ScriptedLLM(*[ProviderError(503)] * attempts)
    result = run("Hello?", llm, max_retries=max_retries)
    assert result.reason == LLMError("status 503", "ProviderError", attempts)


def test_three_retries_are_the_default(run):
    """By default there are three retries, as in Orbiter."""
    assert run("Hello?", ScriptedLLM(*[ProviderError(503)] * 4)).reason.attempts == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_permanent_failure_is_not_retried(run, status):
    """Bad request, context too long (a 400 or 413), authentication: one attempt, and the error."""
    result = run("Hello?", ScriptedLLM(ProviderError(status)))
    assert result.reason == LLMError(f"status {status}", "ProviderError", 1)


def test_reaching_the_step_limit_is_reported(run):
    """It is an error and a separate event. (Orbiter returns the last output silently.)"""
    events = []
    steps = [calls(call("add", a=n, b=n)) for n in range(3)]
    llm = ScriptedLLM(*steps)
    result = run("Sum on.", llm, tools=[add], max_iterations=3, on_event=events.append)
    assert result.reason == MaxIterationsReached(3)
    assert [event.reason for event in events if isinstance(event, LimitReached)] == [result.reason]
    assert result.run.status is RunNodeStatus.FAILED
    with pytest.raises(MaxIterationsReached):
        result.unwrap()


def test_a_result_is_frozen_and_its_messages_are_json(run):
    """A result can be kept: nothing changes it, and its messages can be stored."""
    result = run("Hello?", ScriptedLLM("Hello."))
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.response = None
    assert json.loads(json.dumps(result.messages)) == result.messages
