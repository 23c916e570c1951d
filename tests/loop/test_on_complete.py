"""`on_complete` gets the completion of each run, as data, on each exit."""

import anyio
import pytest
from tests.deciding import on
from tests.telemetry.exits import DRIVERS, EXITS, USER, end, go, sign
from tests.whole.cancelling import DRIVES, cancelled_everywhere

from treadle import Loop, RunSummary, approve
from treadle.events import IterationStarted, RunFinished, RunStarted
from treadle.testing import ScriptedLLM, call, calls


@pytest.fixture(params=DRIVERS)
def driver(request):
    return request.param


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("stop_reason", EXITS)
def test_it_is_called_on_every_exit(driver, stop_reason, is_async):
    completions = []

    async def later(completion):
        await anyio.sleep(0)
        completions.append(completion)

    result = end(driver, stop_reason, on_complete=later if is_async else completions.append)
    reason = getattr(result, "reason", None)
    assert completions == [
        RunSummary(
            agent_name="bot",
            run_id=result.run.run_id,
            stop_reason=stop_reason,
            total_iterations=result.iterations,
            tool_calls_count=result.tool_calls_count,
            usage=result.usage,
            duration=0.0,
            error=None if reason is None else str(reason),
        )
    ]
    assert completions[0].run_id == result.run.run_id
    assert 0 <= completions[0].duration < 5
    assert RunSummary.name == "treadle.loop.complete"


def test_the_completion_of_a_resumed_run_has_all_its_iterations(driver):
    completions = []
    options = {"tools": [sign], "on_complete": completions.append}
    model = ScriptedLLM(calls(call("sign", "c1")), "done")
    paused = go(driver, USER, model, **options)
    loop = Loop(**options)
    if driver == "sync":
        loop.resume_sync(paused, on(paused, {"c1": approve}), model)
    else:
        anyio.run(lambda: loop.resume(paused, on(paused, {"c1": approve}), model), backend=driver)
    assert [(each.stop_reason, each.total_iterations) for each in completions] == [
        ("paused", 1),
        ("answered", 2),
    ]
    assert completions[0].run_id == completions[1].run_id


def test_a_subagent_has_its_own_completions(driver):
    completions = []
    kid = Loop(name="kid", on_complete=completions.append)
    subagent = kid.as_tool("helper", "", lambda messages: "in")
    batch = calls(*(call("helper", f"k{n}", task=f"{n}") for n in range(3)))
    result = go(driver, USER, ScriptedLLM(batch, "out"), tools=[subagent], name="bot")
    assert {each.run_id for each in completions} == {f"{result.run.run_id}/k{n}" for n in range(3)}
    assert {each.agent_name for each in completions} == {"kid"}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_that_is_cancelled_before_it_started_is_completed(backend):
    """While an earlier observer handles the start."""
    completions, seen = [], []

    async def main():
        async def slow(event):
            if isinstance(event, RunStarted):
                scope.cancel()
            await anyio.sleep(0)

        async def too_late(event):
            seen.append(event)

        with anyio.CancelScope() as scope:
            observers = [slow, seen.append, too_late]
            await Loop.run(USER, lambda m: "x", on_event=observers, on_complete=completions.append)

    anyio.run(main, backend=backend)
    assert [each.stop_reason for each in completions] == ["cancelled"]
    assert [type(event) for event in seen] == [RunStarted, RunFinished, RunFinished]


@pytest.mark.parametrize("place", [RunStarted, IterationStarted, RunFinished])
def test_a_run_that_an_observer_interrupts_is_completed(driver, place):
    completions = []

    def interrupt(event):
        if isinstance(event, place):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(driver, USER, ScriptedLLM("x"), on_event=interrupt, on_complete=completions.append)
    assert len(completions) == 1


@pytest.mark.parametrize("drive", DRIVES.values(), ids=DRIVES)
def test_wherever_a_run_is_cancelled_it_and_its_subagents_complete_once(drive):
    """Of the subagents, those that started: the observers of their loop received the start."""

    def scenario(run):
        run.completions, run.starts = [], []

        async def observe(event):
            await anyio.lowlevel.checkpoint()

        options = {
            "on_event": [observe, lambda event: note(run, event)],
            "on_complete": run.completions.append,
        }
        kid = Loop(tools=[run.rest()], name="kid", **options)
        script = ScriptedLLM(calls(call("rest", "i", seconds=0)), "in", is_async=True)
        subagent = kid.as_tool("helper", "", script)
        batch = calls(call("helper", "k", task="a"), call("rest", "c", seconds=0.001))
        model = ScriptedLLM(batch, "out", is_async=True)
        return run.run(model, tools=[subagent, run.rest()], on_complete=run.completions.append)

    def note(run, event):
        run.starts += [event.run_id] if isinstance(event, RunStarted) else []

    for run in cancelled_everywhere(drive, scenario):
        runs = [each.run_id for each in run.completions]
        assert sorted(runs) == sorted([*run.starts, run.handle.state.run_id])
