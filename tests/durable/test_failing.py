"""A journal that fails ends its run at once: nothing more happens that it could not record."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.ways import Way
from tests.whole.scripts import HELLO

from treadle import Locks, tool
from treadle.errors import JournalError, LeaseLostError
from treadle.events import RunFinished
from treadle.recording.log import STARTED
from treadle.testing import ScriptedLLM, call, calls

from .interrupting import RUN, Durable
from .memory import ENDS, MemoryJournal


class Failing(MemoryJournal):
    """A journal whose writes fail from some number on, as on a full disk.

    Args:
        writes: how many writes succeed.
    """

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.left = writes
        self.real = super().open

    def open(self, run_id: str, start: Any) -> Any:
        """See `Journal.open`."""
        run = self.real(run_id, start)
        write = run._write

        def failing(store: Any) -> None:
            self.left -= 1
            if self.left < 0:
                raise JournalError(f"the disk is full ({-self.left})")
            write(store)

        run._write = failing
        return run


def payments(paid: list[int]) -> tuple[Any, Any]:
    """A model that pays three times at once, and the tool, which must not run twice."""

    @tool
    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return f"paid {n}"

    batch = calls(*(call("pay", f"c{n}", n=n) for n in range(1, 4)))
    return pay, lambda messages: batch if messages[-1]["role"] == "user" else "Done."


@pytest.mark.parametrize("writes", range(8))
def test_a_journal_that_fails(driven: Way, writes: int):
    paid: list[int] = []
    pay, model = payments(paid)
    journal, events, failures = Failing(writes), [], []
    options = {"tools": [pay], "journal": journal, "run_id": RUN}
    try:
        driven.run(HELLO, model, **options, on_event=events.append)
    except JournalError as error:
        failures.append(str(error))
    if journal.left >= 0:  # one write had the outcomes of several calls
        assert failures == []
        return
    [failure] = failures
    assert "the disk is full" in failure
    assert journal.opened[-1].is_closed
    assert journal.parts[RUN][-1]["outcome"] is None
    ends = [event.stop_reason for event in events if isinstance(event, RunFinished)]
    assert ends in (["cancelled"], ["answered"])  # the answer was there, and could not be stored
    log = journal.log(RUN)
    started = {entry.key for entry in log if entry.kind == STARTED and entry.label}
    assert {f"c{n}" for n in paid} <= started
    journal.left = 99
    result = driven.run(HELLO, model, **options).result
    assert result.output == "Done."
    assert all(paid.count(n) <= 1 for n in (1, 2, 3))


def test_several_calls_whose_outcomes_cannot_be_written(driven: Way):
    """The first failure ends the run; the others are no other reason to go on."""
    met = threading.Barrier(3)

    @tool(idempotent=True)
    def together(n: int) -> str:
        """Return at the same time."""
        met.wait(5)
        return str(n)

    batch = calls(*(call("together", f"c{n}", n=n) for n in range(3)))
    journal = Failing(1)
    with pytest.raises(JournalError, match="the disk is full"):
        driven.run(HELLO, ScriptedLLM(batch), tools=[together], journal=journal, run_id=RUN)
    assert journal.parts[RUN][-1]["outcome"] is None


def test_a_key_is_free_after_a_failure(driven: Way):
    """The cleanup of the run is performed."""
    locks = Locks()
    keyed = tool(name="keyed", description="", lock="a")(lambda: "done")
    options = {"tools": [keyed], "locks": locks, "run_id": RUN}
    model = ScriptedLLM(calls(call("keyed", "c1")))
    with pytest.raises(JournalError):
        driven.run(HELLO, model, journal=Failing(2), **options)
    assert locks.enter("a").is_set


def test_a_run_that_was_taken_over_does_nothing_more(driven: Way):
    paid: list[int] = []
    pay, model = payments(paid)
    journal = MemoryJournal()

    def thinking(messages: Any) -> Any:
        journal.opened[-1].is_lost = True
        return model(messages)

    with pytest.raises(LeaseLostError):
        driven.run(HELLO, thinking, tools=[pay], journal=journal, run_id=RUN)
    assert paid == []
    assert journal.log(RUN) == []


def test_a_key_that_another_run_holds_when_a_run_is_taken_up(driven: Way):
    """The run had the key before; calls that share it do not overlap nevertheless."""
    locks, order = Locks(), []

    def write() -> str:
        order.append("run")
        return "written"

    keyed = tool(name="write", description="", lock="a", idempotent=True)(write)
    model = ScriptedLLM(calls(call("write", "c1")), "Done.")
    one = Durable(driven, HELLO, model, {"tools": [keyed], "locks": locks})
    one.journal.interrupt(2, is_stored=False)
    with pytest.raises(ENDS):
        one.process()
    ticket = locks.enter("a")

    def leave() -> None:
        order.append("other")
        locks.leave("a", ticket)

    timer = threading.Timer(0.1, leave)
    one.world._outcomes.clear()
    timer.start()
    assert one.process().output == "Done."
    timer.join()
    assert order[-2:] == ["other", "run"]
