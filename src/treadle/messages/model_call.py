"""`ModelCall`: one request to a model, as it is kept in the state of a run."""

from __future__ import annotations

from typing import TypeAlias

from treadle.fast_dataclass import fast_dataclass
from treadle.messages.measurement import ModelCallStatus, Timing
from treadle.messages.response import Usage, usage_status

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
        """As `Response.tokens_per_second`."""
        return None if self.timing is None else self.timing.tokens_per_second(self.usage)

    @classmethod
    def answered(cls, measured: Measured) -> ModelCall:
        """The request that was answered, from what a node keeps of its response."""
        times, usage, model, provider = measured
        timing = None if times is None else Timing(*times)
        return cls(usage_status(usage), model, provider, timing, usage)
