"""The labels of a run's calls: what sort of call each is, for middleware that treat some of them specially."""

from __future__ import annotations

CHAT = "chat"
"""A request to the model."""
CHUNK = "chunk"
"""The next piece of a streamed answer."""
CLOSE = "close"
"""The end of a streamed answer that is not read to its end."""
EXECUTE_TOOL = "execute_tool"
"""A tool, or the resolver; the key is the id of the call."""
STEER = "steer"
"""What the user said meanwhile."""
CLAIM = "claim"
"""Whether a pause may be resumed."""
LOCK = "lock"
"""Whether a key is free."""
BREAKER = "breaker"
"""What a shared circuit breaker says, or is told."""
CANCELLED = "cancelled"
"""Whether somebody stopped a call."""
RANDOM = "random"
"""A number that nobody can foresee."""
OBSERVE = "observe"
"""An observer of a run within another."""

OF_THE_MODEL = frozenset({CHAT, CHUNK, CLOSE})
OF_THE_LOOP = frozenset({STEER, CLAIM, LOCK, BREAKER, CANCELLED, RANDOM, OBSERVE})
"""Calls that the loop makes for itself: nothing of them is worth a trace."""
