"""The model as a callable: how it is called, its requests and streams, and which errors to retry."""

# ruff: noqa: I001 - the aliases of one module stand together
from treadle.model.client import ModelClient as ModelClient
from treadle.model.info import LLMSendFn as LLMSendFn, Model as Model
from treadle.model.registry import add_alias as add_alias, backend as backend, embedder as embedder
from treadle.model.request import (
    ModelMiddleware as ModelMiddleware,
    ModelRequest as ModelRequest,
    SendRequest as SendRequest,
    SharedLimit as SharedLimit,
    StreamInterruptedError as StreamInterruptedError,
    TimedResponse as TimedResponse,
)
from treadle.model.retry import is_retryable as is_retryable
