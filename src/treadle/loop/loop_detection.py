"""Detection of endless loops: Orbiter's, extended to results, alternation and repeated text."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from treadle.context import Context
from treadle.messages import ToolCall, short_name
from treadle.results import LoopDetected
from treadle.run_state import RunNode
from treadle.tools import fingerprint, signature

MAX_PERIOD = 3
"""The longest pattern that is detected: A, A B, A B C."""
MAX_SHOWN = 5
"""The maximum number of calls that the reason names."""

Step: TypeAlias = tuple[str, ...]
"""The values by which iterations are compared: their calls and results, or their text."""


class LoopDetector:
    """Counts consecutive repetitions of a pattern of iterations with the same calls and the same results.

    Args:
        threshold: the number of repetitions that is an endless loop; None disables the detection.
    """

    def __init__(self, threshold: int | None) -> None:
        self._threshold = threshold
        self._steps: deque[Step] = deque(maxlen=MAX_PERIOD)
        self._alike = [0] * MAX_PERIOD
        self._is_alike = False

    def look(self, context: Context, node: RunNode) -> LoopDetected | None:
        """Add a finished iteration, and look for a loop.

        The same calls with other results are progress, and calls of volatile tools never count. A text counts
        if the run continues after it.

        Args:
            context: the context that the last stage returned.
            node: gets the signature of the calls as ``metadata["tool_signature"]``.

        Returns:
            The reason to end the run, or None.
        """
        calls = context.tool_calls
        made = ""
        if calls:
            prints = [call.fingerprint or _raw(call) for call in calls]
            made = prints[0] if len(prints) == 1 else signature(prints)
            node.metadata["tool_signature"] = made
        if self._threshold is None:
            return None
        step = _step(context, made)
        if step is None:
            self.new_turn()
            return None
        rounds, period = self._rounds(step)
        if rounds < self._threshold:
            return None
        shown = tuple(f"{short_name(c.name)}({short_name(c.arguments)})" for c in calls[:MAX_SHOWN])
        return LoopDetected(shown or (short_name(context.response.text),), rounds, made, period)

    def _rounds(self, step: Step) -> tuple[int, int]:
        """Add a step; return the number of repetitions and the length of the most frequent pattern."""
        steps, most = self._steps, (1, 1)
        if step not in steps:  # the common case
            if self._is_alike:
                self._is_alike, self._alike = False, [0] * MAX_PERIOD
            steps.append(step)
            return most
        self._is_alike = True
        for period in range(1, MAX_PERIOD + 1):
            if len(steps) < period or steps[-period] != step:
                self._alike[period - 1] = 0
                continue
            self._alike[period - 1] += 1
            rounds = self._alike[period - 1] // period + 1
            if rounds > most[0]:
                most = (rounds, period)
        steps.append(step)
        return most

    def new_turn(self) -> None:
        """Forget everything: a user message arrived, which may ask for a repetition."""
        self._steps.clear()
        self._alike = [0] * MAX_PERIOD

    def as_json(self) -> dict[str, Any]:
        """The steps so far, for the state of a paused run."""
        return {"steps": [list(step) for step in self._steps], "alike": list(self._alike)}

    def restore(self, seen: Mapping[str, Any]) -> None:
        """Restore what `as_json` returned."""
        self._steps.extend(tuple(step) for step in seen["steps"])
        self._alike = list(seen["alike"])
        self._is_alike = any(self._alike)


def _step(context: Context, made: str) -> Step | None:
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
