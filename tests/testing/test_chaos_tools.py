"""`ChaosTools`: what the tools are, what they do, and what is logged of their runs."""

from __future__ import annotations

import asyncio
import collections
import inspect
import re
import threading

import anyio
import pytest

from treadle import Loop, Tool, ToolContext
from treadle.testing import ChaosTools, ScriptedLLM, call, calls, check_history
from treadle.testing.chaos import ToolRun
from treadle.testing.chaos.arguments import valid_arguments
from treadle.testing.chaos.dice import Dice
from treadle.testing.chaos.replies import Reply

USER = [{"role": "user", "content": "Go."}]


@pytest.fixture(autouse=True, scope="module")
def runner():
    """One event loop for all async tools."""
    with asyncio.Runner() as made:
        RUNNERS.append(made)
        yield
    RUNNERS.clear()


RUNNERS = []


def used(tool, arguments, seconds=30):
    """The result of a tool, or the error that it raises."""
    arguments = dict(arguments)
    if "_context" in inspect.signature(tool.fn).parameters:
        arguments["_context"] = ToolContext("a", tool.name, 1)

    async def awaited():
        with anyio.move_on_after(seconds):
            return await tool.fn(**arguments)
        return "cancelled"

    try:
        if tool.is_async:
            return RUNNERS[0].run(awaited())
        value = tool.fn(**arguments)
        if inspect.iscoroutine(value):
            value.close()
    except BaseException as error:
        return error
    return value


def some_arguments(tool, count=4):
    return [valid_arguments(Dice(str(n)), tool.input_schema) for n in range(count)]


def is_simple(tool):
    """Whether it never hangs, and has no defaults that make different arguments the same."""
    return tool.timeout is None and tool.signature is None


def distinct_arguments(tool):
    """Arguments of which no two are equal."""
    return list({str(given): given for given in some_arguments(tool)}.values())


# What they are.


def test_they_are_a_list_of_tools():
    tools = ChaosTools(1, count=4)
    assert len(tools) == len(list(tools)) == 4
    assert all(isinstance(tool, Tool) for tool in tools)
    assert tools[0] is next(iter(tools))
    assert list(tools[1:]) == list(tools)[1:]
    assert len({tool.name for tool in tools}) == 4
    assert Loop(tools=tools).tools.keys() == {tool.name for tool in tools}


def test_there_may_be_more_than_there_are_kinds():
    names = [tool.name for tool in ChaosTools(0, count=25)]
    assert len(set(names)) == 25
    assert sum(name.startswith("search") for name in names) >= 2


def facts_of(tools):
    return [
        (
            tool.name,
            tool.input_schema,
            tool.is_async,
            tool.timeout,
            tool.retries,
            tool.parallel_safe,
        )
        for tool in tools
    ]


@pytest.mark.parametrize("seed", range(10))
def test_the_same_seed_makes_the_same_tools(seed):
    assert facts_of(ChaosTools(seed)) == facts_of(ChaosTools(seed))


def test_every_option_occurs():
    tools = [tool for seed in range(120) for tool in ChaosTools(seed)]
    for option, least in (
        ("is_async", 2),
        ("parallel_safe", 2),
        ("timeout", 3),
        ("retries", 3),
        ("volatile", 2),
        ("dedupe", 3),
        ("terminal", 2),
        ("max_uses", 4),
        ("max_parallel", 4),
        ("requires_fresh_input", 2),
    ):
        assert len({getattr(tool, option) for tool in tools}) == least, option
    assert {tool.requires_approval for tool in tools} == {False}
    assert len({tool.lock for tool in tools}) == 4


def test_with_approvals_some_require_approval():
    tools = [tool for seed in range(60) for tool in ChaosTools(seed, approvals=True)]
    asked = collections.Counter(
        tool.approval_question({"query": "x", "limit": 1}) is None for tool in tools
    )
    assert asked[True] > 20
    assert asked[False] > 20


def test_their_text_makes_them_again():
    tools = ChaosTools(5, count=3, approvals=True)
    again = eval(repr(tools))  # noqa: S307 - that is what it is for
    assert facts_of(again) == facts_of(tools)
    assert again.seed == 5


# What they do.


def test_every_behaviour_occurs():
    """Within two hundred seeds, with a few calls of each tool."""
    seen = set()
    for seed in range(200):
        tools = ChaosTools(seed)
        for tool in tools:
            if tool.timeout is None or seed < 30:
                for arguments in some_arguments(tool, 3) * 4:
                    used(tool, arguments, seconds=0.05)
        seen.update(tools.behaviours)
        if seen == set(ChaosTools.BEHAVIOURS):
            break
    assert seen == set(ChaosTools.BEHAVIOURS)


def shown(value):
    try:
        return re.sub(r"0x[0-9a-f]+", "", f"{type(value)} {value!r:.2000}")
    except Exception:
        return str(type(value))


@pytest.mark.parametrize("seed", range(20))
def test_what_they_do_does_not_depend_on_the_order_of_the_calls(seed):
    """It depends on the arguments and on their number of calls, so threads change nothing."""

    def outcomes(step):
        tools = ChaosTools(seed)
        pairs = [
            (tool, given) for tool in tools if is_simple(tool) for given in distinct_arguments(tool)
        ]
        return {
            f"{tool.name} {given} {time}": shown(used(tool, given))
            for time in range(2)
            for tool, given in pairs[::step]
        }

    assert outcomes(1) == outcomes(-1)


def test_a_tool_may_always_raise_the_same_error():
    for seed in range(400):
        tools = ChaosTools(seed, count=1)
        if "nature: always raises the same" in tools.behaviours and tools[0].timeout is None:
            break
    errors = [used(tools[0], arguments) for arguments in some_arguments(tools[0])]
    assert all(isinstance(error, BaseException) for error in errors)
    assert len({shown(error) for error in errors}) == 1


# What is logged.


def test_runs_are_logged_with_copies_of_their_arguments():
    tools = ChaosTools(0, count=9)
    tool = next(tool for tool in tools if tool.name == "search")
    arguments = {"query": "x", "limit": 3}
    used(tool, arguments)
    arguments["query"] = "y"
    run = tools.runs[0]
    assert (run.name, run.arguments, run.overlapping) == ("search", {"query": "x", "limit": 3}, ())
    assert set(tools.behaviours) <= set(ChaosTools.BEHAVIOURS)
    assert isinstance(run, ToolRun)


def test_arguments_that_are_too_deep_to_copy_are_marked():
    deep = 1
    for _ in range(3_000):
        deep = [deep]
    tools = ChaosTools(0, count=9)
    used(next(tool for tool in tools if tool.name == "ping"), {"x": deep})
    assert tools.runs[0].arguments == {"...": "nested too deeply to copy"}


def meeting(timeout):
    """The runs of two calls of an async tool that wait for each other, and of a third one."""
    tools = ChaosTools(0)
    started = asyncio.Event()

    async def meet(called):
        await started.wait() if called.number == 1 else started.set()

    options = {} if timeout is None else {"timeout": timeout}
    tool = tools._tool("ping", "ping", True, options, lambda _dice, called: Reply(meet(called)))

    async def main():
        await asyncio.gather(tool.fn(), tool.fn())
        await tool.fn()

    asyncio.run(main())
    return tools.runs


def test_runs_that_overlap_are_logged():
    first, second, third = meeting(timeout=None)
    assert first.overlapping == ()
    assert second.overlapping == (first,)
    assert third.overlapping == ()


def test_a_tool_with_a_timeout_does_not_count_as_in_progress():
    """Its caller may have abandoned it."""
    assert [run.overlapping for run in meeting(timeout=1)] == [(), (), ()]


def test_threads_may_use_them_at_once():
    tools = ChaosTools(3, count=9)
    tool = next(tool for tool in tools if not tool.is_async and tool.timeout is None)
    arguments = some_arguments(tool, 1)[0]
    threads = [threading.Thread(target=used, args=(tool, arguments)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tools.runs) == 8
    assert len(tools._in_progress) == 0


def test_a_loop_runs_them():
    tools = ChaosTools(0, count=9)
    script = calls(call("ping"), call("add", a=1), call("search", query="x"))
    with ScriptedLLM(script, "Done.") as model:
        result = Loop.run_sync(USER, model, tools=tools)
    check_history(result.messages)
    assert {run.name for run in tools.runs} <= {"ping", "add", "search"}
    assert tools.runs
