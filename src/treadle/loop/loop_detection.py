"""Endless-loop detection (Orbiter's, made aware of results)."""

from __future__ import annotations

from typing import Any

from treadle.stages import fingerprint, signature
from treadle.types import Context, LoopDetected, RunNode, ToolCall, shown_name

MAX_SHOWN = 5
"""Calls that the reason names."""


class LoopDetector:
    """Counts iterations in a row that made the same calls and learned the same.

    Args:
        threshold: how many of them are an endless loop.
    """

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._last: Any = None
        self._streak = 0

    def look(self, context: Context, node: RunNode) -> LoopDetected | None:
        """Look at a finished iteration.

        The same calls with other results are progress, and volatile tools may always be asked again.

        Args:
            context: as it left the stages.
            node: gets the signature of the calls as ``metadata["tool_signature"]``.

        Returns:
            The reason to end the run, or None.
        """
        calls = context.tool_calls
        if not calls:
            self._last = None
            return None
        prints = [call.fingerprint or _raw(call) for call in calls]
        made = signature(prints)
        node.metadata["tool_signature"] = made
        if any(_is_volatile(context, call) for call in calls):
            self._last = None
            return None
        results = context.tool_results
        # Sorted as the signature is: the same calls in another order are the same calls.
        learned = sorted(
            (print_, results[call.id].content)
            for print_, call in zip(prints, calls, strict=True)
            if call.id in results
        )
        seen = (made, learned)
        self._streak = self._streak + 1 if seen == self._last else 1
        self._last = seen
        if self._streak < self._threshold:
            return None
        shown = tuple(f"{shown_name(c.name)}({shown_name(c.arguments)})" for c in calls[:MAX_SHOWN])
        return LoopDetected(shown, self._streak, made)


def _raw(call: ToolCall) -> str:
    return fingerprint(call.name, call.arguments)


def _is_volatile(context: Context, call: ToolCall) -> bool:
    tool = context.tools.get(call.name)
    return tool is not None and tool.volatile
