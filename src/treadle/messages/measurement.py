"""The measurements of a request to a model: its tokens, its times, and how it ended."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import TypeAlias

from treadle.fast_dataclass import fast_dataclass


@fast_dataclass
class Usage:
    """Tokens, as counted by the provider.

    Args:
        input_tokens: tokens of the prompt, including those that were read from a cache or written to it.
        output_tokens: tokens of the response.
        total_tokens: both; their sum if the provider reported none.
        cached_tokens: tokens of the prompt that were read from the provider's cache.
        reasoning_tokens: tokens of the response that were used for reasoning.
        is_lower_bound: whether at least these tokens were used: a response did not report all of them, or a
            request failed or was cancelled after it was sent.
        cost: US dollars; None if no cost is known.
        is_estimate: whether some tokens were estimated from texts, with ``unmeasured="estimate"``.
        cache_write_tokens: tokens of the prompt that were written to the provider's cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    is_lower_bound: bool = False
    cost: float | None = None
    is_estimate: bool = False
    cache_write_tokens: int = 0

    def __post_init__(self) -> None:
        if not self.total_tokens:
            object.__setattr__(self, "total_tokens", self.input_tokens + self.output_tokens)

    @property
    def is_measured(self) -> bool:
        """Whether the provider counted all tokens: it is neither an estimate nor a lower bound."""
        return not (self.is_lower_bound or self.is_estimate)

    def plus(self, other: Usage | None) -> Usage:
        """The sum. None means unknown usage, not zero; the sum is then a lower bound."""
        if other is None:
            if self.is_lower_bound:
                return self
            other = _UNKNOWN
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.total_tokens + other.total_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.is_lower_bound or other.is_lower_bound,
            self.cost if other.cost is None else other.cost + (self.cost or 0.0),
            self.is_estimate or other.is_estimate,
            self.cache_write_tokens + other.cache_write_tokens,
        )


_UNKNOWN = Usage(is_lower_bound=True)
COUNTS = tuple(spec.name for spec in dataclasses.fields(Usage) if spec.type == "int")
"""The fields of `Usage` that are numbers of tokens."""


class ModelCallStatus(StrEnum):
    """How a request to a model ended. The last two have a response whose tokens the provider did not all count."""

    SUCCESS = "success"
    ERROR = "error"
    CANCELLED = "cancelled"
    USAGE_MISSING = "usage_missing"
    USAGE_ESTIMATED = "usage_estimated"


def usage_status(usage: Usage | None) -> ModelCallStatus:
    """The status of a request that was answered, by its usage."""
    if usage is None or usage.is_lower_bound:
        return ModelCallStatus.USAGE_MISSING
    return ModelCallStatus.USAGE_ESTIMATED if usage.is_estimate else ModelCallStatus.SUCCESS


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


Measured: TypeAlias = tuple[tuple[float, ...] | None, Usage | None, str | None, str | None]
"""The times, the usage, the model and the provider of a response: what a node keeps of it. The response itself
would keep its calls and their arguments alive until the run ends."""


@fast_dataclass
class ModelCall:
    """One request to a model, and what was measured of it.

    Args:
        status: how it ended.
        model: the model that answered; of a failed request, the one that was asked. None if unknown.
        provider: its provider; None if unknown.
        timing: its times; None if they are not known.
        usage: its tokens, with their cost; None if the provider reported none.
        error: the text of the error; None if there is a response.
        error_type: the class of the exception; None if there is none.
    """

    status: ModelCallStatus
    model: str | None = None
    provider: str | None = None
    timing: Timing | None = None
    usage: Usage | None = None
    error: str | None = None
    error_type: str | None = None

    @property
    def cost(self) -> float | None:
        """US dollars; None if unknown."""
        return None if self.usage is None else self.usage.cost

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens per second, see `Timing.tokens_per_second`; None if unknown."""
        return None if self.timing is None else self.timing.tokens_per_second(self.usage)

    @classmethod
    def answered(cls, measured: Measured) -> ModelCall:
        """The request that was answered, from what a node keeps of its response."""
        times, usage, model, provider = measured
        timing = None if times is None else Timing(*times)
        return cls(usage_status(usage), model, provider, timing, usage)
