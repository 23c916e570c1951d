"""A run in which a history is compacted, and the call of a result that was compacted away is recalled."""

from treadle import default_stages, tool
from treadle.sessions import compact_history
from treadle.testing import call, calls

SIZES = {"a": 1_600, "b": 4_800, "c": 1_600}
"""The lengths of the results, in characters; a token has four."""
MAX_TOKENS = 1_900
"""Reached by the three results together, in iteration 4."""


@tool(read_only=True)
def look_up(key: str) -> str:
    """Look something up."""
    return ("canary result " + key).ljust(SIZES[key], ".")


def script(answer="Done."):
    """Look up three things, the first of them once more, and answer."""
    return [*map(calls, look_ups()), answer]


def look_ups():
    """The calls."""
    return [call("look_up", f"c{place}", key=key) for place, key in enumerate("abca")]


def compacting(summarize, **options):
    """The options of a run that compacts the history once, before iteration 4: all except the last result."""
    first = compact_history(summarize, keep_recent=2, **{"max_tokens": MAX_TOKENS, **options})
    return {"tools": [look_up], "stages": [first, *default_stages()]}


def failing(messages):
    """A model that cannot summarise."""
    raise ValueError("canary problem")
