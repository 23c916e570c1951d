"""What cannot run in a workflow is refused before a run starts, with the reason and what to do instead."""

import asyncio
import random

import pytest

from treadle import Loop, stage, tool
from treadle.durable.temporal import make_worker, run_on_temporal
from treadle.effects import Call, Sleep
from treadle.errors import OptionError
from treadle.loop.handle import RunHandle
from treadle.model import SharedLimit
from treadle.providers.middleware import ConcurrencyLimit
from treadle.run_state import RunState
from treadle.stages import ask_model
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import Locks

from . import running


@stage
async def waits(ctx):
    return ctx


class CustomLimit(SharedLimit):
    def __call__(self, request, send):
        return send(request)


REFUSED = {
    "async_stage": ({"stages": [..., waits]}, "stage 'waits' is an async def"),
    "locks": ({"locks": Locks()}, "locks: runs on Temporal share no table of locks"),
    "handle": ({"handle": RunHandle()}, "handle: a run on Temporal has its own"),
    "state": ({"state": RunState()}, "state: a run on Temporal makes its own"),
    "limit_of_a_stage": (
        {"stages": [ask_model(model_middleware=(ConcurrencyLimit(1),))]},
        "stage 'ask_model': model_middleware has a limit of requests that runs share",
    ),
    "custom_limit_of_a_stage": (
        {"stages": [ask_model(model_middleware=(CustomLimit(),))]},
        "stage 'ask_model': model_middleware has a limit of requests that runs share",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_worker_refuses_a_loop_that_cannot_run_in_a_workflow(name):
    options, reason = REFUSED[name]
    loop = Loop(llm_send_fn=ScriptedLLM("Hi."), name="mine", **options)

    async def make():
        make_worker(None, loop)

    with pytest.raises(OptionError, match=f"^loop 'mine': .*{reason}"):
        asyncio.run(make())


def test_a_worker_refuses_a_loop_with_such_a_subagent():
    inner = Loop(llm_send_fn=ScriptedLLM("Hi."), stages=[..., waits]).as_tool("inner", "Helps.")
    loop = Loop(llm_send_fn=ScriptedLLM("Hi."), name="mine", tools=[inner])

    async def make():
        make_worker(None, loop)

    with pytest.raises(OptionError, match=r"^loop 'mine/inner': stage 'waits' is an async def"):
        asyncio.run(make())


def test_a_run_of_a_loop_that_no_worker_has_fails_with_its_name(temporal_server):
    async def start(client):
        loop = Loop(llm_send_fn=ScriptedLLM("Hi."), name="known")
        async with running.serving(client, loop) as queue:
            await run_on_temporal(client, "knwon", "Hello.", task_queue=queue)

    with pytest.raises(OptionError, match=r"no loop 'knwon'; did you mean 'known'\?"):
        running.run(temporal_server, start)


def test_a_stage_that_yields_effects_runs_unchanged(temporal_server):
    """Its call is performed once, outside of the workflow, and its outcome is in the history."""
    drawn = []

    def draw():
        drawn.append(random.random())
        return drawn[-1]

    def lucky(ctx):
        number = yield Call(draw)
        yield Sleep(0.01)
        return ctx.remember("lucky", [*ctx.memo.get("lucky", []), number])

    @tool
    def again() -> str:
        """Go on."""
        return "on"

    seen = []

    def note(ctx):
        seen.append(list(ctx.memo["lucky"]))
        return ctx

    model = ScriptedLLM(calls(call("again")), "Done.")
    loop = Loop(llm_send_fn=model, tools=[again], name="lucky", stages=[lucky, note, ...])

    async def start(client):
        async with running.serving(client, loop, max_cached_workflows=0) as queue:
            run = await running.started(client, loop, queue)
            return await run.result()

    assert running.run(temporal_server, start).stop_reason == "answered"
    assert len(drawn) == 2
    assert seen[-1] == drawn  # on each replay, too


def test_the_sandbox_refuses_what_a_replay_would_not_repeat(temporal_server):
    def roll(ctx):
        import random

        return ctx.remember("dice", random.random())

    loop = Loop(llm_send_fn=ScriptedLLM("Done."), name="dice", stages=[roll, ...])
    result = running.run(temporal_server, running.result_of, loop)
    assert result.stop_reason == "pipeline_failed"
    assert "Cannot access random.random" in str(result.reason)


def test_an_outcome_that_is_no_data_is_an_error_of_its_stage(temporal_server):
    def odd(ctx):
        yield Call(object)
        return ctx

    loop = Loop(llm_send_fn=ScriptedLLM("Done."), name="odd", stages=[odd, ...])
    result = running.run(temporal_server, running.result_of, loop)
    assert result.stop_reason == "pipeline_failed"
    assert "outcome: expected data" in str(result.reason)
