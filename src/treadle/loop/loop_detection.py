"""Endless-loop detection (Orbiter's, made aware of results)."""

from __future__ import annotations

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
        self._before: tuple[str, Context] | None = None
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
        before, self._before = self._before, None
        if not calls:
            return None
        made = signature([call.fingerprint or _raw(call) for call in calls])
        node.metadata["tool_signature"] = made
        for call in calls:
            tool = context.tools.get(call.name)
            if tool is not None and tool.volatile:
                return None
        self._before = (made, context)
        if before is None or before[0] != made or _learned(before[1]) != _learned(context):
            self._streak = 1
        else:
            self._streak += 1
        if self._streak < self._threshold:
            return None
        shown = tuple(f"{shown_name(c.name)}({shown_name(c.arguments)})" for c in calls[:MAX_SHOWN])
        return LoopDetected(shown, self._streak, made)


def _learned(context: Context) -> list[tuple[str, str]]:
    """What each call brought, in the order of the fingerprints: the order of the calls says nothing."""
    results = context.tool_results
    return sorted(
        (call.fingerprint or _raw(call), results[call.id].content)
        for call in context.tool_calls
        if call.id in results
    )


def _raw(call: ToolCall) -> str:
    return fingerprint(call.name, call.arguments)
