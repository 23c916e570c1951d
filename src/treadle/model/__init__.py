"""The model as a callable: how it is called, its requests and streams, and which errors to retry."""

# ruff: noqa: I001 - the aliases of one module stand together
import importlib
from typing import TYPE_CHECKING

from treadle.model.client import (
    EventsOf as EventsOf,
    ModelClient as ModelClient,
    ModelRequest as ModelRequest,
    check_no_tools as check_no_tools,
)
from treadle.model.cost import with_cost as with_cost
from treadle.model.info import (
    LLMSendFn as LLMSendFn,
    Model as Model,
    ModelInfo as ModelInfo,
    host_of as host_of,
    model_info as model_info,
)
from treadle.model.middleware.composition import (
    ModelMiddleware as ModelMiddleware,
    SendRequest as SendRequest,
    StreamInterruptedError as StreamInterruptedError,
    TimedResponse as TimedResponse,
    through as through,
)
from treadle.model.registry import (
    Embedder as Embedder,
    Provider as Provider,
    add_alias as add_alias,
    aliases as aliases,
    backend as backend,
    check_model as check_model,
    embedder as embedder,
    find_provider as find_provider,
    named_model as named_model,
    providers as providers,
)
from treadle.model.retry import (
    BASE_DELAY as BASE_DELAY,
    MAX_ASKED_DELAY as MAX_ASKED_DELAY,
    delay_before_retry as delay_before_retry,
    doubled as doubled,
    is_retryable as is_retryable,
    retry_after as retry_after,
    status_of as status_of,
)

if TYPE_CHECKING:
    from treadle.model.middleware.concurrency_limit import ConcurrencyLimit as ConcurrencyLimit
    from treadle.model.middleware.fallback import (
        Fallback as Fallback,
        is_fallback_error as is_fallback_error,
    )
    from treadle.model.middleware.hedge import Hedge as Hedge
    from treadle.model.middleware.rate_limit import (
        RateLimit as RateLimit,
        RateStore as RateStore,
        SentRequest as SentRequest,
    )
    from treadle.model.middleware.redis_rates import RedisRates as RedisRates
    from treadle.model.middleware.response_cache import (
        CacheStore as CacheStore,
        InMemoryCache as InMemoryCache,
        ResponseCache as ResponseCache,
    )
    from treadle.model.middleware.sqlite_cache import SQLiteCache as SQLiteCache
else:
    _LAZY = {
        "ConcurrencyLimit": "concurrency_limit",
        **dict.fromkeys(("Fallback", "is_fallback_error"), "fallback"),
        "Hedge": "hedge",
        **dict.fromkeys(("RateLimit", "RateStore", "SentRequest"), "rate_limit"),
        "RedisRates": "redis_rates",
        **dict.fromkeys(("CacheStore", "InMemoryCache", "ResponseCache"), "response_cache"),
        "SQLiteCache": "sqlite_cache",
    }
    """Names that few programs use, each with the module of its middleware."""

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.middleware.{_LAZY[name]}")
        value = globals()[name] = getattr(module, name)
        return value
