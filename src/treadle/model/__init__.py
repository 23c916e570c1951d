"""The model as a callable: how it is called, its requests and streams, and which errors to retry."""

# ruff: noqa: I001 - the aliases of one module stand together
from treadle.model.client import ModelClient as ModelClient, check_no_tools as check_no_tools
from treadle.model.info import (
    LLMSendFn as LLMSendFn,
    Model as Model,
    ModelInfo as ModelInfo,
    host_of as host_of,
    model_info as model_info,
)
from treadle.model.registry import (
    Embedder as Embedder,
    Provider as Provider,
    add_alias as add_alias,
    aliases as aliases,
    backend as backend,
    check_model as check_model,
    embedder as embedder,
    named_model as named_model,
    providers as providers,
)
from treadle.model.request import (
    EventsOf as EventsOf,
    ModelMiddleware as ModelMiddleware,
    ModelRequest as ModelRequest,
    SendRequest as SendRequest,
    SharedLimit as SharedLimit,
    StreamInterruptedError as StreamInterruptedError,
    TimedResponse as TimedResponse,
    through as through,
    with_cost as with_cost,
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
