"""For tests of programs that use treadle: scripted and misbehaving models, the rules of a history, replay."""

from treadle.recording.divergence import Divergence, diff
from treadle.testing.chaos import ChaosLLM, ChaosTools
from treadle.testing.history import InvalidHistoryError, check_history, history_problems
from treadle.testing.replays import DivergedError, fork, fork_sync, replay
from treadle.testing.scripted import ScriptedLLM, ScriptError, SentRequest, call, calls

__all__ = [
    "ChaosLLM",
    "ChaosTools",
    "DivergedError",
    "Divergence",
    "InvalidHistoryError",
    "ScriptError",
    "ScriptedLLM",
    "SentRequest",
    "call",
    "calls",
    "check_history",
    "diff",
    "fork",
    "fork_sync",
    "history_problems",
    "replay",
]
