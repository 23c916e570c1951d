"""The model as a callable: how it is called, its requests and streams, and which errors to retry."""

from treadle.model.client import EventsOf, LLMSendFn, Model, ModelClient, ModelRequest, check_model
from treadle.model.info import ModelInfo, model_info
from treadle.model.middleware import (
    Answer,
    ModelMiddleware,
    SendRequest,
    StreamInterruptedError,
    through,
)
from treadle.model.registry import (
    Embedder,
    Provider,
    add_alias,
    aliases,
    backend,
    embedder,
    find_provider,
    install_of,
    named_model,
    providers,
)
from treadle.model.retry import BASE_DELAY, delay_before_retry, doubled, is_retryable, status_of

__all__ = [
    "BASE_DELAY",
    "Answer",
    "Embedder",
    "EventsOf",
    "LLMSendFn",
    "Model",
    "ModelClient",
    "ModelInfo",
    "ModelMiddleware",
    "ModelRequest",
    "Provider",
    "SendRequest",
    "StreamInterruptedError",
    "add_alias",
    "aliases",
    "backend",
    "check_model",
    "delay_before_retry",
    "doubled",
    "embedder",
    "find_provider",
    "install_of",
    "is_retryable",
    "model_info",
    "named_model",
    "providers",
    "status_of",
    "through",
]
