"""Runs whose processes are killed: what ran twice, what was lost, and what the model is told of it.

Each effect of a run is written to a file when it begins and when it has happened, and compared with what was
recorded of it. `kills_temporal.py` has the processes that are killed. A process dies by SIGKILL, at an effect that
was chosen, before or after it has happened, or at any time.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from treadle import Loop, Ok, Result, Tool, tool
from treadle.messages import JSONDict
from treadle.testing import check_history

LONGEST = 0.02
"""The most seconds that an effect takes."""
POINTS = ("before", "after")
"""Where a process dies: before an effect has happened, or after it, when nobody knows."""


class Effect(NamedTuple):
    """An effect of a run.

    Args:
        run: the name of the run.
        step: the number of the iteration, from 0.
        kind: ``chat``, ``note`` or ``pay``.
    """

    run: str
    step: int
    kind: str

    def __str__(self) -> str:
        return f"{self.run}-{self.step}-{self.kind}"

    @classmethod
    def named(cls, text: str) -> Effect:
        """The effect with this text."""
        run, step, kind = text.rsplit("-", 2)
        return cls(run, int(step), kind)


def effects_of(run: str, steps: int) -> list[Effect]:
    """All effects of a run, in order."""
    calls = [Effect(run, step, kind) for step in range(steps) for kind in ("chat", "note", "pay")]
    return [*calls, Effect(run, steps, "chat")]


class World:
    """What the effects of runs change: a file to which each is appended when it begins and when it has happened.

    Args:
        folder: where the file is, and the files that have a process die at an effect.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "effects"

    def plan(self, effect: Effect, point: str) -> None:
        """Have the process die that comes to a point of an effect first."""
        (self._folder / f"{effect}.{point}").touch()

    async def happen(self, effect: Effect) -> None:
        """Let an effect happen, unless this process dies."""
        self._reach(effect, "before")
        self._write("begin", effect)
        await asyncio.sleep(random.uniform(0, LONGEST))
        self._write("end", effect)
        self._reach(effect, "after")

    def _reach(self, effect: Effect, point: str) -> None:
        try:
            (self._folder / f"{effect}.{point}").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def _write(self, what: str, effect: Effect) -> None:
        line = f"{what} {effect} {time.time()!r}\n".encode()
        to = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(to, line)
        finally:
            os.close(to)

    def seen(self) -> Mapping[Effect, Seen]:
        """What has happened."""
        seen: dict[Effect, Seen] = defaultdict(Seen)
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                what, name, at = line.split(" ")
                times = seen[Effect.named(name)]
                (times.begun if what == "begin" else times.happened).append(float(at))
        return seen


@dataclass
class Seen:
    """When an effect began and happened, each time in seconds since the epoch."""

    begun: list[float] = field(default_factory=list)
    happened: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Recorded:
    """What was recorded of an effect.

    Args:
        starts: how often it was started; one that was started may not have begun.
        at: when its outcome was recorded, in seconds since the epoch; None if it has none.
    """

    starts: int
    at: float | None


# The runs


def question(run: str, steps: int) -> list[JSONDict]:
    """The messages with which a run starts."""
    return [{"role": "user", "content": f"{run} {steps}"}]


def answer(messages: Sequence[Mapping[str, Any]]) -> tuple[Effect, JSONDict]:
    """The next request of a run as an effect, and what the model says to it."""
    asked = next(message for message in messages if message["role"] == "user")
    run, steps = asked["content"].split()
    step = sum(message["role"] == "assistant" for message in messages)
    if step == int(steps):
        return Effect(run, step, "chat"), {"role": "assistant", "content": "Done."}
    calls = [
        {
            "id": str(Effect(run, step, kind)),
            "type": "function",
            "function": {"name": kind, "arguments": json.dumps({"what": f"{run} {step}"})},
        }
        for kind in ("note", "pay")
    ]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    return Effect(run, step, "chat"), said


def tools_of(world: World) -> list[Tool]:
    """A tool that may be called again, and one that may not."""

    @tool(idempotent=True)
    async def note(what: str) -> str:
        """Note something."""
        run, step = what.split()
        await world.happen(Effect(run, int(step), "note"))
        return f"noted {what}"

    @tool(idempotent=False)
    async def pay(what: str) -> str:
        """Pay for something."""
        run, step = what.split()
        await world.happen(Effect(run, int(step), "pay"))
        return f"paid {what}"

    return [note, pay]


def loop_of(world: World) -> Loop[Any]:
    """The loop of the runs."""

    async def model(messages: list[JSONDict], **_options: Any) -> JSONDict:
        effect, said = answer(messages)
        await world.happen(effect)
        return said

    return Loop(tools=tools_of(world), llm_send_fn=model, name="killed", max_iterations=100)


# What is wrong


@dataclass
class Report:
    """What was found of some runs.

    Attributes:
        effects: the number of effects.
        again: how many of them began more than once.
        unknown: how many outcomes the model was told are unknown.
        problems: what is wrong.
    """

    effects: int = 0
    again: int = 0
    unknown: int = 0
    problems: list[str] = field(default_factory=list)

    def add(
        self,
        run: str,
        steps: int,
        result: Result,
        seen: Mapping[Effect, Seen],
        recorded: Mapping[Effect, Recorded],
    ) -> None:
        """Compare the result of a run, what happened, and what was recorded."""
        effects = effects_of(run, steps)
        self.effects += len(effects)
        self.again += sum(len(seen[one].begun) > 1 for one in effects if one in seen)
        told = {
            message["tool_call_id"]: message["content"]
            for message in result.messages
            if message["role"] == "tool"
        }
        unknown = {name for name, text in told.items() if text.startswith("Unknown: ")}
        self.unknown += len(unknown)
        for effect in effects:
            for problem in _problems(
                effect, str(effect) in unknown, seen.get(effect, Seen()), recorded.get(effect)
            ):
                self.problems.append(f"{effect}: {problem}")
        for problem in _wrong_messages(run, steps, result, told, unknown):
            self.problems.append(f"{run}: {problem}")


def _problems(
    effect: Effect, is_unknown: bool, seen: Seen, recorded: Recorded | None
) -> Iterator[str]:
    """What is wrong with one effect."""
    begun, happened = len(seen.begun), len(seen.happened)
    if recorded is None:
        yield "nothing is recorded of it"
        return
    if begun > recorded.starts:
        yield f"it began {begun} times, and was started {recorded.starts} times"
    if recorded.at is not None and seen.begun and max(seen.begun) > recorded.at:
        yield "it began again after its outcome was recorded"
    if effect.kind == "pay":
        if begun > 1:
            yield f"it is not idempotent, and began {begun} times"
        if is_unknown != (recorded.at is None):
            yield f"its outcome is {'' if recorded.at else 'not '}recorded, and told as {is_unknown=}"
        if not is_unknown and happened != 1:
            yield f"its outcome is told, and it happened {happened} times"
    elif is_unknown:
        yield "it is idempotent, and told as unknown"
    elif not happened:
        yield "it has not happened"


def _wrong_messages(
    run: str, steps: int, result: Result, told: Mapping[str, str], unknown: set[str]
) -> Iterator[str]:
    """What is wrong with the result, beside that of a run that nobody killed."""
    if not isinstance(result, Ok):
        yield f"it ended with {result!r}"
        return
    try:
        check_history(result.messages)
    except AssertionError as error:
        yield f"its history is invalid: {error}"
    expected = undisturbed(run, steps)
    for message in expected:
        name = message.get("tool_call_id")
        if name in unknown:
            message["content"] = told[name]
    for place, (found, other) in enumerate(zip_longest(result.messages, expected)):
        if found != other:
            yield f"message {place} is {found}, and {other} in a run that was not killed"


def undisturbed(run: str, steps: int) -> list[JSONDict]:
    """The messages of a run that nobody killed."""
    with tempfile.TemporaryDirectory() as folder:
        result = loop_of(World(Path(folder))).run_sync(question(run, steps))
    return [json.loads(json.dumps(message)) for message in result.messages]
