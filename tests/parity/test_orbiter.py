"""Parity with Orbiter: the call runner and the run state."""

import dataclasses
import json
import time

import anyio
import pytest

from treadle import (
    Err,
    LLMError,
    LoopDetected,
    MaxIterationsReached,
    Ok,
    RunNode,
    RunNodeStatus,
    RunState,
    Usage,
    default_stages,
    tool,
)
from treadle.pipeline import Sleep, layered
from treadle.testing import ScriptedLLM, call, calls
from treadle.types import IllegalMoveError, LimitReached, ModelRetried


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def raw_call(name, arguments):
    """A call with its arguments as the text that a model wrote."""
    function = {"name": name, "arguments": arguments}
    return {"id": f"raw{id(function)}", "type": "function", "function": function}


def answer(message, prompt_tokens, completion_tokens):
    """A chat completion with its usage."""
    if isinstance(message, str):
        message = {"role": "assistant", "content": message}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


class ProviderError(Exception):
    """What an SDK raises: with the status of the HTTP response."""

    def __init__(self, status_code):
        super().__init__(f"status {status_code}")
        self.status_code = status_code


# The record


def test_the_five_status_values():
    """init, running, success, failed, timeout."""
    values = [status.value for status in RunNodeStatus]
    assert values == ["init", "running", "success", "failed", "timeout"]


def test_a_new_node_has_the_fields_and_defaults_of_orbiter():
    """agent_name, step_index=0, status, group_id, times, tool_calls, usage, error, metadata."""
    before = time.time()
    node = RunNode("clerk")
    assert (node.agent_name, node.step_index, node.status) == ("clerk", 0, RunNodeStatus.INIT)
    assert (node.group_id, node.usage, node.error) == (None, None, None)
    assert before <= node.created_at <= time.time()
    assert (node.started_at, node.ended_at, node.duration) == (None, None, None)
    assert (node.tool_calls, node.metadata) == ([], {})
    assert RunNode("clerk").metadata is not node.metadata


def test_a_node_starts_and_succeeds_with_its_usage():
    """The usage may come with the success; the duration is known once it has ended."""
    node = RunNode("clerk")
    node.start(at=10.0)
    assert (node.status, node.started_at, node.duration) == (RunNodeStatus.RUNNING, 10.0, None)
    node.succeed(Usage(3, 4), at=12.5)
    assert (node.status, node.ended_at, node.duration) == (RunNodeStatus.SUCCESS, 12.5, 2.5)
    assert node.usage.total_tokens == 7


def test_a_node_fails_with_an_error_or_times_out():
    """Both are ends; a failure keeps its error."""
    failed, late = RunNode(), RunNode()
    failed.start()
    failed.fail("no such page")
    late.start()
    late.timeout()
    assert (failed.status, failed.error) == (RunNodeStatus.FAILED, "no such page")
    assert late.status is RunNodeStatus.TIMEOUT
    assert failed.duration >= 0
    assert late.duration >= 0


def test_what_cannot_happen_to_a_node_is_refused():
    """A move that makes no sense names the status and the event. (Orbiter takes any.)"""
    node = RunNode()
    with pytest.raises(IllegalMoveError, match="is init: it cannot succeed; legal are start"):
        node.succeed()
    node.start()
    node.fail("x")
    with pytest.raises(IllegalMoveError, match="is failed: it cannot succeed"):
        node.succeed()


def test_a_new_state_has_the_fields_and_defaults_of_orbiter():
    """agent_name, status, messages, nodes, iterations, total_usage; no current node."""
    state = RunState("clerk")
    assert (state.agent_name, state.status) == ("clerk", RunNodeStatus.INIT)
    assert (state.messages, state.nodes, state.iterations) == ([], [], 0)
    assert state.total_usage == Usage()
    assert (state.current_node, state.is_running, state.is_terminal) == (None, False, False)


def test_a_state_takes_messages_nodes_and_usage():
    """Nodes count as iterations, usage adds up, messages keep their order."""
    state = RunState("clerk")
    state.start()
    state.add_message({"role": "user", "content": "a"})
    state.add_messages([{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])
    first = state.new_node()
    second = state.new_node("temp", group_id="g")
    state.record_usage(Usage(1, 2))
    state.record_usage(Usage(10, 20))
    assert [message["content"] for message in state.messages] == ["a", "b", "c"]
    assert (state.nodes, state.iterations, state.current_node) == ([first, second], 2, second)
    assert (first.agent_name, first.step_index, first.group_id) == ("clerk", 0, None)
    assert (second.agent_name, second.step_index, second.group_id) == ("temp", 1, "g")
    assert state.total_usage == Usage(11, 22)
    assert (state.is_running, state.is_terminal) == (True, False)


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [
        (RunState.succeed, RunNodeStatus.SUCCESS, None),
        (RunState.fail, RunNodeStatus.FAILED, None),
        (lambda state: state.fail("lost"), RunNodeStatus.FAILED, "lost"),
        (RunState.timeout, RunNodeStatus.TIMEOUT, None),
    ],
)
def test_a_state_ends_in_one_of_three_ways(end, status, error):
    """Success, failure (with its error, if one is given) and timeout are terminal."""
    state = RunState()
    state.start()
    end(state)
    assert (state.status, state.error) == (status, error)
    assert (state.is_running, state.is_terminal) == (False, True)


# The run


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
    """A second run goes on in it: nodes, iterations and usage add up."""
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


def test_a_failed_tool_leaves_its_node_failed_and_the_run_goes_on(run):
    """The node of the call has the error; the iteration itself succeeded."""

    @tool
    def search() -> str:
        raise LookupError("no page")

    result = run("Find it.", ScriptedLLM(calls(call("search")), "No."), tools=[search])
    (node,) = result.run.nodes[0].tool_calls
    assert (node.status, node.error) == (RunNodeStatus.FAILED, "Error: LookupError: no page")
    assert result.run.nodes[0].status is RunNodeStatus.SUCCESS
    assert isinstance(result, Ok)


def test_a_run_out_of_time_leaves_its_state_and_node_timed_out(run):
    """The time limit is a status of its own, on the state and on what was running."""

    @tool
    async def wait() -> str:
        await anyio.sleep(30)
        return "late"

    result = run("Wait.", ScriptedLLM(calls(call("wait"))), tools=[wait], max_seconds=0.05)
    assert result.run.status is RunNodeStatus.TIMEOUT
    assert result.run.nodes[0].status is RunNodeStatus.TIMEOUT


# Retries


@pytest.mark.parametrize(
    "error",
    [ProviderError(429), ProviderError(500), ProviderError(503), ConnectionError("reset")],
    ids=str,
)
def test_provider_errors_are_retried(run, error):
    """What may pass is tried again, up to ``max_retries`` times after the first."""
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

    told = []
    llm = ScriptedLLM(*[ProviderError(503)] * 4, "Here.")
    layer = {"layers": [lambda steps: layered(steps, at_once)]}
    run("Hello?", llm, max_retries=4, retry_delay=1.0, on_event=told.append, **layer)
    assert all(full * 0.75 <= s <= full for s, full in zip(slept, (1, 2, 4, 8), strict=True))
    retried = [event for event in told if isinstance(event, ModelRetried)]
    assert [(event.attempt, event.error_type) for event in retried] == [
        (n, "ProviderError") for n in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(("max_retries", "attempts"), [(3, 4), (1, 2), (0, 1)])
def test_retries_end_with_the_error_and_the_number_of_attempts(run, max_retries, attempts):
    """After the last try the run ends with what was raised."""
    llm = ScriptedLLM(*[ProviderError(503)] * attempts)
    result = run("Hello?", llm, max_retries=max_retries)
    assert result.reason == LLMError("status 503", "ProviderError", attempts)


def test_three_retries_are_the_default(run):
    """Who says nothing gets Orbiter's three."""
    assert run("Hello?", ScriptedLLM(*[ProviderError(503)] * 4)).reason.attempts == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_cannot_succeed_is_not_retried(run, status):
    """Bad request, context too long (a 400 or 413), authentication: one try, and the error."""
    result = run("Hello?", ScriptedLLM(ProviderError(status)))
    assert result.reason == LLMError(f"status {status}", "ProviderError", 1)


# Loop detection


def same(count):
    return [calls(call("add", a=1, b=2)) for _ in range(count)]


def test_the_same_calls_in_three_steps_are_a_loop(run):
    """The signature of the calls is on each node; the third in a row ends the run.

    In Orbiter ten identical calls raise nothing, since one node covers the whole run.
    """
    result = run("1 + 2?", ScriptedLLM(*same(3)), tools=[add])
    assert isinstance(result.reason, LoopDetected)
    assert result.reason.iterations == 3
    assert "add" in str(result.reason)
    signatures = {node.metadata["tool_signature"] for node in result.run.nodes}
    assert signatures == {result.reason.signature}
    assert result.run.status is RunNodeStatus.FAILED
    assert "in a row" in result.run.nodes[-1].error


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_the_loop_threshold_is_an_option(run, threshold):
    """``loop_threshold`` is how many steps in a row it takes."""
    result = run("1 + 2?", ScriptedLLM(*same(threshold)), tools=[add], loop_threshold=threshold)
    assert (type(result.reason), result.iterations) == (LoopDetected, threshold)


def test_the_signature_is_canonical(run):
    """Neither key order nor white space nor the order of the calls makes another signature.

    In Orbiter the signature depends on key order and white space.
    """
    texts = ['{"a": 1, "b": 2}', '{"b":2,"a":1}', '{ "b" : 2 ,\n"a" : 1 }']
    others = [call("add", a=5, b=6) for _ in texts]
    steps = [[raw_call("add", text), other] for text, other in zip(texts, others, strict=True)]
    steps[1].reverse()
    result = run("Sums?", ScriptedLLM(*(calls(*step) for step in steps)), tools=[add])
    assert isinstance(result.reason, LoopDetected)
    assert len({node.metadata["tool_signature"] for node in result.run.nodes}) == 1


def test_other_calls_have_other_signatures(run):
    """Another name, other arguments, or another number of the same call is another signature."""

    @tool
    def sub(a: int, b: int) -> int:
        return a - b

    one = {"a": 1, "b": 2}
    steps = [
        calls(call("add", **one)),
        calls(call("sub", **one)),
        calls(call("add", a=2, b=1)),
        calls(call("add", **one), call("add", **one)),
    ]
    result = run("Go on.", ScriptedLLM(*steps, "Done."), tools=[add, sub])
    signatures = [node.metadata.get("tool_signature") for node in result.run.nodes]
    assert len(set(signatures[:4])) == 4
    assert signatures[4] is None


def test_other_calls_in_between_break_the_streak(run):
    """The steps have to follow each other."""
    other = calls(call("add", a=5, b=6))
    llm = ScriptedLLM(*same(2), other, *same(2), "Three.")
    assert isinstance(run("1 + 2?", llm, tools=[add]), Ok)


def test_a_step_without_calls_breaks_the_streak(run):
    """A blank answer has no signature, so that the count begins anew after it."""
    llm = ScriptedLLM(*same(2), "", *same(2), "Three.")
    result = run("1 + 2?", llm, tools=[add])
    assert isinstance(result, Ok)
    assert "tool_signature" not in result.run.nodes[2].metadata


def test_a_text_only_step_breaks_the_streak_too(run):
    """Where stages let a run go on after text, that step begins the count anew."""

    def ask_on(ctx):
        if ctx.tool_calls or "Three" in ctx.response.content:
            return ctx
        told = {"role": "assistant", "content": ctx.response.content}
        return ctx.replace(
            messages=ctx.messages.append(told, {"role": "user", "content": "Go on."})
        )

    parse, check, decide, *rest = default_stages()

    def decide_on(ctx):
        going_on = len(ctx.messages) and ctx.messages[-1].get("content") == "Go on."
        return ctx if going_on and not ctx.tool_calls else decide(ctx)

    stages = [parse, check, ask_on, decide_on, *rest[:2], go_past_text(rest[2]), *rest[3:]]
    llm = ScriptedLLM(*same(2), "Let me see.", *same(2), "Three.")
    result = run("1 + 2?", llm, tools=[add], stages=stages)
    assert isinstance(result, Ok)
    assert result.iterations == 6


def go_past_text(inject):
    def inject_calls(ctx):
        return (yield from inject(ctx)) if ctx.tool_calls else ctx

    return inject_calls


def test_the_same_calls_with_other_results_are_progress(run):
    """Asking again is no loop as long as the answer changes. (Orbiter looks at the calls only.)"""
    left = iter(["pending", "running", "done"])

    @tool
    def status() -> str:
        return next(left)

    result = run("Done?", ScriptedLLM(*[calls(call("status"))] * 3, "Done."), tools=[status])
    assert isinstance(result, Ok)


def test_reaching_the_step_limit_is_reported(run):
    """It is an error and an event of its own. (Orbiter returns the last output silently.)"""
    told = []
    steps = [calls(call("add", a=n, b=n)) for n in range(3)]
    llm = ScriptedLLM(*steps)
    result = run("Sum on.", llm, tools=[add], max_iterations=3, on_event=told.append)
    assert result.reason == MaxIterationsReached(3)
    assert [event.reason for event in told if isinstance(event, LimitReached)] == [result.reason]
    assert result.run.status is RunNodeStatus.FAILED
    with pytest.raises(MaxIterationsReached):
        result.unwrap()


def test_a_result_is_frozen_and_its_messages_are_json(run):
    """What a run returns can be kept: nothing changes it, and its messages can be stored."""
    result = run("Hello?", ScriptedLLM("Hello."))
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.response = None
    assert json.loads(json.dumps(result.messages)) == result.messages
