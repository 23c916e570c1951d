"""What the model sees of a long history: summaries, cheaper strategies, and what survives both."""

from treadle.sessions.compaction.stage import compact_history
from treadle.sessions.compaction.strategies import (
    Strategy,
    StubResults,
    collapse_repeats,
    drop_superseded,
)

__all__ = ["Strategy", "StubResults", "collapse_repeats", "compact_history", "drop_superseded"]
