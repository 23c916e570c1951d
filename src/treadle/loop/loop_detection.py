"""Detection of endless loops: Orbiter's, extended to results, alternation and repeated text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from treadle.context import Context
from treadle.messages import ToolCall, short_name
from treadle.results import LoopDetected
from treadle.run_state import RunNode
from treadle.tools import Dedupe, NotRunReason, fingerprint, signature

MAX_PERIOD = 3
"""The longest pattern that is detected: A, A B, A B C."""
MAX_SHOWN = 5
"""The maximum number of calls that the reason names."""

_LEAST: Mapping[Dedupe, int] = {"evidence": 4, "strict": 3, "off": 1}
"""How often a call has to be made until the model has seen a skip of it: call, repetition, skip, once more."""
_SKIPPED = NotRunReason.NO_NEW_EVIDENCE

Repeated: TypeAlias = tuple[str, ...]
"""The values by which iterations are compared: their calls and results, or their text."""


@dataclass
class LoopDetector:
    """Counts how often a pattern of iterations with the same calls and the same results occurs in a row.

    A pattern that has occurred ``threshold`` times is an endless loop, but not before the model has seen that one
    of its calls was skipped. If calls of the pattern succeed and are never skipped, since their results alternate,
    or since each may change what the other returns, it ends after it has occurred four times (``evidence``) or
    three times (``strict``), however low the threshold. Calls that fail, and tools with ``off``, are never
    skipped: only the threshold counts for them.

    Args:
        threshold: how often a pattern occurs in an endless loop; None disables the detection.
        steps: the latest iterations.
        alike: how many iterations in a row were like those one, two, three before them.
        least: how often iterations that are alike have to occur.
        was_skipped: whether there was a skip in these iterations, before the latest one.
        is_skipped: whether there was one in the latest.
    """

    threshold: int | None
    steps: tuple[Repeated, ...] = ()
    alike: list[int] = field(default_factory=lambda: [0] * MAX_PERIOD)
    least: int = 0
    was_skipped: bool = False
    is_skipped: bool = False
    _compactions: int = field(default=0, init=False)

    def look(self, context: Context, node: RunNode) -> LoopDetected | None:
        """Add a finished iteration, and look for a loop.

        The same calls with other results are progress, and calls of volatile tools never count. A text counts if
        the run continues after it. A compaction begins anew, so a call that is recalled is no repetition.

        Args:
            context: the context that the last stage returned.
            node: gets the signature of the calls as ``metadata["tool_signature"]``.

        Returns:
            The reason to end the run, or None.
        """
        calls = context.tool_calls
        made = ""
        if calls:
            made = calls[0].fingerprint
            if len(calls) > 1 or not made:
                made = signature(call.fingerprint or _raw(call) for call in calls)
            node.metadata["tool_signature"] = made
        if self.threshold is None:
            return None
        if context.run.compactions != self._compactions:  # what is repeated now is no longer seen
            self._compactions = context.run.compactions
            self.new_turn()
        step = _step(context, made)
        if step is None:
            self.new_turn()
            return None
        rounds, period = self._rounds(step, context)
        if rounds < self.threshold:
            return None
        if not self.was_skipped and rounds < (self.least or _least_rounds(context)):
            return None
        shown = tuple(f"{short_name(c.name)}({short_name(c.arguments)})" for c in calls[:MAX_SHOWN])
        return LoopDetected(shown or (short_name(context.response.text),), rounds, made, period)

    def _rounds(self, step: Repeated, context: Context) -> tuple[int, int]:
        """Add a step; return how often the most frequent pattern has occurred, and its length."""
        steps, most = self.steps, (1, 1)
        if step not in steps:  # the common case
            if self.least:
                self._forget()
            self.steps = (*steps, step)[-MAX_PERIOD:]
            return most
        self.least = max(self.least, _least_rounds(context))
        self.was_skipped |= self.is_skipped
        self.is_skipped = _SKIPPED in context.plan.not_run.values()
        for period in range(1, MAX_PERIOD + 1):
            if len(steps) < period or steps[-period] != step:
                self.alike[period - 1] = 0
                continue
            self.alike[period - 1] += 1
            rounds = self.alike[period - 1] // period + 1
            if rounds > most[0]:
                most = (rounds, period)
        self.steps = (*steps, step)[-MAX_PERIOD:]
        return most

    def new_turn(self) -> None:
        """Forget everything: a user message arrived, which may ask for a repetition."""
        self.steps = ()
        self._forget()

    def _forget(self) -> None:
        """Forget that iterations were alike."""
        self.alike = [0] * MAX_PERIOD
        self.least = 0
        self.was_skipped = self.is_skipped = False


def _step(context: Context, made: str) -> Repeated | None:
    """The value by which an iteration is compared; None if it is never a repetition."""
    calls = context.tool_calls
    if not calls:
        return None if context.response.is_blank else ("text", context.response.text)
    for call in calls:
        tool = context.tools.get(call.name)
        if tool is not None and tool.volatile:
            return None
    if len(calls) == 1:
        result = context.tool_results.get(calls[0].id)
        if result is not None and result.status == "done":
            return (made, result.content)
    return (made, *_all_learned(context, calls))


def _least_rounds(context: Context) -> int:
    """How often an iteration has to occur until the model has seen a skip of one of its calls, if there is any."""
    least = 1
    for call in context.tool_calls:
        result = context.tool_results.get(call.id)
        if result is not None and not result.is_error:
            mode = context.run.dedupe_of(context.tools.get(call.name))
            least = max(least, _LEAST[mode])
    return least


def _all_learned(context: Context, calls: Sequence[ToolCall]) -> list[str]:
    """The results of the calls, in the order of their fingerprints: the order of the calls is irrelevant."""
    ordered = sorted(calls, key=lambda call: call.fingerprint)
    return [_learned(context, call) for call in ordered]


def _learned(context: Context, call: ToolCall) -> str:
    """The result of a call; for a suppressed call, its earlier result."""
    result = context.tool_results.get(call.id)
    if result is None:
        return ""
    if result.status == "suppressed":
        results = context.run.result_cache
        answer = results.latest(call.fingerprint)
        if answer is not None:
            return answer.content
    return result.content


def _raw(call: ToolCall) -> str:
    return fingerprint(call.name, call.arguments)
