"""The cost of responses: by prices that were given, else by those that the package genai-prices lists."""

from __future__ import annotations

import functools
import logging
import math
from types import ModuleType

from treadle.errors import OptionError
from treadle.fast_dataclass import light_dataclass
from treadle.messages import Usage

log = logging.getLogger("treadle.providers")

_LISTED = {
    "anthropic": "anthropic",
    "gcp.gemini": "google",
    "openai": "openai",
    "x_ai": "x-ai",
}
"""What genai-prices calls the providers, by their names in OpenTelemetry's conventions."""
_MILLION = 1_000_000


@light_dataclass(frozen=True)
class Prices:
    """The prices of a model, in US dollars for a million tokens.

    Args:
        input: of tokens of the prompt that no cache has.
        output: of tokens of the response, with those of its reasoning.
        cache_read: of tokens of the prompt that were read from a cache; None means as ``input``.
        cache_write: of tokens of the prompt that were written to a cache; None means as ``input``.

    Raises:
        OptionError: a price is not a number of at least 0.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name, price in vars(self).items():
            is_number = isinstance(price, (int, float)) and not isinstance(price, bool)
            is_price = is_number and math.isfinite(price) and price >= 0
            if not is_price and not (price is None and name.startswith("cache_")):
                raise OptionError(f"Prices: {name}: expected US dollars, at least 0, got {price!r}")

    def cost(self, usage: Usage | None) -> float | None:
        """The cost of the tokens of a response, in US dollars; None if some of them are not known."""
        if usage is None or usage.is_lower_bound:
            return None
        read, written = usage.cached_tokens, usage.cache_write_tokens
        dollars = (
            max(0, usage.input_tokens - read - written) * self.input
            + read * (self.input if self.cache_read is None else self.cache_read)
            + written * (self.input if self.cache_write is None else self.cache_write)
            + usage.output_tokens * self.output
        )
        return dollars / _MILLION


def listed_cost(provider: str, model: str, usage: Usage | None) -> float | None:
    """The cost of a response by the prices that genai-prices lists, which come with the package.

    Cache writes are priced as those that are kept for the shortest time, and all tokens as text of the standard
    service tier.

    Args:
        provider: the provider, as OpenTelemetry's conventions name it.
        model: the model, as the provider names it.
        usage: the tokens of the response.

    Returns:
        US dollars; None if some tokens are not known, genai-prices is not installed, or does not list the model.
    """
    listed, package = _LISTED.get(provider), _genai_prices()
    if usage is None or usage.is_lower_bound or listed is None or package is None:
        return None
    tokens = package.Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    try:
        found = package.calc_price(tokens, model.removeprefix("models/"), provider_id=listed)
    except (LookupError, ValueError) as error:  # ValueError: more cached tokens than tokens
        _log_unknown(listed, model, str(error))
        return None
    prices = found.model_price
    if (
        prices.input_mtok is None or prices.output_mtok is None
    ):  # such as those of a model that makes images
        _log_unknown(listed, model, "it is not priced by tokens")
        return None
    return float(found.total_price)


@functools.cache
def _genai_prices() -> ModuleType | None:
    """The package genai-prices; None if it is not installed."""
    try:
        import genai_prices  # noqa: PLC0415 - slow to import
    except ImportError:
        log.debug(
            "genai-prices is not installed, so costs are unknown: pip install 'treadle[prices]'"
        )
        return None
    return genai_prices


@functools.lru_cache(maxsize=1024)
def _log_unknown(provider: str, model: str, why: str) -> None:
    """Log once that the cost of a model is not known."""
    log.debug("the cost of %s:%s is unknown: %s", provider, model, why)
