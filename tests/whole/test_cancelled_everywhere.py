"""Cancelled at every step that its tasks make, a run leaves everything in order: one run for each."""

from __future__ import annotations

import contextlib
from typing import Any

import anyio
import pytest

from treadle import CircuitBreaker, Limits, Locks, Loop, Tool, approve, tool
from treadle.events import SubagentEvent
from treadle.stages import _attempts as calling
from treadle.testing import ScriptedLLM, call, calls

from .cancelling import DRIVES, Cancelling, cancelled_everywhere
from .scripts import HELLO, Busy, add, completion_chunks, doze, nap


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(calling, "RETRY_DELAY", 0.001)


@pytest.fixture(params=DRIVES.values(), ids=DRIVES)
def drive(request: Any) -> Any:
    return request.param


# Of one run.


def parallel_async_tools(run: Cancelling) -> Any:
    rest = run.rest()
    batch = calls(*(call("rest", f"c{n}", seconds=n / 500) for n in range(3)))
    return run.run(ScriptedLLM(batch, "Done.", is_async=True), tools=[rest])


def tools_in_threads(run: Cancelling) -> Any:
    rest = run.rest()
    batch = calls(
        call("doze", "c1", seconds=0.004),
        call("rest", "c2", seconds=0.001),
        call("add", "c3", a=1, b=1),
    )
    model = ScriptedLLM(batch, calls(call("doze", "c4", seconds=0.001)), "Done.")
    return run.run(model, tools=[rest, doze, add])


def a_streaming_model(run: Cancelling) -> Any:
    rest = run.rest()
    asked = {"index": 0, "id": "c1", "function": {"name": "rest", "arguments": '{"seconds": 0}'}}
    first = [
        *completion_chunks("Ah", None),
        {"choices": [{"delta": {"tool_calls": [asked]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    ]
    return run.run(ScriptedLLM(first, completion_chunks("Oh"), is_async=True), tools=[rest])


def retries_that_wait(run: Cancelling) -> Any:
    failures = iter([OSError("one"), OSError("two")])

    @tool(retries=2)
    async def flaky() -> str:
        """Fail twice."""
        for failure in failures:
            raise failure
        return "at last"

    model = ScriptedLLM(Busy(), calls(call("flaky", "c1")), Busy(), "Done.", is_async=True)
    return run.run(model, tools=[flaky], retry_delay=0.002)


def tools_with_a_time_limit(run: Cancelling) -> Any:
    slow = tool(name="slow", timeout=0.002)(nap.fn)
    rest = run.rest()
    batch = calls(call("slow", "c1", seconds=1), call("rest", "c2", seconds=0.001))
    model = ScriptedLLM(batch, calls(call("slow", "c3", seconds=1)), "Done.", is_async=True)
    return run.run(model, tools=[slow, rest], max_seconds=60)


def a_cancellation_that_is_not_heeded(run: Cancelling) -> Any:
    @tool
    async def stubborn() -> str:
        """Finish whatever happens."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.002)
        return "done all the same"

    rest = run.rest()
    batch = calls(call("stubborn", "c1"), call("rest", "c2", seconds=0.001))
    return run.run(ScriptedLLM(batch, "Done.", is_async=True), tools=[stubborn, rest])


PLAIN = [
    parallel_async_tools,
    tools_in_threads,
    a_streaming_model,
    retries_that_wait,
    tools_with_a_time_limit,
    a_cancellation_that_is_not_heeded,
]


@pytest.mark.parametrize("scenario", PLAIN)
def test_cancelled_at_any_await_everything_is_in_order(drive, scenario):
    runs = cancelled_everywhere(drive, scenario)
    assert len(runs) > 10
    assert len({len(run.events) for run in runs}) > 5  # they did end in different places


# Of a run with children.


def child_of(run: Cancelling, name: str, *script: Any, tools: Any = (), **options: Any) -> Tool:
    """A loop as a tool, whose own observer waits as well."""
    observed: list[Any] = []

    async def observe(event: Any) -> None:
        await anyio.lowlevel.checkpoint()
        observed.append(event)

    loop = Loop(tools=[run.rest(), *tools], name=name, on_event=observe)
    return loop.as_tool(name, "", ScriptedLLM(*script, is_async=True), **options)


def rests(*ids: str, seconds: float = 0.001) -> Any:
    """Calls of other lengths, so that none is made twice."""
    return calls(*(call("rest", each, seconds=seconds + n / 1_000) for n, each in enumerate(ids)))


def children_with_parallel_calls(run: Cancelling) -> Any:
    inmost = child_of(run, "inmost", rests("i1", "i2"), "So it is.")
    script = [
        calls(call("rest", "d1", seconds=0.001), call("inmost", "d2", task="rest")),
        rests("d3", seconds=0),
        "It is.",
    ]
    one = child_of(run, "one", *script, tools=[inmost])
    other = child_of(run, "other", rests("o1", "o2", seconds=0.002), "Is it?")
    batch = calls(
        call("one", "c1", task="rest"),
        call("other", "c2", task="rest"),
        call("add", "c3", a=1, b=1),
    )
    return run.run(ScriptedLLM(batch, "Done.", is_async=True), tools=[one, other, add])


def test_a_child_is_cancelled_with_its_run_and_is_in_order_too(drive):
    """Its history, its state, its events, and the results of its calls."""
    runs = cancelled_everywhere(drive, children_with_parallel_calls)
    inner = [run for run in runs if any(isinstance(event, SubagentEvent) for event in run.events)]
    assert len(inner) > 50
    assert len({len(run.finished) for run in inner}) > 4


def a_child_that_runs_out_of_time(run: Cancelling) -> Any:
    """It is cancelled by its own time limit, and then perhaps once more."""
    slow = child_of(run, "slow", rests("d1", "d2", seconds=9), timeout=0.003)
    batch = calls(call("slow", "c1", task="rest"), call("rest", "c2", seconds=0.001))
    return run.run(ScriptedLLM(batch, "Late.", is_async=True), tools=[slow, run.rest()])


def test_a_child_that_is_cancelled_already_may_be_cancelled_with_its_run(drive):
    assert len(cancelled_everywhere(drive, a_child_that_runs_out_of_time)) > 20


# Of a run with locks.


def calls_that_wait_for_keys(run: Cancelling) -> Any:
    locks = Locks()

    def all_keys_are_free() -> None:
        assert all(locks.enter(key).is_set for key in "abc")

    run.also = all_keys_are_free
    rest = run.rest()
    one = tool(name="one", lock="a")(rest.fn)
    both = tool(name="both", lock=lambda arguments: ["b", "a"])(rest.fn)
    within = child_of(
        run, "within", calls(*(call("one", f"d{n}", seconds=0) for n in range(2))), "So.",
        tools=[one], lock="a",
    )  # fmt: skip
    batch = calls(
        call("one", "c1", seconds=0.001),
        call("both", "c2", seconds=0.001),
        call("within", "c3", task="rest"),
        call("both", "c4", seconds=0),
    )
    model = ScriptedLLM(batch, calls(call("one", "c5", seconds=0)), "Done.", is_async=True)
    return run.run(model, tools=[one, both, within], locks=locks, dedupe="off")


def test_a_cancelled_call_gives_back_its_keys_and_its_place_in_the_queue(drive):
    """Cancelled while it lines up, while it waits, while it runs: the next to come finds every key free."""
    assert len(cancelled_everywhere(drive, calls_that_wait_for_keys)) > 50


# Of a run that comes to a limit.


def a_last_answer(run: Cancelling) -> Any:
    script = [rests("c1", "c2"), rests("c3", seconds=0), "That is all."]
    options = {"tools": [run.rest()], "max_iterations": 1, "limits": Limits(on_limit="finish")}
    return run.run(ScriptedLLM(*script, is_async=True), **options)


def test_a_run_may_be_cancelled_while_it_is_asked_for_its_last_answer(drive):
    runs = cancelled_everywhere(drive, a_last_answer, "finished")
    lengths = {len(run.handle.messages) for run in runs}
    assert lengths == {
        2,
        5,
        7,
        8,
    }  # asked; its calls; those it makes when it should answer; the answer


# Of a run that waits for a person.


@tool(requires_approval=True)
async def send(to: str) -> str:
    """Send something."""
    await anyio.sleep(0.001)
    return f"sent to {to}"


def asking(run: Cancelling) -> dict[str, Any]:
    """A run of calls that need approval and calls that need none, here and in a child."""
    script = [calls(call("rest", "d1", seconds=0.001), call("send", "d2", to="Eve")), "Sent."]
    child = child_of(run, "child", *script, tools=[send])
    return {"tools": [run.rest(), send, child], "sequential": "in_step"}


def the_batch() -> Any:
    return calls(
        call("rest", "c1", seconds=0.001),
        call("child", "c2", task="send"),
        call("send", "c3", to="Bob"),
        call("rest", "c4", seconds=0.002),
    )


def a_run_that_pauses(run: Cancelling) -> Any:
    return run.run(ScriptedLLM(the_batch(), is_async=True), **asking(run))


def test_a_run_may_be_cancelled_until_it_is_paused(drive):
    runs = cancelled_everywhere(drive, a_run_that_pauses, "paused")
    assert len(runs) > 30


def paused() -> Any:
    """The state of a run that waits, each time of another run."""
    result = Loop.run_sync(HELLO, ScriptedLLM(the_batch()), **asking(Cancelling(0)))
    assert [each.call_id for each in result.pending] == ["c2/d2", "c3"]
    return result.state


def a_run_that_is_resumed(run: Cancelling) -> Any:
    state = paused()
    run.finished.append((state["state"]["run_id"], "c1"))  # before the pause
    options = asking(run)
    options["tools"][-1] = child_of(run, "child", "Sent.", tools=[send])
    decisions = {"c2/d2": approve, "c3": approve}
    return run.resume(state, decisions, ScriptedLLM("Done.", is_async=True), **options)


def test_a_run_that_was_resumed_may_be_cancelled_and_loses_nothing_of_before(drive):
    """What ran before the pause is in its history, from the first step of the resumed run on."""
    runs = cancelled_everywhere(drive, a_run_that_is_resumed)
    assert len(runs) > 30
    assert all(len(run.handle.messages) >= 7 for run in runs)


# Of a run in which the user speaks.


def a_user_who_speaks(run: Cancelling) -> Any:
    said: list[str] = []

    @tool
    async def hint(text: str) -> str:
        """Have the user say something."""
        if run.handle.steer(text):
            said.append(text)
        await anyio.sleep(0.001)
        return "hinted"

    def each_was_heard_once() -> None:
        contents = [m["content"] for m in run.handle.messages[2:] if m["role"] == "user"]
        heard = "\n\n".join(contents)
        assert [heard.count(text) for text in said] == [1] * len(said)

    run.also = each_was_heard_once
    model = ScriptedLLM(
        calls(call("hint", text="One."), call("hint", text="Two.")),
        calls(call("hint", text="Three.")),
        "Done.",
        is_async=True,
    )
    return run.run(model, tools=[hint])


def test_what_the_user_said_is_in_the_history_wherever_the_run_is_cancelled(drive):
    """If `steer` said that it would be heard, it is, once."""
    assert len(cancelled_everywhere(drive, a_user_who_speaks)) > 20


# Of runs that share a breaker.


def a_probe_of_a_broken_tool(run: Cancelling) -> Any:
    breaker = CircuitBreaker(threshold=1, cool_down=5)
    assert breaker.record("rest", "before", "down", 0.0).after == "open"

    def it_can_be_tried_again() -> None:
        assert breaker.admit("rest", "after", 10_000_000_000.0).error is None

    run.also = it_can_be_tried_again
    model = ScriptedLLM(rests("c1", seconds=0), rests("c2", "c3"), "Done.", is_async=True)
    return run.run(model, tools=[run.rest()], breaker=breaker)


def test_a_cancelled_probe_leaves_no_breaker_half_open(drive):
    """A cancelled probe proves nothing; another call may be the next."""
    assert len(cancelled_everywhere(drive, a_probe_of_a_broken_tool)) > 10


# A tool that ignores its cancellation.


LEFT: list[Cancelling] = []
"""The runs that were over before their tool was."""


async def a_tool_that_is_abandoned(run: Cancelling) -> None:
    begun, ended = anyio.Event(), anyio.Event()
    ignored = contextlib.suppress(anyio.get_cancelled_exc_class())

    @tool
    async def stubborn() -> str:
        """Run for longer than the run waits."""
        begun.set()
        try:
            until = anyio.current_time() + 0.02
            while anyio.current_time() < until:
                with ignored, anyio.CancelScope(shield=True):
                    await anyio.sleep(0.002)
        finally:
            ended.set()
        return "done all the same"

    rest = run.rest()
    batch = calls(call("stubborn", "c1"), call("rest", "c2", seconds=0.001))
    try:
        await run.run(ScriptedLLM(batch, "Done.", is_async=True), tools=[stubborn, rest])
    finally:
        run.cancel = None
        if begun.is_set() and not ended.is_set():
            LEFT.append(run)
        if begun.is_set():
            with anyio.CancelScope(shield=True):
                await ended.wait()


def test_a_tool_that_does_not_end_holds_up_no_cancellation(drive, caplog):
    """It has a grace period, is abandoned with a warning, and its result is dropped."""
    LEFT.clear()
    runs = cancelled_everywhere(drive, a_tool_that_is_abandoned, grace=0.003)
    left = [run for run in runs if run in LEFT and len(run.handle.messages) > len(HELLO)]
    assert len(left) > 3
    for run in left:
        assert "done all the same" not in str(run.handle.messages)
    warnings = [text for text in caplog.messages if "it is abandoned" in text]
    assert len(warnings) >= len(left)
