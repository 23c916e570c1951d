"""Wherever a run is paused, its result is the same as without pauses."""

import copy
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import Limits, Loop, Paused, approve, deny, tool
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, RecordedTools

HELPER = st.tuples(st.just("helper"), st.fixed_dictionaries({"task": st.sampled_from("xyz")}))
CALLS = st.one_of(
    HELPER,
    st.tuples(st.just("note"), st.fixed_dictionaries({"n": st.integers(0, 2)})),
    st.tuples(st.just("wipe"), st.fixed_dictionaries({"path": st.sampled_from("ab")})),
    st.tuples(st.just("pay"), st.fixed_dictionaries({"amount": st.sampled_from([50, 500])})),
    HELPER,
    st.tuples(st.just("nope"), st.just({})),
)
SCRIPTS = st.lists(st.lists(CALLS, min_size=1, max_size=4), min_size=1, max_size=3)
AMPLE = 99
OPTIONS = st.fixed_dictionaries(
    {
        "sequential": st.sampled_from(["defer", "in_step"]),
        "limits": st.builds(
            Limits,
            max_parallel_calls=st.integers(1, 3),
            on_limit=st.sampled_from(["stop", "finish"]),
        ),
        "max_tool_calls": st.none() | st.none() | st.integers(1, 6),
        "max_iterations": st.just(AMPLE + 1) | st.integers(2, 12),
        "loop_threshold": st.sampled_from([None, 2, 3]),
        "dedupe": st.sampled_from(["evidence", "strict", "off"]),
    }
)


def scripted(script):
    return [
        calls(*(call(name, f"c{at}.{place}", **given) for place, (name, given) in enumerate(batch)))
        for at, batch in enumerate(script)
    ]


def family(options, needs_approval):
    """Recorded tools, and a subagent with the same ones, whose model depends on its history.

    If a budget may be exhausted, its calls run alone: which of several would get the rest is random.
    """
    recorded = RecordedTools()
    tools = [
        one if needs_approval else tool(one, requires_approval=False) for one in recorded.tools
    ]

    def model(messages):
        done = sum(message["role"] == "assistant" for message in messages)
        task = messages[0]["content"]
        batch = calls(
            call("note", f"{task}{done}n", n=7), call("wipe", f"{task}{done}w", path=task)
        )
        return batch if done < 2 else f"did {task}"

    inner = Loop(tools=tools, sequential="in_step", limits=Limits(max_parallel_calls=1))
    is_ample = options["max_tool_calls"] is None and options["max_iterations"] > AMPLE
    subagent = inner.as_tool("helper", "Helps.", model, parallel_safe=is_ample)
    return recorded, [*tools, subagent]


def resumed(loop, paused, model, choose, decision):
    """Resume with decisions on some of the pending calls, from a state stored as JSON."""
    ids = [one.id for one in paused.pending]
    picked = {call_id: decision for call_id in ids if choose()}
    picked = picked or {ids[0]: decision}
    return SYNC.resume(loop, json.loads(json.dumps(paused.state)), picked, model)


@settings(max_examples=40)
@given(SCRIPTS, OPTIONS, st.data())
def test_with_every_call_approved_the_result_is_that_of_a_run_without_approvals(
    script, options, data
):
    recorded, tools = family(options, needs_approval=True)
    loop, model = Loop(tools=tools, **options), ScriptedLLM(*scripted(script), "done", "end", "end")
    result = SYNC.run(loop, model)
    while isinstance(result, Paused):
        before = copy.deepcopy(result.state)
        pause = result
        result = resumed(loop, pause, model, lambda: data.draw(st.booleans()), approve)
        assert pause.state == before
    free_recorded, free_tools = family(options, needs_approval=False)
    free = SYNC.run(
        Loop(tools=free_tools, **options), ScriptedLLM(*scripted(script), "done", "end", "end")
    )
    assert result.messages == free.messages
    assert recorded.did == free_recorded.did
    assert (result.stop_reason, result.iterations, result.tool_calls_count, result.usage) == (
        free.stop_reason,
        free.iterations,
        free.tool_calls_count,
        free.usage,
    )


@settings(max_examples=20)
@given(SCRIPTS, OPTIONS, st.data())
def test_with_every_call_denied_no_call_that_needs_approval_runs(script, options, data):
    recorded, tools = family(options, needs_approval=True)
    loop, model = Loop(tools=tools, **options), ScriptedLLM(*scripted(script), "done", "end", "end")
    result = SYNC.run(loop, model)
    while isinstance(result, Paused):
        result = resumed(loop, result, model, lambda: data.draw(st.booleans()), deny("no"))
    assert not any(done.startswith(("wipe", "pay 500")) for done in recorded.done)
    nodes = [made for node in result.run.nodes for made in node.tool_calls]
    assert len(nodes) == result.tool_calls_count
