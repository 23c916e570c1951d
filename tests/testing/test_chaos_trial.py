"""Runs with misbehaving models and tools under any options: no violation; and violations are found."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from chaos_checks import Facts, violations
from chaos_trial import OPTIONS, Trial, UnprintableError
from tests.programs import run_program

from treadle import (
    Err,
    Limits,
    Ok,
    PipelineFailed,
    Response,
    RunFinished,
    RunState,
    ToolCall,
    ToolStarted,
)
from treadle.testing import ChaosTools, call, calls
from treadle.testing.chaos import ToolRun

USER = [{"role": "user", "content": "Go."}]


@pytest.mark.parametrize("seed", range(400))
def test_a_run_has_no_violations(seed):
    verdict = Trial(seed).run()
    assert verdict.violations == [], verdict.story
    assert verdict.stop_reason != "none"


# Violations are found.


def facts(**changes):
    """A run in which nothing is wrong, with some changes."""
    state = changes.pop("state", None)
    if state is None:
        state = RunState("a", "b")
        state.start()
        state.succeed()
    tools, others = changes.pop("tools", having_run)(), changes.pop("others", list)()
    messages = changes.pop("messages", [*USER, {"role": "assistant", "content": "Done."}])
    of_result = {"iterations": 1, "tool_calls_count": 5, "run": state}
    of_result |= {key: changes.pop(key) for key in list(changes) if key in of_result}
    result = changes.pop("result", None) or Ok(Response("Done."), messages, **of_result)
    return Facts(
        **{
            "result": result,
            "given": USER,
            "options": {},
            "tools": tools,
            "others": others,
            **changes,
        }
    )


def running():
    state = RunState("a", "b")
    state.start()
    state.new_node().start()
    return state


def having_run(*runs, **options):
    """Tools with some runs, each of which overlaps all before it."""
    tools = ChaosTools(0, count=9)
    plain = {"parallel_safe": True, "max_parallel": None, "lock": None, "timeout": None}
    plain |= {"max_uses": None, "retries": 0}
    tools._tools = tuple(
        dataclasses.replace(tool, **(plain | options if tool.name == "ping" else plain))
        for tool in tools
    )
    for name, arguments in runs:
        tools.runs.append(ToolRun(name, arguments, (), tuple(tools.runs)))
    return tools


CALM = {"role": "assistant", "content": "Calm."}
PING, FILE = ("ping", {}), ("read_file", {"path": "a"})
FINISHED = RunFinished(
    stop_reason="answered", total_iterations=1, tool_calls_count=0, result=None, at=0.0
)
STARTED = ToolStarted(iteration=1, call=ToolCall("a", "ping"), at=0.0)
UNSENDABLE = "history: messages[1]: values that cannot be sent"
WRONG = {
    "nothing": ({}, []),
    "a call without an answer": (
        {"messages": [*USER, calls(call("ping", "a"))], "result": None},
        [
            "history: messages: calls a have no tool message at the end",
            "history: the answer is not its last message",
        ],
    ),
    "the given messages are gone": (
        {"messages": [{"role": "user", "content": "Other"}, {"role": "assistant", "content": "x"}]},
        ["history: it does not begin with the given messages"],
    ),
    "the last given message was joined with another": (
        {"messages": [{"role": "user", "content": "Go. And?"}, CALM], "has_handle": True},
        [],
    ),
    "a user message after the answer": ({"messages": [*USER, CALM, *USER]}, []),
    "a lone surrogate": (
        {"messages": [*USER, {"role": "assistant", "content": "a", "x": "\ud83d"}]},
        [UNSENDABLE, "history: it cannot be sent: UnicodeEncodeError"],
    ),
    "NaN": (
        {"messages": [*USER, {"role": "assistant", "content": "a", "x": float("nan")}]},
        [UNSENDABLE, "history: it cannot be sent: ValueError"],
    ),
    "a stage that fails": (
        {"result": Err(PipelineFailed("plan_calls", "x", "KeyError"), [*USER])},
        ["stages: 'plan_calls' raised KeyError: x"],
    ),
    "a stage of the trial that fails": (
        {"result": Err(PipelineFailed("plan_calls", "x", "UnprintableError"), [*USER])},
        [],
    ),
    "too many iterations": ({"iterations": 11}, ["limits: 11 iterations, at most 10 are allowed"]),
    "two more to finish": (
        {"iterations": 12, "options": {"limits": Limits(on_limit="finish")}},
        [],
    ),
    "too many calls": ({"options": {"max_tool_calls": 4}}, ["limits: 5 tool calls"]),
    "too late": ({"seconds": 9.0, "options": {"max_seconds": 1}}, ["limits: it took 9.0 s"]),
    "a run in progress": (
        {"state": running()},
        ["run state: the run is running", "run state: iteration  of iteration 0 is running"],
    ),
    "arguments that the schema refuses": (
        {"tools": lambda: having_run(("read_file", {"path": 5}))},
        ["tools: 'read_file' ran with invalid arguments: path: expected string"],
    ),
    "more runs than calls": (
        {"tools": lambda: having_run(PING, PING), "tool_calls_count": 1},
        ["tools: 2 runs for 1 calls"],
    ),
    "more runs than uses": (
        {"tools": lambda: having_run(PING, PING, max_uses=1)},
        ["tools: 'ping' ran 2 times with max_uses=1"],
    ),
    "a tool that is not parallel-safe": (
        {"tools": lambda: having_run(PING, FILE, parallel_safe=False)},
        ["tools: 'read_file' and 'ping' ran at once"],
    ),
    "too many of one": (
        {"tools": lambda: having_run(PING, PING, max_parallel=1)},
        ["tools: 2 calls of 'ping' at once"],
    ),
    "the same lock": (
        {"tools": lambda: having_run(PING, PING, lock="file")},
        ["tools: 'ping' and 'ping' ran at once with the same lock"],
    ),
    "too many at once": (
        {
            "tools": lambda: having_run(PING, FILE),
            "options": {"limits": Limits(max_parallel_calls=1)},
        },
        ["tools: 2 calls at once, at most 1 are allowed"],
    ),
    "a tool that is not parallel-safe, cancelled through a handle": (
        {"tools": lambda: having_run(PING, FILE, parallel_safe=False), "has_handle": True},
        [],
    ),
    "a tool that is not parallel-safe, in a subagent": (
        {"others": lambda: [having_run(PING, PING, parallel_safe=False, max_parallel=1)]},
        [],
    ),
    "the same lock in a subagent": (
        {"others": lambda: [having_run(PING, PING, lock="file")]},
        ["tools: 'ping' and 'ping' ran at once with the same lock"],
    ),
    "a tool that is not parallel-safe, and may have been abandoned": (
        {"tools": lambda: having_run(PING, PING, parallel_safe=False, timeout=1)},
        [],
    ),
    "one end event": ({"events": [STARTED, FINISHED]}, []),
    "no end event": ({"events": []}, ["events: 0 RunFinished, or not at the end"]),
    "two end events": (
        {"events": [FINISHED, FINISHED]},
        ["events: 2 RunFinished, or not at the end"],
    ),
    "a call that was started twice": (
        {"events": [STARTED, STARTED, FINISHED]},
        ["events: 'a' was started 2 times"],
    ),
    "a result that cannot be shown": (
        {"result": Err(UnprintableError(), [*USER], iterations=1, tool_calls_count=0)},
        ["result: it cannot be shown: RuntimeError: no text"],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), WRONG.values(), ids=WRONG)
def test_violations_are_found(changes, expected):
    found = list(violations(facts(**changes)))
    assert len(found) == len(expected), found
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True)), found


def test_a_trial_that_raises_or_changes_the_messages_of_its_caller_is_a_violation():
    trial = Trial(0)
    trial.messages.append({"role": "user", "content": "x"})

    def to_the_end(_verdict):
        trial.messages.clear()
        raise KeyError("x")

    trial._run_to_the_end = to_the_end
    (violation,) = trial.run().violations
    assert violation.startswith("raised: KeyError: 'x' (chaos_trial.py:")

    trial = Trial(1)
    trial.options["llm_opts"] = {"a": {"b": 1}}
    run = trial._run_to_the_end

    def spoil(verdict):
        trial.options["llm_opts"]["a"].clear()
        return run(verdict)

    trial._run_to_the_end = spoil
    assert "the caller's messages, options or schemas were changed" in trial.run().violations


def test_trials_have_every_option_and_driver():
    trials = [Trial(seed) for seed in range(150)]
    assert {trial.way for trial in trials} == {"sync", "asyncio", "trio", "stream"}
    options = {option for trial in trials for option in trial.options}
    assert options == {*OPTIONS, "retry_delay", "limits"}
    stories = " ".join(trial.story for trial in trials)
    for what in (
        "with a listener",
        "with a handle",
        "with a subagent",
        "with a resolver",
        "hangs=True",
    ):
        assert what in stories
    assert "approvals=True" in stories


def test_the_benchmark_prints_how_runs_ended():
    script = Path(__file__).parents[2] / "benchmarks" / "chaos.py"
    done = run_program([sys.executable, str(script), "--start", "0", "--seeds", "3", "--jobs", "1"])
    assert "| stop reason | runs |" in done.stdout, done.stderr
    assert "\n3 seeds in " in done.stdout
    assert "Violations: 0 in 0 seeds." in done.stdout
    assert done.returncode == 0
