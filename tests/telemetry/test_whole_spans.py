"""No span is lost, has the wrong parent or stays open, wherever a run is cancelled."""

import gc
from dataclasses import dataclass, field

import anyio
import pytest
from tests.whole.cancelling import DRIVES, Cancelling
from tests.whole.scripts import HELLO, Busy, completion_chunks, doze
from tests.whole.test_chaos import Trouble

from treadle import Limits, Loop, Recipe, RecipeStep, ToolContext, approve, tool
from treadle.stages import _attempts as calling
from treadle.stages import ask_model
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .watching import Watch


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(calling, "RETRY_DELAY", 0.001)


@pytest.fixture(params=DRIVES.values(), ids=DRIVES)
def drive(request):
    return request.param


@dataclass
class Reported(Cancelling):
    """A reported run that is cancelled at some step, and its reports before it was resumed."""

    watch: Watch = field(default_factory=Watch)

    async def run(self, llm, **options):
        await super().run(llm, **options, **self.watch.options)

    async def resume(self, state, decisions, llm, **options):
        await super().resume(state, decisions, llm, **options, **self.watch.options)


def cancelled_everywhere(drive, scenario, ends="answered"):
    """Run a scenario once per step and cancel it there; return all reports."""
    undisturbed = Reported(0, ends)
    drive(undisturbed, lambda: scenario(undisturbed))
    undisturbed.watch.check_whole(runs=1)
    assert undisturbed.result.stop_reason == ends
    runs = []
    for at in range(1, undisturbed.steps + 1):
        run = Reported(at, ends)
        drive(run, lambda run=run: scenario(run))
        try:
            run.watch.check_whole(runs=1)
            assert agent_of(run).attributes[names.STOP_REASON] == run.events[-1].stop_reason
        except BaseException as error:
            error.add_note(f"cancelled at step {at} of {undisturbed.steps}")
            raise
        runs.append(run)
    gc.collect()  # what was never awaited would be told now, and fail the test
    return runs


def agent_of(run):
    (agent,) = [each for each in run.watch.kind(names.INVOKE_AGENT) if each.parent is None]
    return agent


def many_tools(run):
    """In threads and tasks, with a recipe, a time limit, and a tool that returns a coroutine."""
    rest = run.rest()

    @tool
    def handed_on(seconds: float, context: ToolContext):
        return rest.fn(seconds, context)

    class Library:
        def available_tools(self):
            return ["page", "summary"]

        async def resolve(self, asked):
            await anyio.sleep(0)
            return asked.name

        def dispatch_recipe(self, name):
            if name != "summary":
                return None
            return lambda _: Recipe(
                serial=[RecipeStep("page", {})],
                parallel=[RecipeStep("page", {"n": n}) for n in (1, 2)],
            )

    limited = tool(name="limited", timeout=0.002)(rest.fn)
    batch = calls(
        call("doze", "c1", seconds=0.002),
        call("rest", "c2", seconds=0.001),
        call("handed_on", "c3", seconds=0.001),
        call("summary", "c4"),
        call("limited", "c5", seconds=9),
    )
    return run.run(
        ScriptedLLM(batch, "Done.", is_async=True), tools=[rest, doze, handed_on, limited],
        resolve_tool=Library(), max_seconds=60,
    )  # fmt: skip


def a_streaming_model_that_is_asked_again(run):
    asked = {"index": 0, "id": "c1", "function": {"name": "rest", "arguments": '{"seconds": 0}'}}
    first = [
        *completion_chunks("Ah", None),
        {"choices": [{"delta": {"tool_calls": [asked]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ]
    broken = completion_chunks("Oh", None)
    script = ScriptedLLM(Busy(), first, broken, completion_chunks("Oh"), is_async=True)
    return run.run(
        script, tools=[run.rest()], retry_delay=0.001, stages=[ask_model(restart_streams=True), ...]
    )


async def observe(event):
    await anyio.lowlevel.checkpoint()


def rests(*ids):
    return calls(*(call("rest", each, seconds=n / 1_000) for n, each in enumerate(ids)))


def children(run):
    def child(name, *script, tools=(), **options):
        loop = Loop(tools=[run.rest(), *tools], name=name, on_event=observe)
        return loop.as_tool(name, "", ScriptedLLM(*script, is_async=True), **options)

    inmost = child("inmost", rests("i1", "i2"), ["So ", "it is."])
    one = child(
        "one",
        calls(call("rest", "d1", seconds=0), call("inmost", "d2", task="a")),
        "It.",
        tools=[inmost],
    )
    slow = child("slow", calls(call("rest", "o1", seconds=9)), timeout=0.003)
    asked = calls(call("one", "c1", task="a"), call("slow", "c2", task="b"))
    return run.run(
        ScriptedLLM(asked, rests("c3"), "Done.", is_async=True), tools=[one, slow, run.rest()]
    )


def a_last_answer(run):
    script = [rests("c1", "c2"), rests("c3"), "That is all."]
    options = {"tools": [run.rest()], "max_iterations": 1, "limits": Limits(on_limit="finish")}
    return run.run(ScriptedLLM(*script, is_async=True), **options)


@pytest.mark.parametrize("scenario", [many_tools, a_streaming_model_that_is_asked_again, children])
def test_every_span_ends_wherever_the_run_is_cancelled(drive, scenario):
    runs = cancelled_everywhere(drive, scenario)
    assert len({len(run.watch.spans) for run in runs}) > 3  # they did end in different places


def test_every_span_ends_if_the_last_answer_is_cancelled(drive):
    assert len(cancelled_everywhere(drive, a_last_answer, "finished")) > 10


@tool(requires_approval=True)
async def send(to: str) -> str:
    """Send something."""
    await anyio.sleep(0)
    return f"sent to {to}"


def asking(run):
    script = [calls(call("rest", "d1", seconds=0), call("send", "d2", to="Eve")), "Sent."]
    child = Loop(tools=[run.rest(), send]).as_tool("child", "", ScriptedLLM(*script, is_async=True))
    return {"tools": [run.rest(), send, child], "sequential": "in_step"}


def a_run_that_pauses(run):
    batch = calls(
        call("rest", "c1", seconds=0), call("child", "c2", task="a"), call("send", "c3", to="Bob")
    )
    return run.run(ScriptedLLM(batch, is_async=True), **asking(run))


def a_run_that_is_resumed(run):
    before = Cancelling(0)
    batch = calls(call("child", "c2", task="a"), call("send", "c3", to="Bob"))
    paused = Loop.run_sync(HELLO, ScriptedLLM(batch), **asking(before))
    options = asking(run)
    kid = Loop(tools=[run.rest(), send])
    options["tools"][-1] = kid.as_tool("child", "", ScriptedLLM("Sent.", is_async=True))
    decisions = {"c2/d2": approve, "c3": approve}
    return run.resume(paused.state, decisions, ScriptedLLM("Done.", is_async=True), **options)


def test_every_span_ends_if_a_run_is_cancelled_before_its_pause(drive):
    assert len(cancelled_everywhere(drive, a_run_that_pauses, "paused")) > 10


def test_every_span_ends_if_a_resumed_run_is_cancelled(drive):
    assert len(cancelled_everywhere(drive, a_run_that_is_resumed)) > 10


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_every_span_ends_with_pauses_steering_and_cancelled_calls(backend):
    """The metrics agree with the spans."""
    for seed in range(300, 320):
        watch, trouble = Watch(), Trouble(seed)
        trouble.options.update(watch.options)
        try:
            trouble.check(anyio.run(trouble.run, backend=backend))
            watch.check_whole(runs=trouble.pauses + 1)
            counted = watch.total(names.AGENT_INFERENCE_CALLS), watch.total(names.AGENT_TOOL_CALLS)
            measured = (names.OPERATION_DURATION, names.TOOL_DURATION)
            points = [sum(point.count for point in watch.points(name)) for name in measured]
            assert counted == tuple(points)
            assert counted[0] == len(watch.kind(names.CHAT))
        except BaseException as error:
            error.add_note(f"Trouble({seed})")
            raise
