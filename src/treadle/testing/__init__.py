"""Tools for tests of programs that use treadle: scripted and misbehaving models, and the rules of a history."""

from treadle.testing.chaos import ChaosLLM, ChaosTools
from treadle.testing.history import InvalidHistoryError, check_history, history_problems
from treadle.testing.scripted import ScriptedLLM, ScriptError, Sent, call, calls

__all__ = [
    "ChaosLLM",
    "ChaosTools",
    "InvalidHistoryError",
    "ScriptError",
    "ScriptedLLM",
    "Sent",
    "call",
    "calls",
    "check_history",
    "history_problems",
]
