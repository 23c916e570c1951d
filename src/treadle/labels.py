"""The labels of a run's `Call` effects: the kind of each call, for middleware that treats some specially."""

from __future__ import annotations

CHAT = "chat"
"""A request to the model; the key is the number of the iteration."""
EXECUTE_TOOL = "execute_tool"
"""A tool or the resolver; the key is the id of the call."""
STAGE = "stage"
"""An ``async def`` stage, or a callback of a stage; the key is its name."""
STEER = "steer"
"""User messages that arrived through the handle."""
CLAIM_PAUSE = "claim_pause"
"""Whether this run may resume a paused run; the key is the id of the pause."""
KEEP_PAUSE = "keep_pause"
"""The next pause of a run takes the place of the saved one that was resumed; the key is the id of the latter."""
RELEASE_PAUSE = "release_pause"
"""The end of that claim."""
LOAD_SESSION = "load_session"
"""What a run continues; the key is the id of the session."""
SAVE_SESSION = "save_session"
"""A turn that ended is stored; the key is the id of the session."""
VALIDATE = "validate"
"""The check of a call whose arguments are long; the key is the id of the call."""
LOCK = "lock"
"""Whether a key is free."""
BREAKER = "breaker"
"""A question or a report to a shared circuit breaker."""
CANCELLED = "cancelled"
"""Whether a call was cancelled through the handle."""
LIMIT = "limit"
"""A question or a report to a limit of model calls that runs share; the key is that of the limit."""
BUDGET = "budget"
"""Whether the request of a subagent fits within a limit of an outer run; the key is the depth of that run."""
CACHE = "cache"
"""A response cache; the key is the number of the iteration."""
RACE = "race"
"""Whether a response is the first of two; the key is the number of the iteration."""
MEMORY = "memory"
"""What is remembered from earlier conversations; the key is the name of the stage."""
RANDOM = "random"
"""A random number or text."""
STREAMED = "streamed"
"""The text that was streamed before a request failed or was interrupted, and the times of the request."""
JOURNAL = "journal"
"""The journal of the run is opened, written or closed; the key is the id of the run. It has no entry itself."""
LAST_SEQ = "last_seq"
"""The number of the latest event of the run."""
OBSERVE = "observe"
"""An observer of a subagent."""

OF_THE_LOOP = frozenset(
    {
        STEER,
        CLAIM_PAUSE,
        KEEP_PAUSE,
        RELEASE_PAUSE,
        LOAD_SESSION,
        SAVE_SESSION,
        VALIDATE,
        LOCK,
        BREAKER,
        CANCELLED,
        LIMIT,
        BUDGET,
        CACHE,
        RACE,
        MEMORY,
        RANDOM,
        STREAMED,
        JOURNAL,
        LAST_SEQ,
        OBSERVE,
    }
)
"""Calls that the loop makes for itself: they are not worth a span."""
