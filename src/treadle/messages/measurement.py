"""What is measured of a model call: its times, and how it ended."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from treadle.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from treadle.messages.response import Usage


class ModelCallStatus(StrEnum):
    """How a request to a model ended. The last two have a response whose tokens the provider did not all count."""

    SUCCESS = "success"
    ERROR = "error"
    CANCELLED = "cancelled"
    USAGE_MISSING = "usage_missing"
    USAGE_ESTIMATED = "usage_estimated"


@fast_dataclass
class Timing:
    """The times of one request to a model, in seconds since the epoch. A retry is another request.

    Args:
        started: when it was sent.
        ended: when its response was complete, or it failed.
        first_chunk: when the first piece of its response arrived; None if it was not streamed, or none arrived.
    """

    started: float
    ended: float
    first_chunk: float | None = None

    @property
    def duration(self) -> float:
        """Seconds from start to end."""
        return self.ended - self.started

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds from the start to the first piece of a streamed response; None if there was none."""
        return None if self.first_chunk is None else self.first_chunk - self.started

    def tokens_per_second(self, usage: Usage | None) -> float | None:
        """Output tokens per second: of a stream from its first piece on, of a whole response from the start on.

        Args:
            usage: the tokens of the response.

        Returns:
            None if the tokens are not known, or no time passed.
        """
        if usage is None or usage.is_lower_bound:
            return None
        begun = self.started if self.first_chunk is None else self.first_chunk
        seconds = self.ended - begun
        return usage.output_tokens / seconds if seconds > 0 else None
