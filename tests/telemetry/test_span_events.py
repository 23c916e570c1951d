"""The events of a run's span; none has content."""

import time

import pytest
from tests.compacting import compacting, failing, script

from treadle import CircuitBreaker, Limits, RunHandle, tool
from treadle.sessions import StubResults
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER, double, fail
from .watching import go


@tool(dedupe="off")
def clock():
    return "noon"


def noted(watch, name):
    """The attributes of the events with a name, in order."""
    events = [event for event in watch.one("invoke_agent").events if event.name == name]
    agent = watch.one("invoke_agent")
    assert all(agent.start_time <= event.timestamp <= agent.end_time for event in events)
    return [dict(event.attributes) for event in events]


def test_an_event_is_within_its_span_if_the_system_clock_steps(driver, watch, monkeypatch):
    monkeypatch.setattr("opentelemetry.sdk.trace.time_ns", lambda: time.time_ns() + 10**12)
    model = ScriptedLLM(calls(call("double", "a", n=1), call("double", "b", n=1)), "done")
    go(driver, USER, model, tools=[double], **watch.options)
    assert len(noted(watch, "treadle.tool_call.not_run")) == 1


def test_calls_that_do_not_run(driver, watch):
    batch = calls(call("double", "a", n=1), call("double", "b", n=1), call("double", "c", n=2))
    model = ScriptedLLM(batch, calls(call("double", "d", n=1)), "done")
    options = {**watch.options, "dedupe": "strict"}
    go(driver, USER, model, tools=[double], limits=Limits(max_parallel_calls=1), **options)
    assert noted(watch, "treadle.tool_call.not_run") == [
        {
            "gen_ai.tool.name": "double",
            "treadle.iteration": iteration,
            "gen_ai.tool.call.id": call_id,
            "treadle.reason": reason,
        }
        for iteration, call_id, reason in (
            (1, "b", "duplicate_in_batch"),
            (1, "c", "parallel_cap"),
            (2, "d", "no_new_evidence"),
        )
    ]


def test_repeated_calls(driver, watch):
    model = ScriptedLLM(*(calls(call("clock", f"c{n}")) for n in range(4)), "done")
    go(driver, USER, model, tools=[clock], loop_threshold=None, **watch.options)
    reported = {"gen_ai.tool.name": "clock"}
    assert noted(watch, "treadle.tool_call.repeat_warned") == [
        {**reported, "treadle.iteration": n, "gen_ai.tool.call.id": f"c{n - 1}", "treadle.count": n}
        for n in (3, 4)
    ]


@pytest.mark.parametrize(
    ("writer", "options"),
    [(lambda messages: "canary notes", {}), (None, {"strategies": [StubResults()]})],
    ids=["summarised", "shortened"],
)
def test_a_history_that_is_compacted_and_a_call_that_is_recalled(driver, watch, writer, options):
    model = ScriptedLLM(*script())
    go(driver, USER, model, **compacting(writer, **options), **watch.options)
    how = {"treadle.is_summarized": writer is not None}
    (compacted,) = noted(watch, "treadle.history.compacted")
    before, after = (compacted.pop(f"treadle.tokens_{when}") for when in ("before", "after"))
    assert compacted == {"treadle.iteration": 4, **how}
    assert before > 1_900 > after > 400
    assert noted(watch, "treadle.tool_call.not_run") == [
        {
            "gen_ai.tool.name": "look_up",
            "treadle.iteration": 4,
            "gen_ai.tool.call.id": "c3",
            "treadle.reason": "recalled",
        }
    ]
    counted = {
        name: [(dict(point.attributes), point.value) for point in watch.points(name)]
        for name in (names.COMPACTIONS, names.CALLS_NOT_RUN)
    }
    assert counted == {
        "treadle.compactions": [(how, 1)],
        "treadle.tool_calls.not_run": [
            ({"gen_ai.tool.name": "look_up", "treadle.reason": "recalled"}, 1)
        ],
    }
    assert "canary" not in watch.everything()


def test_a_history_that_is_not_summarised(driver, watch):
    go(driver, USER, ScriptedLLM(*script()), **compacting(failing), **watch.options)
    assert noted(watch, "treadle.history.compaction_failed") == [
        {"treadle.iteration": 4, "treadle.gives_up": False},
        {"treadle.iteration": 5, "treadle.gives_up": True},
    ]
    assert noted(watch, "treadle.history.compacted") == []
    assert "canary" not in watch.everything()


def test_a_circuit_breaker_that_changes_its_state(driver, watch):
    breaker = CircuitBreaker(threshold=1, cool_down=0)
    outcomes = iter([ValueError("no"), "yes"])

    @tool
    def fetch(n: int):
        outcome = next(outcomes)
        if isinstance(outcome, ValueError):
            raise outcome
        return outcome

    model = ScriptedLLM(calls(call("fetch", n=1)), calls(call("fetch", n=2)), "done")
    go(driver, USER, model, tools=[fetch], breaker=breaker, **watch.options)
    assert noted(watch, "treadle.circuit_breaker.transition") == [
        {
            "treadle.iteration": n,
            "gen_ai.tool.name": "fetch",
            "treadle.circuit_breaker.state": state,
        }
        for n, state in [(1, "open"), (2, "half_open"), (2, "closed")]
    ]
    counted = {
        point.attributes["treadle.circuit_breaker.state"]: point.value
        for point in watch.points(names.BREAKER_TRANSITIONS)
    }
    assert counted == {"open": 1, "half_open": 1, "closed": 1}


@pytest.mark.parametrize("on_limit", ["stop", "finish"])
def test_a_limit_that_is_reached(driver, watch, on_limit):
    model = ScriptedLLM(calls(call("double", n=1)), "so far")
    go(
        driver,
        USER,
        model,
        tools=[double],
        max_iterations=1,
        limits=Limits(on_limit=on_limit),
        **watch.options,
    )
    assert noted(watch, "treadle.limit.reached") == [
        {"treadle.iteration": 1, "treadle.stop_reason": "max_iterations_reached"}
    ]
    ends = {"stop": "max_iterations_reached", "finish": "finished"}
    assert watch.one("invoke_agent").attributes["treadle.stop_reason"] == ends[on_limit]


def test_user_messages_during_a_run(driver, watch):
    handle = RunHandle()

    @tool
    def hint():
        handle.steer("secret one")
        handle.steer("secret two")

    go(
        driver,
        USER,
        ScriptedLLM(calls(call("hint")), "x"),
        tools=[hint],
        handle=handle,
        **watch.options,
    )
    assert noted(watch, "treadle.user_message_added") == [
        {"treadle.iteration": 2, "treadle.count": 2}
    ]
    assert "secret" not in watch.everything()


def test_a_history_that_is_repaired(driver, watch):
    broken = [{"role": "tool", "tool_call_id": "c9", "content": "nobody asked"}, *USER]
    go(driver, broken, ScriptedLLM("x"), **watch.options)
    assert noted(watch, "treadle.history.repaired") == [{"treadle.count": 1}]


def test_the_end_of_each_iteration_with_its_stages(driver, watch):
    go(driver, USER, ScriptedLLM(calls(call("double", n=1)), "x"), tools=[double], **watch.options)
    first, second = noted(watch, "treadle.iteration.end")
    assert (first["treadle.iteration"], second["treadle.iteration"]) == (1, 2)
    assert "dispatch_tools" in first["treadle.stages"]
    assert "dispatch_tools" not in second["treadle.stages"]


def test_events_of_a_subagent_are_on_its_span(driver, watch):
    from treadle import Loop

    kid = Loop(tools=[fail], name="kid", max_iterations=1)
    child = kid.as_tool("helper", "", ScriptedLLM(calls(call("fail"))))
    go(
        driver,
        USER,
        ScriptedLLM(calls(call("helper", task="a")), "x"),
        tools=[child],
        **watch.options,
    )
    assert noted(watch, "treadle.limit.reached") == []
    reported = [event.name for event in watch.one("invoke_agent kid").events]
    assert reported == ["treadle.iteration.end", "treadle.limit.reached", "treadle.loop.complete"]


def test_the_options_of_a_request_are_on_its_span(driver, watch):
    """Only known options: a header may have a secret."""

    def model(messages, **opts):
        return "x"

    options = {
        "model": "m",
        "temperature": 0.5,
        "max_tokens": 9,
        "stop": ["a", "b"],
        "n": 1,
        "seed": 3,
        "reasoning_effort": "low",
        "extra_headers": {"authorization": "secret"},
        "user": "secret",
        "api_key": "secret",
    }
    go(driver, USER, model, llm_opts=options, **watch.options)
    chat = watch.one("chat m")
    assert dict(chat.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.stop_sequences": ("a", "b"),
        "gen_ai.request.choice.count": 1,
        "gen_ai.request.seed": 3,
        "gen_ai.request.reasoning.level": "low",
        "treadle.iteration": 1,
    }
    assert watch.one("invoke_agent").attributes["gen_ai.request.model"] == "m"
    assert "secret" not in watch.everything()
