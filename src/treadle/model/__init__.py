"""The model as a callable: how it is called, its requests and streams, and which errors to retry."""

import importlib
from typing import TYPE_CHECKING

from treadle.model.client import (
    EventsOf,
    ModelClient,
    ModelRequest,
    ReportSwitch,
    check_no_tools,
)
from treadle.model.cost import with_cost
from treadle.model.info import LLMSendFn, Model, ModelInfo, host_of, model_info
from treadle.model.middleware.composition import (
    ModelMiddleware,
    SendRequest,
    StreamInterruptedError,
    TimedResponse,
    through,
)
from treadle.model.registry import (
    Embedder,
    Provider,
    add_alias,
    aliases,
    backend,
    check_model,
    embedder,
    find_provider,
    install_of,
    named_model,
    providers,
)
from treadle.model.retry import (
    BASE_DELAY,
    MAX_ASKED_DELAY,
    delay_before_retry,
    doubled,
    is_retryable,
    retry_after,
    status_of,
)

if TYPE_CHECKING:
    from treadle.model.middleware.concurrency_limit import ConcurrencyLimit
    from treadle.model.middleware.fallback import Fallback, is_fallback_error
    from treadle.model.middleware.hedge import Hedge
    from treadle.model.middleware.memory_cache import InMemoryCache
    from treadle.model.middleware.rate_limit import RateLimit, RateStore, SentRequest
    from treadle.model.middleware.redis_rates import RedisRates
    from treadle.model.middleware.response_cache import CacheStore, ResponseCache
    from treadle.model.middleware.sqlite_cache import SQLiteCache
else:
    _LAZY = {
        "ConcurrencyLimit": "concurrency_limit",
        **dict.fromkeys(("Fallback", "is_fallback_error"), "fallback"),
        "Hedge": "hedge",
        "InMemoryCache": "memory_cache",
        **dict.fromkeys(("RateLimit", "RateStore", "SentRequest"), "rate_limit"),
        "RedisRates": "redis_rates",
        **dict.fromkeys(("CacheStore", "ResponseCache"), "response_cache"),
        "SQLiteCache": "sqlite_cache",
    }
    """Names that few programs use, each with the module of its middleware."""

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.middleware.{_LAZY[name]}")
        value = globals()[name] = getattr(module, name)
        return value


__all__ = [
    "BASE_DELAY",
    "MAX_ASKED_DELAY",
    "CacheStore",
    "ConcurrencyLimit",
    "Embedder",
    "EventsOf",
    "Fallback",
    "Hedge",
    "InMemoryCache",
    "LLMSendFn",
    "Model",
    "ModelClient",
    "ModelInfo",
    "ModelMiddleware",
    "ModelRequest",
    "Provider",
    "RateLimit",
    "RateStore",
    "RedisRates",
    "ReportSwitch",
    "ResponseCache",
    "SQLiteCache",
    "SendRequest",
    "SentRequest",
    "StreamInterruptedError",
    "TimedResponse",
    "add_alias",
    "aliases",
    "backend",
    "check_model",
    "check_no_tools",
    "delay_before_retry",
    "doubled",
    "embedder",
    "find_provider",
    "host_of",
    "install_of",
    "is_fallback_error",
    "is_retryable",
    "model_info",
    "named_model",
    "providers",
    "retry_after",
    "status_of",
    "through",
    "with_cost",
]
