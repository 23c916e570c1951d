"""For tests of what is built on treadle: a scripted model, and the invariants of a history."""

from treadle.testing.history import InvalidHistoryError, check_history, history_problems
from treadle.testing.scripted import ScriptedLLM, ScriptError, Sent, call, calls

__all__ = [
    "InvalidHistoryError",
    "ScriptError",
    "ScriptedLLM",
    "Sent",
    "call",
    "calls",
    "check_history",
    "history_problems",
]
