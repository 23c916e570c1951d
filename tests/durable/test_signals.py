"""A signal is an interruption wherever it arrives: the run goes on with an unchanged loop."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle import Loop, stage, tool
from treadle.effects import NOW, Bounded, Call, Effect, Steps, map_effects
from treadle.errors import ReplayError
from treadle.stages import default_stages
from treadle.testing import call, calls, check_history

from .memory import MemoryJournal, MemoryRun

RUN = "run"
SEEDS = int(os.environ.get("SEEDS", "4"))


class Signalled(BaseException):
    """What the handler of a signal raises."""


ENDS = (KeyboardInterrupt, SystemExit, Signalled)


class Interrupter:
    """Raises an exception at one of the points of a run.

    Args:
        at: the number of the point, from 1; 0 raises never.
        kind: the exception.
    """

    def __init__(self, at: int = 0, kind: type[BaseException] = KeyboardInterrupt) -> None:
        self.at, self.kind, self.points = at, kind, 0

    def point(self) -> None:
        """One of the points."""
        self.points += 1
        if self.points == self.at:
            handler(self.kind)

    def middleware(self, steps: Steps[Any]) -> Steps[Any]:
        """Points before each effect, within the steps that yield it."""

        def change(effect: Effect) -> Effect:
            self.point()
            return effect

        return map_effects(steps, change)


def handler(kind: type[BaseException]) -> None:
    """Raise, in a frame that belongs to the handler of a signal."""
    raise kind


@pytest.fixture(autouse=True, scope="module")
def _handled() -> Iterator[None]:
    """SystemExit from `handler` is that of a signal's handler."""
    before = signal.signal(signal.SIGUSR2, handler)  # type: ignore[arg-type]
    yield
    signal.signal(signal.SIGUSR2, before)


def model(messages: Any) -> Any:
    """Ask two subagents, or pay in a subagent; then answer."""
    if messages[-1]["role"] == "tool":
        return "Done."
    if messages[-1]["content"] == "Go.":
        return calls(call("sub", "c1", task="pay 1"), call("sub", "c2", task="pay 2"))
    n = int(messages[-1]["content"][-1])
    return calls(call("pay", f"d{n}", n=n))


def loop_of(paid: list[int], interrupter: Interrupter, cleaned: list[str]) -> Loop[Any]:
    """Two subagents at the same time, whose stages have points, effects and cleanup."""

    @tool
    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return f"paid {n}"

    def steps() -> Steps[str]:
        yield NOW
        interrupter.point()
        return "in time"

    def plain(ctx: Any) -> Any:
        """Have a point."""
        interrupter.point()
        return ctx

    def careful(ctx: Any) -> Steps[Any]:
        """Have points, and clean up with effects."""
        try:
            yield Call(str, "acquired")
            interrupter.point()
            yield Bounded(steps(), seconds=60)
            interrupter.point()
        finally:
            yield NOW
            yield Call(cleaned.append, "released", label="stage", key="release")
        return ctx

    before = [stage(plain, "plain"), stage(careful, "careful")]
    stages = [*before, *default_stages(), stage(careful, "late"), stage(plain, "last")]
    sub = Loop(tools=[pay], stages=stages, llm_send_fn=model, name="sub")
    return Loop(
        tools=[sub.as_tool("sub", "Pay.")],
        stages=stages,
        llm_send_fn=model,
        name="agent",
        middleware=[interrupter.middleware],
    )


def go(journal: Any, interrupter: Interrupter, paid: list[int]) -> Any:
    """Run it in one process; return the result."""
    cleaned: list[str] = []
    options = {"journal": journal, "run_id": RUN}
    return loop_of(paid, interrupter, cleaned).run_sync("Go.", **options)


def contents(result: Any) -> list[str]:
    check_history(result.messages)
    return [one["content"] for one in result.messages if one["role"] == "tool"]


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("in_replay", [False, True], ids=["", "and in the replay"])
def test_an_interruption_at_each_effect_and_in_each_stage(kind: Any, in_replay: bool):
    whole = Interrupter()
    expected = contents(go(MemoryJournal(), whole, []))
    assert whole.points > 100
    for at in range(1, whole.points + 1, 3 if in_replay else 1):
        journal, paid = MemoryJournal(), list[int]()
        with pytest.raises(kind):
            go(journal, Interrupter(at, kind), paid)
        replayed = Interrupter((7 * at) % (2 * at) + 1 if in_replay else 0, kind)
        try:
            result = go(journal, replayed, paid)
        except kind:
            assert in_replay
            result = go(journal, Interrupter(), paid)
        assert result.output == "Done.", at
        assert max(paid.count(1), paid.count(2)) <= 1, at
        found = contents(result)
        assert found == expected or any("Unknown: " in one for one in found) or paid == [], at


def test_an_interruption_that_a_stage_swallows_ends_the_run():
    @stage
    def stubborn(ctx: Any) -> Steps[Any]:
        """Go on after an interruption."""
        try:
            if interrupted:
                handler(interrupted.pop())
        except KeyboardInterrupt:
            yield Call(str, "noted", label="stage", key="note")
        return ctx

    interrupted: list[Any] = [KeyboardInterrupt]
    journal = MemoryJournal()
    options: Any = {"stages": [stubborn, *default_stages()], "journal": journal, "run_id": RUN}
    with pytest.raises(KeyboardInterrupt):
        Loop.run_sync("Hi.", lambda _: "Hello.", **options)
    assert Loop.run_sync("Hi.", lambda _: "Hello.", **options).output == "Hello."


def test_a_stage_that_calls_exit_fails_and_its_cleanup_is_a_part_of_the_run():
    @stage
    def leaving(ctx: Any) -> Steps[Any]:
        """Exit, and clean up."""
        try:
            sys.exit(2)
        finally:
            yield Call(cleaned.append, "released", label="stage", key="release")
        return ctx

    cleaned: list[str] = []
    journal = MemoryJournal()
    options: Any = {"stages": [leaving, *default_stages()], "journal": journal, "run_id": RUN}
    for _ in range(2):
        result = Loop.run_sync("Hi.", lambda _: "Hello.", **options)
        assert result.stop_reason == "pipeline_failed"
    assert cleaned == ["released"]


class InterruptedJournal(MemoryJournal):
    """A signal arrives at the end of one of its writes, and the process goes on to its cleanup."""

    def open(self, run_id: str, start: Any) -> MemoryRun:
        """Open a run whose write can be interrupted."""
        opened = super().open(run_id, start)
        add, opened.add = opened.add, lambda *args: self.interrupted(add, *args)
        return opened

    def interrupted(self, add: Any, *args: Any) -> None:
        """Write, and be interrupted at one time."""
        add(*args)
        if self.writes == self.ends_at:
            handler(KeyboardInterrupt)

    ends_at = 0


def test_an_interruption_within_a_write_of_the_journal_writes_nothing_twice():
    whole = InterruptedJournal()
    expected = contents(go(whole, Interrupter(), []))
    for at in range(1, whole.writes + 1):
        journal, paid = InterruptedJournal(), list[int]()
        journal.ends_at = at
        with contextlib.suppress(KeyboardInterrupt):
            go(journal, Interrupter(), paid)
        journal.ends_at = 0
        found = contents(go(journal, Interrupter(), paid))
        assert found == expected or any("Unknown: " in one for one in found) or paid == [], at
        assert max(paid.count(1), paid.count(2)) <= 1, at


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # steps that were left with cleanup
@pytest.mark.parametrize("kind", ENDS)
def test_an_interruption_at_instructions_of_the_library(kind: Any):
    """As Python raises it there: between two lines of any function."""
    expected = contents(go(MemoryJournal(), Interrupter(), []))
    lines = traced(0, kind, lambda: go(MemoryJournal(), Interrupter(), []))
    for at in random.Random(kind.__name__).sample(range(1, lines), 120):
        journal, paid = MemoryJournal(), list[int]()
        with contextlib.suppress(kind):
            traced(at, kind, lambda: go(journal, Interrupter(), paid))  # noqa: B023 - called at once
        try:
            result = go(journal, Interrupter(), paid)
        except ReplayError as error:
            raise AssertionError(f"line {at}") from error
        assert max(paid.count(1), paid.count(2)) <= 1, at
        found = contents(result)
        assert found == expected or any("Unknown: " in one for one in found) or paid == [], at
    gc.collect()  # here, where their reports are ignored


def traced(at: int, kind: type[BaseException], act: Callable[[], Any]) -> int:
    """Call a function; raise at a line of the library in it. Return the number of lines."""
    lines = 0

    def trace(frame: Any, event: str, _arg: Any) -> Any:
        nonlocal lines
        if "/treadle/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines += 1
            if lines == at:
                handler(kind)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return lines


PROGRAM = """
import signal, sys
from tests.durable.test_signals import Interrupter, go
from treadle.durable import SQLiteJournal

if sys.argv[3] == "exit":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
paid = open(sys.argv[2], "a", buffering=1)

class Paid(list):
    def append(self, n):
        print(n, file=paid)

print("ready", flush=True)
result = go(SQLiteJournal(sys.argv[1]), Interrupter(), Paid())
print(result.output, flush=True)
"""


@pytest.mark.parametrize("how", ["interrupt", "exit"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_real_signals_at_random_times(tmp_path: Path, how: str, seed: int):
    number = signal.SIGINT if how == "interrupt" else signal.SIGTERM
    times = random.Random(seed)
    paid = tmp_path / "paid"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "journal.db"), str(paid), how]
    said = errors = ""
    for attempt in range(12):
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if attempt < 8:
            time.sleep(times.uniform(0, 0.25))
            process.send_signal(number)
        said, errors = process.communicate(timeout=60)
        assert "ReplayError" not in errors
        if process.returncode == 0:
            break
    assert said == "Done.\n", errors
    lines = paid.read_text().split()
    assert len(lines) == len(set(lines))
