"""What a run keeps when another process takes it up: time, approvals, messages, sessions, streams, telemetry."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from tests.ways import ASYNCIO, DRIVEN, SYNC, TRIO, Way
from tests.whole.guard_scripts import SCRIPTS
from tests.whole.scripts import HELLO, Busy, add

from treadle import (
    Loop,
    Output,
    Pauses,
    RunHandle,
    RunState,
    Tool,
    ToolContext,
    approve,
    deny,
    stage,
    tool,
)
from treadle.context import Context
from treadle.effects import NOW, Bounded, Call, Sleep, map_effects
from treadle.errors import JournalError, OptionError, ReplayError
from treadle.events import RunStarted, TextDelta
from treadle.stages import default_stages, dispatch_tools, run_calls
from treadle.testing import ScriptedLLM, call, calls, check_history

from .interrupting import RUN, Durable
from .memory import ENDS, Interrupted, MemoryJournal, MemoryRun
from .test_interrupted import same


def script_named(name: str) -> Any:
    return next(script for script in SCRIPTS if script.name == name)


MANY = [
    "children_at_the_same_time_with_calls_at_the_same_time",
    "a_run_that_is_resumed_call_by_call",
    "a_child_that_waits",
    "calls_that_wait_for_each_other",
    "retries_of_the_model",
    "a_last_answer_by_a_terminal_tool",
]


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("way", DRIVEN, ids=repr)
def test_a_run_of_which_each_process_writes_once(way: Way, name: str):
    script = script_named(name)
    expected = Durable.of(way, script, is_repeatable=True).run()
    one = Durable.of(way, script, is_repeatable=True)
    process = one.process

    def ending(**more: Any) -> Any:
        one.journal.interrupt(2, is_stored=False)
        return process(**more)

    one.process = ending
    result = one.run()
    assert len(one.processes) > 4
    same(result, expected)


@tool
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def paying_once(way: Way, *answers: Any, tools: Any = (pay,)) -> Durable:
    """A run whose model calls `pay`, and then answers: `Done.`, if nothing else is given."""
    model = ScriptedLLM(calls(call("pay", "c1", n=1)), *(answers or ("Done.",)))
    return Durable(way, HELLO, model, {"tools": [*tools]})


def broken_off(**how: Any) -> Durable:
    """A run whose process ended when it stored its fourth entry."""
    one = paying_once(SYNC, **how)
    one.journal.interrupt(4)
    with pytest.raises(ENDS):
        one.process()
    return one


# Cancellations


@pytest.mark.parametrize("way", [ASYNCIO, TRIO], ids=repr)
def test_a_cancelled_task_is_not_the_end_of_the_run(way: Way):
    paid, journal = [], MemoryJournal()

    @tool
    async def wait_for_it(n: int) -> str:
        """Wait."""
        paid.append(n)
        if n == 1:
            return "done"
        await anyio.sleep(60)
        return "late"

    @tool(idempotent=True)
    async def look() -> str:
        """Look, and be cancelled with the task when one of the other calls is over."""
        while not looks and not ({1, 2} == set(paid) and journal.counts["execute_tool", "c1"]):
            await anyio.sleep(0.002)
        if not looks:
            scopes[-1].cancel()
            await anyio.sleep(60)
        return "seen"

    scopes: list[anyio.CancelScope] = []
    looks: list[int] = []

    def model(messages: Any) -> Any:
        if messages[-1]["role"] == "user":
            return calls(
                call("wait_for_it", "c1", n=1), call("wait_for_it", "c2", n=2), call("look", "c3")
            )
        return "Done."

    options = {"tools": [wait_for_it, look], "journal": journal, "run_id": RUN}
    events: list[Any] = []

    async def cancelled() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await Loop.run("Go.", model, **options, on_event=events.append)

    way.call(cancelled)
    assert events[-1].stop_reason == "cancelled"
    assert journal.parts[RUN][-1]["outcome"] is None
    looks.append(1)
    result = way.call(Loop.run, "Go.", model, **options)
    assert not any(entry.is_cancelled for entry in journal.log(RUN))
    assert result.output == "Done."
    assert sorted(paid) == [1, 2]
    contents = {m["tool_call_id"]: m["content"] for m in result.messages if m["role"] == "tool"}
    assert contents["c1"] == "done"
    assert contents["c3"] == "seen"
    assert contents["c2"].startswith("Unknown: ")


def test_an_interrupt_without_an_event_loop():
    journal, asked = MemoryJournal(), []

    def model(messages: Any) -> Any:
        asked.append(len(messages))
        if messages[-1]["role"] == "user":
            return calls(call("pay", "c1", n=1))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return "Done."

    options = {"tools": [pay], "journal": journal, "run_id": RUN}
    with pytest.raises(KeyboardInterrupt):
        Loop.run_sync("Go.", model, **options)
    result = Loop.run_sync(llm_send_fn=model, **options)
    assert (result.output, asked) == ("Done.", [1, 3, 3])
    assert not any(entry.is_cancelled for entry in journal.log(RUN))


def test_a_run_that_is_cancelled_through_its_handle_has_ended(driven: Way):
    journal, handle = MemoryJournal(), RunHandle()

    @tool
    async def stop() -> str:
        """Stop."""
        handle.cancel()
        await anyio.sleep(9)
        return "late"

    model = ScriptedLLM(calls(call("stop", "c1")))
    options = {"tools": [stop], "journal": journal, "run_id": RUN}
    observed = driven.run(HELLO, model, **options, handle=handle)
    assert observed.result.stop_reason == "cancelled"
    again = driven.run(HELLO, model, **options)
    assert again.result == observed.result
    assert again.events == []


def test_a_run_that_is_cancelled_from_elsewhere(driven: Way):
    journal = MemoryJournal()

    @tool
    async def stop() -> str:
        """Have another process cancel the run."""
        journal.opened[-1].stops[0]()
        await anyio.sleep(9)
        return "late"

    model = ScriptedLLM(calls(call("stop", "c1")))
    options = {"tools": [stop], "journal": journal, "run_id": RUN}
    assert driven.run(HELLO, model, **options).result.stop_reason == "cancelled"
    assert journal.opened[-1].is_closed


# Time


@pytest.fixture
def later(monkeypatch: Any) -> Any:
    """Lets time pass."""
    real, passed = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + passed[0])

    def later(seconds: float) -> None:
        passed[0] += seconds

    return later


def test_the_time_limit_counts_the_time_in_which_a_process_drove_the_run(driven: Way, later: Any):
    left: list[float] = []

    @tool(idempotent=True)
    def work(context: ToolContext, n: int) -> str:
        """Work for 20 s."""
        left.append(context.remaining.seconds)
        later(20)
        return f"{n}"

    bounds: list[float] = []

    one = Durable(
        driven,
        HELLO,
        ScriptedLLM(*(calls(call("work", f"c{n}", n=n)) for n in (1, 2, 3)), "Done."),
        {"tools": [work], "max_seconds": 60},
    )
    one.journal.interrupt(4, is_stored=False)  # the outcome of c2: 20 s are recorded
    with pytest.raises(ENDS):
        one.process(middleware=[one.world, looking(bounds)])
    later(1000)
    result = one.process(middleware=[one.world, looking(bounds)])
    assert result.output == "Done."
    assert bounds == [60, pytest.approx(40, abs=2)]
    # The clock of a process does not jump: its runs see what passed when the next process begins.
    assert left == [pytest.approx(60, abs=2), pytest.approx(60, abs=2), pytest.approx(40, abs=2)]


def looking(bounds: list[float]) -> Any:
    """Middleware that notes the time limits."""

    def see(effect: Any) -> Any:
        if isinstance(effect, Bounded) and effect.seconds is not None:
            bounds.append(effect.seconds)
        return effect

    return lambda steps: map_effects(steps, see)


def test_the_time_limit_of_a_tool_starts_afresh(later: Any):
    bounds: list[float] = []

    slow = tool(name="slow", description="", timeout=30, idempotent=True)(lambda: later(20))
    model = ScriptedLLM(calls(call("slow", "c1")), "Done.")
    one = Durable(SYNC, HELLO, model, {"tools": [slow]})
    one.journal.interrupt(2, is_stored=False)
    with pytest.raises(ENDS):
        one.process(middleware=[one.world, looking(bounds)])
    later(1000)
    assert one.process(middleware=[one.world, looking(bounds)]).output == "Done."
    assert bounds == [30, 30]


def test_a_delay_between_retries_goes_on(driven: Way, later: Any):
    slept: list[float] = []

    def see(effect: Any) -> Any:
        if not isinstance(effect, Sleep):
            return effect
        slept.append(effect.seconds)
        if len(slept) == 1:
            later(10)
            raise Interrupted
        return Sleep(0)

    busy = Busy("busy")
    busy.headers = {"retry-after": "25"}
    one = Durable(driven, HELLO, ScriptedLLM(busy, "Hi."), {})
    middleware = [one.world, lambda steps: map_effects(steps, see)]
    with pytest.raises(ENDS):
        one.process(middleware=middleware)
    assert one.process(middleware=middleware).output == "Hi."
    assert len(slept) == 2
    assert slept[1] == pytest.approx(slept[0] - 10, abs=1)


# Questions about calls that may have run


def paying_into(paid: list[int], **options: Any) -> Tool:
    """A tool that pays, which must not run twice."""

    def paying(n: int) -> str:
        """Pay."""
        paid.append(n)
        return f"paid {n}"

    return tool(name="pay", **options)(paying)


def batch() -> Any:
    return calls(call("add", "c1", a=1, b=1), call("pay", "c2", n=2), call("pay", "c3", n=3))


def asking(way: Way, paid: list[int], **options: Any) -> Durable:
    """A run that is interrupted while c2 and c3 run, or c2 alone."""

    paying = paying_into(paid)
    again = tool(idempotent=True)(add.fn)
    options = {"tools": [again, paying], "pauses": Pauses(on_unknown="ask"), **options}
    return Durable(way, HELLO, ScriptedLLM(batch(), "Done."), options)


def contents(result: Any) -> dict[str, str]:
    check_history(result.messages)
    return {m["tool_call_id"]: m["content"] for m in result.messages if m["role"] == "tool"}


def everything(ctx: Context) -> Any:
    return (yield from run_calls(ctx, ctx.tool_calls))


@pytest.mark.parametrize("dispatcher", [dispatch_tools, everything])
@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_a_person_is_asked_about_calls_that_may_have_run(driven: Way, answer: str, dispatcher: Any):
    stages = Loop().pipeline.replace("dispatch_tools", dispatcher)
    for at in range(1, 9):
        paid: list[int] = []
        one = asking(driven, paid, stages=stages)
        one.journal.interrupt(at, is_stored=False)
        with contextlib.suppress(*ENDS):
            one.process()
        one.note_unknown()
        result = one.process()
        if not one.unknown:
            assert result.output == "Done."
            continue
        assert result.stop_reason == "paused"
        assert {pending.call_id for pending in result.pending} == one.unknown
        assert all("Run it again?" in pending.question for pending in result.pending)
        assert one.process() == result  # nobody has decided
        found = contents(result)
        assert all(found[key].startswith("Unknown: 'pay' was started") for key in one.unknown)
        assert not any("Not run" in text for text in found.values())
        before = list(paid)
        decision = approve if answer == "approve" else deny("no")
        one.decide(dict.fromkeys(one.unknown, decision))
        result = one.process()
        assert result.output == "Done."
        found = contents(result)
        for key, n in (("c2", 2), ("c3", 3)):
            if key in one.unknown:
                assert paid.count(n) == before.count(n) + (answer == "approve")
                if answer == "approve":
                    assert found[key] == f"paid {n}"
                    continue
                assert found[key].startswith("Unknown: 'pay' was started")
                assert "A person decided not to run it again: no." in found[key]
            else:
                assert paid.count(n) == 1
                assert found[key] == f"paid {n}"
        assert found["c1"] == "2"
        assert result.tool_calls_count == 3
        assert not any(node.is_running for node in result.run.nodes[0].tool_calls)


def test_a_call_of_a_subagent_that_may_have_run_is_never_said_not_to_have_run(driven: Way):
    for at in range(1, 9):
        paid: list[int] = []
        child = Loop(tools=[paying_into(paid)], pauses=Pauses(on_unknown="ask"), name="sub")
        inner = ScriptedLLM(calls(call("pay", "d1", n=1)), "Paid.")
        model = ScriptedLLM(calls(call("sub", "c1", task="pay")), "Done.")
        one = Durable(driven, HELLO, model, {"tools": [child.as_tool("sub", "", inner)]})
        one.journal.interrupt(at, is_stored=False)
        with contextlib.suppress(*ENDS):
            one.process()
        result = one.process()
        if result.stop_reason == "paused":
            break
    assert contents(result)["c1"].startswith("No result yet: the run waits")
    one.decide({"c1/d1": deny("no")})
    before = list(paid)
    result = one.process()
    assert (result.output, paid) == ("Done.", before)
    told = inner.sent[-1].messages[-1]["content"]
    assert told.startswith("Unknown: 'pay' was started")
    assert "Not run" not in told


def test_a_call_that_may_have_run_may_have_changed_what_others_return(driven: Way):
    @tool(idempotent=True, read_only=True)
    def look() -> str:
        """Look."""
        return "the balance"

    asked = (call("look", "c1"), call("pay", "c2", n=1), call("look", "c3"))
    told: set[str] = set()
    for at in range(1, 12):
        model = ScriptedLLM(*(calls(one) for one in asked), "Done.")
        tools = [look, paying_into([])]
        one = Durable(driven, HELLO, model, {"tools": tools, "dedupe": "strict"})
        one.journal.interrupt(at, is_stored=False)
        with contextlib.suppress(*ENDS):
            one.process()
        result = one.process()
        assert contents(result)["c3"] == "the balance"
        told.add(contents(result)["c2"].partition(":")[0])
    assert told == {"paid 1", "Unknown"}


def test_a_question_within_a_subagent(driven: Way):
    for at in range(1, 9):
        paid: list[int] = []
        paying = paying_into(paid)
        child = Loop(tools=[paying], pauses=Pauses(on_unknown="ask"), name="sub")
        sub = child.as_tool("sub", "", ScriptedLLM(calls(call("pay", "d1", n=1)), "Paid."))
        model = ScriptedLLM(calls(call("sub", "c1", task="pay")), "Done.")
        one = Durable(driven, HELLO, model, {"tools": [sub]})
        one.journal.interrupt(at, is_stored=False)
        with contextlib.suppress(*ENDS):
            one.process()
        one.note_unknown()
        result = one.process()
        if one.unknown:
            assert [pending.call_id for pending in result.pending] == ["c1/d1"]
            one.decide({"c1/d1": approve})
            result = one.process()
            assert paid == [1, 1]
        else:
            assert paid == [1]
        assert (result.output, contents(result)["c1"]) == ("Done.", "Paid.")


def test_an_approved_call_that_may_have_run_is_asked_about_again(driven: Way):
    paid: list[int] = []

    paying = paying_into(paid, requires_approval=True)
    model = ScriptedLLM(calls(call("pay", "c1", n=1)), "Done.")
    one = Durable(driven, HELLO, model, {"tools": [paying], "pauses": Pauses(on_unknown="ask")})
    assert one.process().stop_reason == "paused"
    one.decide({"c1": approve})
    one.journal.interrupt(3, is_stored=False)  # the part, the start of the call, its outcome
    with pytest.raises(ENDS):
        one.process()
    result = one.process()
    assert result.stop_reason == "paused"
    assert "Run it again?" in result.pending[0].question
    one.decide({"c1": deny("it has")})
    result = one.process()
    assert (result.output, paid) == ("Done.", [1])


# Results


class Invoice(BaseModel):
    """An invoice."""

    number: int


def test_a_typed_output_is_restored(driven: Way):
    journal = MemoryJournal()
    model = ScriptedLLM(calls(call("Invoice", "c1", number=2)))
    options = {"output": Invoice, "journal": journal, "run_id": RUN}
    first = driven.run(HELLO, model, **options).result
    second = driven.run(HELLO, model, **options).result
    assert second.output == first.output == Invoice(number=2)
    assert second == first
    assert driven.run(HELLO, model, journal=journal, run_id=RUN).result == first


def test_an_output_that_a_validator_returns(driven: Way):
    def checked(output: Invoice) -> Invoice:
        return output

    async def checked_later(output: Invoice) -> Invoice:
        return output

    for at in (1, 2, 3):
        one = Durable(
            driven,
            HELLO,
            ScriptedLLM(calls(call("Invoice", "c1", number=2))),
            {"output": Output(Invoice, validators=[checked, checked_later])},
        )
        one.journal.interrupt(at, is_stored=False)
        assert one.run().output == Invoice(number=2)


# Streams


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_streamed_run(backend: str):
    way = Way(f"stream_{backend}")
    one = paying_once(way, ["Do", "ne."])
    one.journal.interrupt(4, is_stored=False)
    with pytest.raises(BaseException):  # noqa: B017
        one.process()
    result = one.process()
    assert result.output == "Done."
    [first, second] = one.processes
    assert isinstance(second.events[0], RunStarted)
    assert second.events[0].resumed
    assert [e.text for e in (*first.events, *second.events) if isinstance(e, TextDelta)][:2] == [
        "Do",
        "ne.",
    ]
    assert one.process() == result
    assert one.processes[-1].events == []


# Messages


@pytest.mark.parametrize("way", DRIVEN, ids=repr)
def test_messages_are_taken_once(way: Way):
    """Also if the process ends between taking and writing them."""
    for at in range(1, 9):
        for is_stored in (True, False):
            one = paying_once(way, "Done.", "Done again.", "And again.")
            one.journal.send(RUN, "One.")
            one.journal.interrupt(at, is_stored=is_stored)
            with contextlib.suppress(*ENDS):
                one.process()
            one.journal.send(RUN, "Two.")
            result = one.process()
            check_history(result.messages)
            said = "\n".join(m["content"] for m in result.messages if m["role"] == "user")
            assert said.count("One.") == 1
            if one.journal.parts[RUN][-1]["outcome"] is None or len(one.processes) == 2:
                assert said.count("Two.") <= 1


class CancellingRun(MemoryRun):
    """A run that is cancelled while it asks its journal, or writes, for the n-th time, counted down."""

    left = 0

    def add(self, entries: Any, taken: Any = ()) -> None:
        super().add(entries, taken)
        self.count()

    def messages(self) -> Any:
        self.count()
        return super().messages()

    def count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.stops[0]()


class CancellingJournal(MemoryJournal):
    """A journal whose first run is cancelled."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.cancels_at = at

    def open(self, run_id: str, start: Any) -> MemoryRun:
        run = super().open(run_id, start)
        run.__class__, run.left = CancellingRun, self.cancels_at
        return run


@pytest.mark.parametrize("at", range(1, 9))
def test_a_message_is_not_lost_if_the_run_is_cancelled_while_it_is_taken(driven: Way, at: int):
    journal = CancellingJournal(at)
    journal.send(RUN, "Hurry.")
    model = ScriptedLLM(calls(call("add", "c1", a=1, b=2)), "Done.")
    options = {"tools": [add], "journal": journal, "run_id": RUN}
    result = driven.run(HELLO, model, **options).result
    said = "\n".join(m["content"] for m in result.messages if m["role"] == "user")
    assert said.count("Hurry.") == 1
    assert journal.sent[RUN] == []


# Telemetry and events


def test_events_at_the_seam(driven: Way):
    whole = paying_once(driven)
    whole.run()
    names = [type(event).__name__ for event in whole.processes[0].events]
    for at in range(1, whole.journal.writes + 1):
        one = paying_once(driven)
        one.journal.interrupt(at)
        one.run()
        [first, second] = one.processes
        if at == whole.journal.writes:  # the result was stored
            assert second.events == []
            continue
        seam = second.events[0]
        assert isinstance(seam, RunStarted)
        assert seam.resumed
        last = max(entry.last_seq for entry in one.journal.opened[1].log)
        assert [event.seq for event in second.events] == list(
            range(last + 1, last + 1 + len(second.events))
        )
        first_names = [type(event).__name__ for event in first.events][:last]
        assert first_names + [type(event).__name__ for event in second.events[1:]] == names, at


# Changes


@pytest.mark.parametrize(
    ("changes", "iteration", "text"),
    [
        ({"instructions": "Be rude."}, 1, "instructions"),
        ({"llm_opts": {"temperature": 1}}, 1, "temperature"),
    ],
)
def test_a_change_is_named(changes: Any, iteration: int, text: str):
    one = broken_off()
    writes = len(one.journal.log(RUN))
    with pytest.raises(ReplayError, match=text) as caught:
        one.process(**changes)
    assert caught.value.iteration == iteration
    assert caught.value.run_id == RUN
    assert len(one.journal.log(RUN)) == writes + 1
    assert one.process().output == "Done."


def test_a_changed_tool_is_named():
    one = broken_off()
    other = tool(name="pay")(add.fn)
    with pytest.raises(ReplayError, match="'pay'") as caught:
        one.process(tools=[other])
    assert caught.value.iteration == 1


def test_tools_in_another_order_are_no_change():
    script = ScriptedLLM(calls(call("pay", "c1", n=1)), "Done.")
    one = Durable(SYNC, HELLO, script, {"tools": [pay, add]})
    one.journal.interrupt(4)
    with pytest.raises(ENDS):
        one.process(tools=[pay, add])
    assert one.process(tools=[add, pay]).output == "Done."


def test_a_changed_stage_is_named():
    @stage
    def nothing(ctx: Any) -> Any:
        """Change nothing."""
        yield NOW
        return ctx

    one = broken_off()
    with pytest.raises(ReplayError, match="nothing"):
        one.process(stages=[*default_stages(), nothing])


# What cannot be recorded, and options that do not fit


def test_an_outcome_that_is_no_data(driven: Way):
    @stage
    def strange(ctx: Any) -> Any:
        """Ask for an object."""
        yield Call(object, label="stage", key="strange")
        return ctx

    journal = MemoryJournal()
    with pytest.raises(JournalError, match=r"the outcome of stage 'strange'.*object"):
        driven.run(
            HELLO,
            ScriptedLLM("Hi."),
            stages=[strange, *default_stages()],
            journal=journal,
            run_id=RUN,
        )
    assert journal.parts[RUN][-1]["outcome"] is None
    assert journal.opened[-1].is_closed


def test_async_stages_are_refused():
    async def later(ctx: Any) -> Any:
        return ctx

    stages = [*default_stages(), stage(later)]
    journal = MemoryJournal()
    with pytest.raises(OptionError, match=r"stage 'later' is an async def.*generator"):
        Loop.run_sync("Hi", ScriptedLLM(), stages=stages, journal=journal)
    sub = Loop(stages=stages).as_tool("sub", "", ScriptedLLM())
    with pytest.raises(OptionError, match="stage 'later' is an async def"):
        Loop.run_sync("Hi", ScriptedLLM(), tools=[sub], journal=journal)
    assert journal.parts == {}


def test_options_that_do_not_fit():
    journal = MemoryJournal()
    send = tool(name="pay", requires_approval=True)(pay.fn)
    options = {"tools": [send], "journal": journal, "run_id": RUN}
    with pytest.raises(OptionError, match="state: "):
        Loop.run_sync("Hi", ScriptedLLM(), state=RunState(), **{**options, "run_id": None})
    with pytest.raises(JournalError, match="no run 'run'"):
        Loop.run_sync(llm_send_fn=ScriptedLLM(), **options)
    paused = Loop.run_sync("Hi", ScriptedLLM(calls(call("pay", "c1", n=1))), **options)
    with pytest.raises(OptionError, match=r"journal: .*decide"):
        Loop.resume_sync(paused, {}, ScriptedLLM(), **options)
    with pytest.raises(JournalError, match="other messages"):
        Loop.run_sync("Ho", ScriptedLLM(), **options)
    assert Loop.run_sync("Hi", ScriptedLLM(), **options) == paused
