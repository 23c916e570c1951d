"""Repeated calls: their earlier results, and how the loop reacts to repetition."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from treadle.messages import ToolCall, ToolResult
from treadle.tools.definition import Tool
from treadle.tools.fingerprints import Dedupe
from treadle.tools.unrun_calls import NotRun

NOTE_FROM = 3
"""From this number of identical calls in a turn on, the result has a note."""
MAX_PERIOD = 3
"""The longest pattern of iterations that is detected: A, A B, A B C."""
_PROOF: Mapping[Dedupe, int] = {"evidence": 2, "strict": 1}
"""How often in a row a call has to return the same before it is skipped; without an entry, it never is."""
_RAN = frozenset({"done", "timeout"})
_CUT_SHORT = frozenset({NotRun.CANCELLED.value, "unknown"})
_SKIPPED = frozenset({NotRun.NO_NEW_EVIDENCE.value, NotRun.DUPLICATE_IN_BATCH.value})


class Answer(NamedTuple):
    """The latest result of a call, with the version of the known facts and the writes after its iteration.

    A call that failed may be repeated; ``times`` is how often in a row the call has returned this.
    """

    version: int
    iteration: int
    content: str
    is_error: bool
    times: int
    writes: int


class Repeat(NamedTuple):
    """The answer to a repeated call in place of a run, and whether it runs if the model makes it once more."""

    reason: NotRun
    answer: Answer
    may_run: bool


@dataclass
class Repeats:
    """The calls of a turn, and the steps of a ladder for a model that repeats them: note, skip, stop.

    * Note: from the third identical call on, its result has a note with the count.
    * Skip: a call that has returned the same twice in a row (``evidence``) or once (``strict``), with nothing new
      learned since, is answered with that result.
    * Stop: a pattern of iterations that has occurred ``threshold`` times is an endless loop, but not before the
      model has seen that one of its calls was skipped. If calls of the pattern succeed and are never skipped,
      since their results alternate, or since each may change what the other returns, it ends in the round in
      which the model would have seen the skip of a single call. Calls that fail, tools with ``off``, and texts
      are never skipped: only the threshold counts for them.

    The version of the known facts increases with every iteration that returns something new in this turn, and with
    a user message. A call whose result has the current version would return nothing new.

    Results that were compacted away are *hidden*: the model no longer sees them. Such a call is no repetition. If
    the result still holds, the call is *recalled*, that is answered with it; else it runs.

    Args:
        threshold: how often a pattern of iterations occurs in an endless loop; None disables the detection.
        mode: when repeated calls of tools that do not say so are skipped; set by `plan_calls`.
        version: the version of the known facts.
        evidence: how often a call returned a result that it had not returned before.
        counts, answers, earlier: by fingerprint, how often the model made a call, its latest result, and those
            before.
        hidden: the calls whose results are hidden, each with whether the stored text is the whole result.
        writes: the number of calls that may have changed something.
        steps, alike: the latest iterations, and how many in a row were like those one, two, three before them.
        least: in which round of iterations that are alike the model has seen a skip; 0 while none are alike.
        learned, learned_in: the calls whose results are recorded, of the latest iteration that ran some.
        was_skipped, is_skipped: whether there was a skip in these iterations, before the latest one, and in it.
    """

    threshold: int | None = None
    mode: Dedupe = "off"
    version: int = 0
    evidence: int = 0
    counts: dict[str, int] = field(default_factory=dict[str, int])
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    earlier: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    hidden: dict[str, bool] = field(default_factory=dict[str, bool])
    writes: int = 0
    steps: tuple[tuple[str, ...], ...] = ()
    alike: list[int] = field(default_factory=lambda: [0] * MAX_PERIOD)
    least: int = 0
    learned: list[str] = field(default_factory=list[str])
    learned_in: int = 0
    was_skipped: bool = False
    is_skipped: bool = False

    def __post_init__(self) -> None:
        # The answers of a pause are plain tuples.
        self.answers = {key: Answer(*one) for key, one in self.answers.items()}

    def restore(self, paused: Repeats) -> None:
        """Continue with the memory of a paused run, and the threshold of this one."""
        vars(self).update({**vars(paused), "threshold": self.threshold})

    def mode_of(self, tool: Tool | None) -> Dedupe:
        """When repeated calls of a tool are skipped; None is a tool that only a resolver knows."""
        if tool is not None and tool.volatile:
            return "off"
        return (None if tool is None else tool.dedupe) or self.mode

    def before(self, call: ToolCall, tool: Tool | None) -> Repeat | None:
        """How a call is answered in place of a run; None if it runs.

        A hidden result still holds if the call succeeded, always returned the same, and no tool ran since that may
        have changed anything, that is one which is not read-only.
        """
        answer, mode = self.answers.get(call.fingerprint), self.mode_of(tool)
        if answer is None or answer.is_error or mode == "off":
            return None
        is_known = answer.version == self.version and answer.times >= _PROOF[mode]
        is_whole = self.hidden.get(call.fingerprint)
        if is_whole is None:
            return Repeat(NotRun.NO_NEW_EVIDENCE, answer, False) if is_known else None
        holds = call.fingerprint not in self.earlier and answer.writes == self.writes
        return Repeat(NotRun.RECALLED, answer, not is_known) if is_whole and holds else None

    def count(self, call: ToolCall) -> None:
        """Count a call that the model made."""
        self.counts[call.fingerprint] = self.counts.get(call.fingerprint, 0) + 1

    def note_not_run(self, call: ToolCall, reason: NotRun | None) -> None:
        """Note that a call is answered with an earlier result, if that is the reason why it does not run."""
        if reason is NotRun.RECALLED:
            self.hidden.pop(call.fingerprint, None)  # the model sees it again
        elif reason is NotRun.NO_NEW_EVIDENCE or reason is NotRun.DUPLICATE_IN_BATCH:
            self.count(call)

    def not_learned(self, iteration: int, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """The calls of an iteration whose results are not recorded yet: a plan may run in parts."""
        if iteration != self.learned_in:
            self.learned_in, self.learned = iteration, []
        return [call for call in calls if call.id not in self.learned] if self.learned else calls

    def learn(
        self,
        iteration: int,
        calls: Iterable[ToolCall],
        results: Mapping[str, ToolResult],
        tools: Mapping[str, Tool],
    ) -> None:
        """Record the results of calls that ran together, which count as one step; see `not_learned`.

        A tool that only a resolver knows may change something.
        """
        ran: list[tuple[str, ToolResult]] = []
        writes = outdated = 0
        is_new = has_changed = has_polled = was_cut_short = False
        for call in calls:
            result, tool = results.get(call.id), tools.get(call.name)
            if result is None:
                continue
            self.learned.append(call.id)
            is_read_only = tool is not None and tool.read_only
            if result.status not in _RAN:
                was_cut_short |= result.status in _CUT_SHORT and not is_read_only
                continue
            writes += not is_read_only
            if tool is not None:
                has_polled |= tool.volatile
                # A tool that must not run next to others may have changed what they return.
                if not (tool.parallel_safe or is_read_only or result.is_error):
                    has_changed, outdated = True, len(ran)
            is_new |= self._is_new(call.fingerprint, result.content)
            ran.append((call.fingerprint, result))
        self.evidence += is_new or has_polled
        self.version += is_new or has_changed
        self.writes += writes
        # Next to others, a tool that is not read-only may have changed something before or after they ran.
        stamp = self.writes - 1 if writes and len(ran) > 1 else self.writes
        for index, (key, result) in enumerate(ran):
            last, content, is_error = self.answers.get(key), result.content, result.is_error
            was_seen = self.hidden.pop(key, None) is None
            is_same = was_seen and last is not None and last[2:4] == (content, is_error)
            times = last.times + 1 if last is not None and is_same else 1
            version = self.version - 1 if index < outdated else self.version
            self.answers[key] = Answer(version, iteration, content, is_error, times, stamp)
        if was_cut_short:  # it has no result, and may have changed what others return
            self.writes += 1
            self.version += 1

    def _is_new(self, key: str, content: str) -> bool:
        """Whether a call has never returned this result before; the result that it replaces is noted."""
        last = self.answers.get(key)
        if last is None or last.content == content:
            return last is None
        seen = self.earlier.setdefault(key, set())
        seen.add(last.content)
        return content not in seen

    def look(
        self,
        made: str,
        calls: Sequence[ToolCall],
        results: Mapping[str, ToolResult],
        tools: Mapping[str, Tool],
    ) -> tuple[int, int] | None:
        """Add a finished iteration; return how often its pattern has occurred, and its length, if it is a loop.

        ``made`` is the signature of the calls, or the text of a response without calls, which may be blank. The
        same calls with other results are progress, and calls of volatile tools never count.
        """
        if self.threshold is None:
            return None
        parts, is_never_one = [made] if calls else ["text", made], not made
        if len(calls) > 1:  # their order is irrelevant
            calls = sorted(calls, key=operator.attrgetter("fingerprint"))
        for call in calls:
            tool, result = tools.get(call.name), results.get(call.id)
            is_never_one |= tool is not None and tool.volatile
            is_skipped = result is not None and result.status in _SKIPPED
            learned = (self.answers.get(call.fingerprint) if is_skipped else None) or result
            parts.append("" if learned is None else learned.content)
        if is_never_one:
            self._begin_epoch()
            return None
        step = tuple(parts)
        rounds, period = 1, 1
        if step in self.steps:
            self.least = max(self.least, self._least_rounds(calls, results, tools))
            self.was_skipped |= self.is_skipped
            self.is_skipped = any(
                one.status == NotRun.NO_NEW_EVIDENCE.value for one in results.values()
            )
            earlier = itertools.zip_longest(self.alike, reversed(self.steps))
            self.alike = [count + 1 if before == step else 0 for count, before in earlier]
            for length, count in enumerate(self.alike, 1):
                if count // length + 1 > rounds:
                    rounds, period = count // length + 1, length
        elif self.least:
            self._end_streak()
        self.steps = (*self.steps, step)[-MAX_PERIOD:]
        if rounds < self.threshold:
            return None
        least = self.least or self._least_rounds(calls, results, tools)
        return (rounds, period) if self.was_skipped or rounds >= least else None

    def _least_rounds(
        self,
        calls: Iterable[ToolCall],
        results: Mapping[str, ToolResult],
        tools: Mapping[str, Tool],
    ) -> int:
        """The round in which the model has seen a skip, if any call is skipped: run, skip, once more."""
        good = (call for call in calls if call.id in results and not results[call.id].is_error)
        proofs = (_PROOF.get(self.mode_of(tools.get(call.name)), -1) for call in good)
        return max((proof + 2 for proof in proofs), default=1)

    def hide(self, calls: Mapping[str, bool]) -> None:
        """Note that the model no longer sees the results of some calls; see ``hidden``."""
        self.hidden.update(calls)
        for fingerprint in calls:
            self.counts.pop(fingerprint, None)
        self._begin_epoch()

    def new_turn(self) -> None:
        """Forget everything: a user message arrived, which may ask for a repetition."""
        self.version += 1
        self.evidence += 1
        for known in (self.counts, self.answers, self.earlier, self.hidden):
            known.clear()
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        """Forget the iterations: the model no longer sees them, or may repeat them."""
        self.steps = ()
        self._end_streak()

    def _end_streak(self) -> None:
        self.alike, self.least = [0] * MAX_PERIOD, 0
        self.was_skipped = self.is_skipped = False
