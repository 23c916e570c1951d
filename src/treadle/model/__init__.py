"""The model as a callable: how it is called, its requests and streams, and which errors to retry."""

from treadle.model.client import EventsOf, LLMSendFn, ModelClient, ModelRequest, check_model
from treadle.model.info import ModelInfo, model_info
from treadle.model.retry import BASE_DELAY, delay_before_retry, doubled, is_retryable, status_of

__all__ = [
    "BASE_DELAY",
    "EventsOf",
    "LLMSendFn",
    "ModelClient",
    "ModelInfo",
    "ModelRequest",
    "check_model",
    "delay_before_retry",
    "doubled",
    "is_retryable",
    "model_info",
    "status_of",
]
