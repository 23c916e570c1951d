"""The span of a resumed run links to that of the paused run."""

import json

import anyio
import pytest
from tests.deciding import on

from treadle import Loop, RunState, Telemetry, approve, deny, tool
from treadle.codec import decode
from treadle.pauses import digest_of
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER
from .watching import Watch


@tool(requires_approval=True)
def sign(n: int):
    return "signed"


def run(driver, loop, model):
    if driver == "sync":
        return loop.run_sync(USER, model)
    return anyio.run(lambda: loop.run(USER, model), backend=driver)


def resume(driver, loop, state, decisions, model):
    """Resume in another loop, from the state as text."""
    given, decisions = json.dumps(state), on(state, decisions)
    if driver == "sync":
        return loop.resume_sync(given, decisions, model)
    return anyio.run(lambda: loop.resume(given, decisions, model), backend=driver)


def bot(watch=None, *, tools=(sign,)):
    return Loop(tools=list(tools), name="bot", **({} if watch is None else watch.options))


def signing(call_id="c1"):
    return calls(call("sign", call_id, n=int(call_id[1:])))


def helper(*script):
    loop = Loop(tools=[sign], name="kid")
    return loop.as_tool("helper", "Helps.", ScriptedLLM(*script))


def asked(call_id="k"):
    return calls(call("helper", call_id, task="a"))


def test_a_resumed_run_links_to_the_paused_span(driver):
    before, after = Watch(), Watch()
    paused = run(driver, bot(before), ScriptedLLM(signing()))
    resume(driver, bot(after), paused.state, {"c1": approve}, ScriptedLLM("done"))
    first, second = before.one("invoke_agent bot"), after.one("invoke_agent bot")
    (link,) = second.links
    assert link.context.trace_id == first.context.trace_id
    assert link.context.span_id == first.context.span_id
    assert link.context.trace_flags == first.context.trace_flags
    assert link.context.is_remote
    assert dict(link.attributes) == {"treadle.link": "continues"}
    assert first.links == ()
    assert second.context.trace_id != first.context.trace_id
    assert (second.attributes[names.RESUMED], first.attributes.get(names.RESUMED)) == (True, None)
    assert second.attributes[names.RUN_ID] == first.attributes[names.RUN_ID]


def test_a_run_that_is_paused_twice_links_to_the_latest_span(driver):
    watch = Watch()
    script = ScriptedLLM(signing("c1"), signing("c2"), "done")
    paused = run(driver, bot(watch), script)
    paused = resume(driver, bot(watch), paused.state, {"c1": approve}, script)
    resume(driver, bot(watch), paused.state, {"c2": deny("No.")}, script)
    first, second, third = watch.named("invoke_agent bot")
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    assert [link.context.span_id for link in third.links] == [second.context.span_id]


def test_a_resumed_subagent_links_to_its_own_paused_span(driver):
    before, after = Watch(), Watch()
    paused = run(driver, bot(before, tools=[helper(signing("i1"))]), ScriptedLLM(asked()))
    loop = bot(after, tools=[helper("in")])
    resume(driver, loop, paused.state, {"k/i1": approve}, ScriptedLLM("out"))
    for name in ("invoke_agent bot", "invoke_agent kid"):
        (link,) = after.one(name).links
        assert link.context.span_id == before.one(name).context.span_id, name
        assert after.one(name).attributes[names.RESUMED] is True
    assert after.one("execute_tool helper").links == ()
    after.check_whole(runs=1)


def test_there_is_no_link_if_the_paused_run_had_no_span(driver):
    watch = Watch()
    paused = run(driver, bot(tools=[sign, helper(signing("i1"))]), ScriptedLLM(asked()))
    assert decode(paused.state["state"]).traceparent is None
    loop = bot(watch, tools=[sign, helper("in")])
    resume(driver, loop, paused.state, {"k/i1": approve}, ScriptedLLM("out"))
    assert [span.links for span in watch.spans] == [()] * len(watch.spans)


@pytest.mark.parametrize("measures", [False, True])
def test_the_link_is_kept_if_the_resumed_run_has_no_span(driver, measures):
    """A part of a run without a span does not break the chain, with and without metrics."""
    before, after = Watch(), Watch()
    script = ScriptedLLM(signing("c1"), signing("c2"), "done")
    paused = run(driver, bot(before), script)
    between = bot().with_options(
        **({"telemetry": Telemetry(meter_provider=before.meters)} if measures else {})
    )
    paused = resume(driver, between, paused.state, {"c1": approve}, script)
    resume(driver, bot(after), paused.state, {"c2": approve}, script)
    (link,) = after.one("invoke_agent bot").links
    assert link.context.span_id == before.one("invoke_agent bot").context.span_id


def without_traceparent(value):
    """A state of an older version."""
    if isinstance(value, dict):
        return {k: without_traceparent(v) for k, v in value.items() if k != "traceparent"}
    return [without_traceparent(each) for each in value] if isinstance(value, list) else value


def test_a_state_without_a_traceparent_is_resumed():
    before, after = Watch(), Watch()
    paused = bot(before, tools=[helper(signing("i1"))]).run_sync(USER, ScriptedLLM(asked()))
    old = without_traceparent(paused.state)
    assert "traceparent" in json.dumps(paused.state)
    old["paused_runs"]["k"]["digest"] = digest_of(
        {key: value for key, value in old["paused_runs"]["k"].items() if key != "digest"}, None
    )
    old["digest"] = digest_of({key: value for key, value in old.items() if key != "digest"}, None)
    loop = bot(after, tools=[helper("in")])
    result = loop.resume_sync(json.dumps(old), on(old, {"k/i1": approve}), ScriptedLLM("out"))
    assert result.unwrap().content == "out"
    assert [span.links for span in after.spans] == [()] * len(after.spans)


def test_a_run_with_the_state_of_another_links_to_it(driver):
    watch, state = Watch(), RunState("bot")
    for _ in range(2):
        bot(watch).with_options(state=state).run_sync(USER, ScriptedLLM("done"))
    first, second = watch.named("invoke_agent bot")
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    assert names.RESUMED not in second.attributes


def test_the_state_has_the_traceparent_of_the_span(driver):
    watch = Watch()
    result = run(driver, bot(watch), ScriptedLLM("done"))
    span = watch.one("invoke_agent bot").context
    where = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    assert result.run.traceparent == where
    assert run(driver, bot(), ScriptedLLM("done")).run.traceparent is None
