"""A model of the ladder: what a script of calls runs, skips and nudges, and when it is stopped.

It is written from the guide, over plain lists, and uses nothing of the library. Each rule looks at the whole past.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, int]
"""A call: the name of its tool, and its argument."""

LEAST = {"evidence": 4, "strict": 3, "off": 1}
WHITE = {"clock"}
"""Volatile tools."""
WRITES = {"write"}
"""Tools that are not parallel-safe: each success may change what others return."""


@dataclass
class Made:
    """What an iteration came to.

    Args:
        batch: its calls.
        ran: the results of those that ran: key, content, whether it failed.
        skipped: the positions of calls that were answered with an earlier result.
        twins: the positions of calls that are the same as an earlier one of the batch, and did not run.
        nudged: the positions of calls whose results have a note.
    """

    batch: list[Key]
    ran: list[tuple[Key, str, bool]] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    twins: list[int] = field(default_factory=list)
    nudged: list[int] = field(default_factory=list)


class LadderModel:
    """The run of a script.

    Args:
        tools: the mode of each tool; None where the loop decides.
        dedupe: the mode of the loop.
        threshold: ``loop_threshold``; None disables the last rung.
        results: for each tool what its calls return in the iterations, over and over; ``!`` is a failure.
    """

    def __init__(
        self,
        tools: dict[str, str | None],
        dedupe: str,
        threshold: int | None,
        results: dict[str, str],
    ) -> None:
        self.tools, self.dedupe, self.threshold, self.results = tools, dedupe, threshold, results
        self.past: list[Made] = []

    def play(self, script: list[list[Key]]) -> tuple[int, int] | None:
        """Play the script; return the number of repetitions and the period of the loop that ends it, if any."""
        for batch in script:
            self.past.append(self._iteration(batch))
            found = self._loop()
            if found is not None:
                return found
        return None

    def mode(self, name: str) -> str:
        return "off" if name in WHITE else self.tools[name] or self.dedupe

    def result(self, key: Key, iteration: int) -> tuple[str, bool]:
        texts = self.results[key[0]]
        text = texts[iteration % len(texts)]
        return text, text == "!"

    # One iteration.

    def _iteration(self, batch: list[Key]) -> Made:
        made = Made(batch)
        for position, key in enumerate(batch):
            if self._is_known(key):
                made.skipped.append(position)
            elif key in batch[:position] and self.mode(key[0]) != "off":
                made.twins.append(position)
            else:
                made.ran.append((key, *self.result(key, len(self.past) + 1)))
        counts = [key for before in [*self.past, made] for key in before.batch]
        for position, key in enumerate(batch):
            _, has_failed = self._shown(made, key)
            if counts.count(key) >= 3 and not has_failed and key[0] not in WHITE:
                made.nudged.append(position)
        return made

    def _executions(self, key: Key) -> list[tuple[int, str, bool]]:
        """The iterations in which a call ran, from the first, with the results."""
        return [
            (index, content, has_failed)
            for index, before in enumerate(self.past)
            for ran, content, has_failed in before.ran
            if ran == key
        ]

    def _is_known(self, key: Key) -> bool:
        executions, mode = self._executions(key), self.mode(key[0])
        if mode == "off" or not executions:
            return False
        at, content, has_failed = executions[-1]
        if has_failed or any(self._is_news(index) for index in range(at + 1, len(self.past))):
            return False
        was_repeated = len(executions) > 1 and executions[-2][1:] == (content, False)
        return mode == "strict" or was_repeated

    def _is_news(self, index: int) -> bool:
        """Whether an iteration returned something that its calls had not returned before, or wrote."""
        before = {(key, content) for made in self.past[:index] for key, content, _ in made.ran}
        return any(
            (key, content) not in before or (key[0] in WRITES and not has_failed)
            for key, content, has_failed in self.past[index].ran
        )

    def _shown(self, made: Made, key: Key) -> tuple[str, bool]:
        """The result that the model sees of a call: the latest, in this iteration or before."""
        ran = [(content, failed) for ran, content, failed in made.ran if ran == key]
        return ran[-1] if ran else self._executions(key)[-1][1:]

    # The last rung.

    def _loop(self) -> tuple[int, int] | None:
        steps = [self._step(index) for index in range(len(self.past))]
        last = len(steps) - 1
        if self.threshold is None or steps[last] is None:
            return None
        found = max(
            ((self._rounds(steps, period), -period) for period in (1, 2, 3)), default=(1, -1)
        )
        rounds, period = found[0], -found[1]
        alike = last
        while self._is_alike(steps, alike):
            alike -= 1
        repetitions = range(alike + 1, last + 1)
        least = max((self._least(index) for index in repetitions), default=self._least(last))
        has_seen_skip = any(self.past[index].skipped for index in repetitions if index != last)
        if rounds >= self.threshold and (has_seen_skip or rounds >= least):
            return rounds, period
        return None

    def _step(self, index: int) -> Any:
        made = self.past[index]
        if any(key[0] in WHITE for key in made.batch):
            return None
        past, self.past = self.past, self.past[:index]
        shown = sorted((key, self._shown(made, key)[0]) for key in made.batch)
        self.past = past
        return shown

    def _rounds(self, steps: list[Any], period: int) -> int:
        """How often the last iterations of a period have occurred in a row."""
        count, index = 0, len(steps) - 1
        while index >= period and None not in steps[index - period : index + 1]:
            if steps[index] != steps[index - period]:
                break
            count, index = count + 1, index - 1
        return count // period + 1

    def _is_alike(self, steps: list[Any], index: int) -> bool:
        """Whether an iteration is one of the three before it, with no exempt one in between."""
        for before in range(index - 1, max(index - 4, -1), -1):
            if steps[before] is None:
                return False
            if steps[before] == steps[index]:
                return True
        return False

    def _least(self, index: int) -> int:
        made = self.past[index]
        failed = {key for key, _, has_failed in made.ran if has_failed}
        return max([1, *(LEAST[self.mode(key[0])] for key in made.batch if key not in failed)])
