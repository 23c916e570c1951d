"""Middleware of model calls that is ready to use: other models, limits, a cache, a second request."""

from treadle.providers.middleware.concurrency_limit import ConcurrencyLimit
from treadle.providers.middleware.fallback import Fallback, is_fallback_error
from treadle.providers.middleware.hedge import Hedge
from treadle.providers.middleware.rate_limit import CountedRequest, RateLimit, RateStore
from treadle.providers.middleware.redis_rates import RedisRates
from treadle.providers.middleware.response_cache import CacheStore, InMemoryCache, ResponseCache
from treadle.providers.middleware.sqlite_cache import SQLiteCache

__all__ = [
    "CacheStore",
    "ConcurrencyLimit",
    "CountedRequest",
    "Fallback",
    "Hedge",
    "InMemoryCache",
    "RateLimit",
    "RateStore",
    "RedisRates",
    "ResponseCache",
    "SQLiteCache",
    "is_fallback_error",
]
