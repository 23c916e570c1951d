"""Runs with a journal in memory, whose processes end at chosen writes, each followed by another one."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

from tests.deciding import on
from tests.ways import HandleRef, ObservedRun, Way
from tests.whole.scripts import Script

from treadle import Loop
from treadle.errors import OutcomeUnknownError
from treadle.recording.journaled import result_from_data
from treadle.recording.log import RESUMED, STARTED, Entry

from .memory import ENDS, MemoryJournal, log_of
from .world import World, repeatable

RUN = "run"


class Durable:
    """A run with a journal, in the world.

    Args:
        way: how each process runs it.
        messages: what it starts from.
        llm: the model.
        options: the options of the loop.
        decisions: what is decided at each of its pauses.

    Attributes:
        journal: the journal.
        world: performs its calls.
        processes: what was observed of each process.
        unknown: the keys of the calls that were in flight when a process ended.
    """

    def __init__(
        self, way: Way, messages: Any, llm: Any, options: dict[str, Any], decisions: Any = ()
    ) -> None:
        self.way, self.messages, self.llm, self.options = way, messages, llm, dict(options)
        self.decisions = list(decisions)
        self.journal = MemoryJournal()
        self.world = World(self.journal)
        self.processes: list[ObservedRun] = []
        self.unknown: set[str] = set()
        self._handle_ref = self.options.pop("handle_ref", None)
        if self._handle_ref is not None:
            self._handle_ref.steer = lambda text: self.journal.send(RUN, text)

    @classmethod
    def of(cls, way: Way, script: Script, *, is_repeatable: bool) -> Durable:
        """The run of a script.

        Args:
            way: how each process runs it.
            script: the script.
            is_repeatable: whether its tools are idempotent.
        """
        llm, options = script.build()
        made = repeatable(options) if is_repeatable else options
        return cls(way, script.messages, llm, made, script.decisions)

    def process(self, **more: Any) -> Any:
        """Run it in one process, up to its end, its next pause or the end of the process; return the result."""
        observed = ObservedRun()
        self.processes.append(observed)
        options = {"name": "agent", "journal": self.journal, "run_id": RUN, **self.options, **more}
        options.setdefault("middleware", [self.world])
        if self._handle_ref is not None:
            options["handle_ref"] = HandleRef(is_wanted=True)
        given = (self.messages, self.llm)
        self.way.go(observed, Loop.run, Loop.run_sync, Loop.stream, given, options, None)
        return observed.result

    def run(self) -> Any:
        """Run it to the end, in as many processes as it takes; return the result."""
        decisions = iter(self.decisions)
        while True:
            self.note_unknown()
            result = None
            with contextlib.suppress(*ENDS):
                result = self.process()
            if result is None:
                continue
            following = next(decisions, None) if result.stop_reason == "paused" else None
            if following is None:
                return result
            self.decide(following)

    def decide(self, decisions: dict[str, Any]) -> None:
        """Decide on calls that wait, by the ids of the calls."""
        paused = result_from_data(
            json.loads(self.journal.parts[RUN][-1]["outcome"])["result"], Loop()
        )
        decided = {key: dataclasses.asdict(one) for key, one in on(paused, decisions).items()}
        self.journal.decided.setdefault(RUN, {}).update(decided)

    def note_unknown(self) -> None:
        """Note the calls that were in flight when the latest process ended."""
        parts = self.journal.parts.get(RUN)
        if not parts or parts[-1]["outcome"] is not None:
            return
        log = log_of(parts[-1])
        over = {entry.place for entry in log if entry.kind not in {STARTED, RESUMED}}
        self.unknown |= {
            entry.key
            for entry in log
            if entry.kind == STARTED and entry.label and entry.place not in over
        }

    @property
    def told(self) -> set[str]:
        """The keys of the calls whose outcome the run took for unknown."""
        log: list[Entry] = self.journal.log(RUN)
        return {entry.key for entry in log if isinstance(entry.error, OutcomeUnknownError)}
