"""The handle: watching and ending a run from outside it."""

import anyio
import pytest

from treadle import Err, Loop, OptionError, RunCancelled, RunHandle, tool
from treadle.events import ToolFinished, ToolStarted
from treadle.testing import ScriptedLLM, call, calls

from .conftest import USER, of


def test_before_a_run_it_is_empty():
    handle = RunHandle()
    assert (handle.state, handle.result, handle.messages, handle.in_flight) == (None, None, [], ())
    assert handle.cancel_all() == ()


def test_after_a_run_it_has_the_result_the_state_and_the_messages():
    handle = RunHandle()
    result = Loop.run_sync(USER, lambda m: "Hello", handle=handle)
    assert handle.result is result
    assert handle.state is result.run
    assert handle.messages == result.messages
    handle.messages[0]["content"] = "broken"
    assert handle.messages == result.messages


def test_it_belongs_to_one_run():
    loop = Loop(handle=RunHandle())
    loop.run_sync(USER, lambda m: "x")
    with pytest.raises(OptionError, match="a RunHandle belongs to one run"):
        loop.run_sync(USER, lambda m: "x")


def test_a_stream_is_its_own_handle():
    async def main():
        async with Loop.stream(USER, lambda m: "x", handle=RunHandle()):
            pass

    with pytest.raises(OptionError, match="a stream is the handle of its run"):
        anyio.run(main)


def test_while_a_tool_runs_it_is_in_flight(way):
    handle, seen = RunHandle(), []

    @tool
    def look():
        seen.append((handle.in_flight, handle.state.is_running, handle.messages))

    way.run(Loop(tools=[look]), ScriptedLLM(calls(call("look", "a")), "done"), handle=handle)
    ((in_flight, running, messages),) = seen
    assert [one.id for one in in_flight] == ["a"]
    assert running
    assert messages == USER
    assert handle.in_flight == ()


def test_cancel_ends_the_run_with_an_err_and_a_valid_history(way):
    handle = RunHandle()

    @tool
    async def hang():
        handle.cancel()
        await anyio.sleep(10)

    script = ScriptedLLM(calls(call("hang"), call("hang")))
    result = way.run(Loop(tools=[hang]), script, handle=handle)
    assert isinstance(result, Err)
    assert result.reason == RunCancelled()
    assert result.messages[-1]["content"].startswith("Cancelled: ")
    assert handle.result is result


def test_a_run_that_is_cancelled_before_it_starts_does_not_call_the_model():
    handle = RunHandle()
    handle.cancel()
    with ScriptedLLM() as model:
        result = Loop.run_sync(USER, model, handle=handle)
    assert result.reason == RunCancelled()
    assert result.messages == USER


def test_cancel_all_stops_the_tools_and_the_run_continues(way):
    handle, events, stopped = RunHandle(), [], []

    @tool
    async def hang():
        stopped.extend(handle.cancel_all())
        await anyio.sleep(10)

    with ScriptedLLM(calls(call("hang", "a")), "then not") as script:
        result = way.run(Loop(tools=[hang], on_event=events.append), script, handle=handle)
    assert result.unwrap().content == "then not"
    assert [one.id for one in stopped] == ["a"]
    assert script.sent[1].messages[-1]["content"].startswith("Cancelled: ")
    assert len(of(events, ToolStarted)) == 1
    (finished,) = of(events, ToolFinished)
    assert finished.result.status == "cancelled"


@pytest.mark.parametrize("sequential", ["defer", "in_step"])
def test_calls_that_did_not_start_because_of_cancel_all_are_not_counted(sequential):
    handle, ran = RunHandle(), []

    @tool(parallel_safe=False)
    def stop(n: int):
        ran.append(n)
        handle.cancel_all()

    several = calls(*(call("stop", f"a{n}", n=n) for n in range(3)))
    script = ScriptedLLM(several, calls(call("stop", n=5)), calls(call("stop", n=6)), "done")
    options = {"handle": handle, "sequential": sequential, "max_tool_calls": 3}
    result = Loop.run_sync(USER, script, tools=[stop], **options)
    assert result.unwrap().content == "done"
    assert ran == [0, 5, 6]
