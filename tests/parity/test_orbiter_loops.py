"""Parity with Orbiter: loop detection."""

import pytest
from tests.samples import add

from treadle import LoopDetected, Ok, Response, RunNodeStatus, default_stages, presets, tool
from treadle.testing import ScriptedLLM, call, calls


def raw_call(name, arguments):
    """A call with its arguments as the text that a model wrote."""
    function = {"name": name, "arguments": arguments}
    return {"id": f"raw{id(function)}", "type": "function", "function": function}


def same(count):
    return [calls(call("add", a=1, b=2)) for _ in range(count)]


def test_the_same_calls_in_three_steps_are_a_loop(run):
    """The signature of the calls is in each node; the third in a row ends the run.

    In Orbiter ten identical calls raise nothing, since one node covers the whole run.
    """
    result = run("1 + 2?", ScriptedLLM(*same(3)), **presets.orbiter(), tools=[add])
    assert isinstance(result.reason, LoopDetected)
    assert result.reason.iterations == result.tool_calls_count == 3
    assert "add" in str(result.reason)
    signatures = {node.metadata["tool_signature"] for node in result.run.nodes}
    assert signatures == {result.reason.signature}
    assert result.run.status is RunNodeStatus.FAILED
    assert "3 consecutive iterations" in result.run.nodes[-1].error


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_the_loop_threshold_is_an_option(run, threshold):
    """``loop_threshold`` is the number of consecutive steps that are a loop."""
    options = {**presets.orbiter(), "loop_threshold": threshold, "tools": [add]}
    result = run("1 + 2?", ScriptedLLM(*same(threshold)), **options)
    assert (type(result.reason), result.iterations) == (LoopDetected, threshold)


def test_the_signature_is_canonical(run):
    """Neither key order nor white space nor the order of the calls makes another signature.

    In Orbiter the signature depends on key order and white space.
    """
    texts = ['{"a": 1, "b": 2}', '{"b":2,"a":1}', '{ "b" : 2 ,\n"a" : 1 }']
    others = [call("add", a=5, b=6) for _ in texts]
    steps = [[raw_call("add", text), other] for text, other in zip(texts, others, strict=True)]
    steps[1].reverse()
    llm = ScriptedLLM(*(calls(*step) for step in steps))
    result = run("Sums?", llm, **presets.orbiter(), tools=[add])
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
    """A blank answer has no signature, so that the count starts again after it."""
    llm = ScriptedLLM(*same(2), "", *same(2), "Three.")
    result = run("1 + 2?", llm, tools=[add])
    assert isinstance(result, Ok)
    assert "tool_signature" not in result.run.nodes[2].metadata


def test_a_text_only_step_breaks_the_streak_too(run):
    """If a stage continues the run after a text, that step resets the count."""

    def think_on(ctx):
        if not ctx.response.text.endswith(":"):
            return ctx
        thought = {"role": "assistant", "content": ctx.response.text}
        asked = {"role": "user", "content": "Go on."}
        return ctx.with_response(Response()).replace(messages=ctx.messages.append(thought, asked))

    llm = ScriptedLLM(*same(2), "Let me see:", *same(2), "Three.")
    ask, *rest = default_stages()
    result = run("1 + 2?", llm, tools=[add], stages=[ask, think_on, *rest])
    assert isinstance(result, Ok)
    assert (result.iterations, len(result.messages)) == (6, 12)


def test_the_same_calls_with_other_results_are_progress(run):
    """Repeated calls are not a loop as long as their results change. (Orbiter compares the calls only.)"""
    left = iter(["pending", "running", "done"])

    @tool
    def status() -> str:
        return next(left)

    llm = ScriptedLLM(*[calls(call("status"))] * 3, "Done.")
    result = run("Done?", llm, **presets.orbiter(), tools=[status])
    assert isinstance(result, Ok)
    assert result.tool_calls_count == 3
