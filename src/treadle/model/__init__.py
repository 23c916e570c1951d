"""TODO."""

from treadle.model.client import LLMSendFn, ModelClient, ModelRequest
from treadle.model.info import model_info
from treadle.model.retry import BASE_DELAY, MAX_DELAY, delay_before_retry, is_retryable, status_of

__all__ = [
    "BASE_DELAY",
    "MAX_DELAY",
    "LLMSendFn",
    "ModelClient",
    "ModelRequest",
    "delay_before_retry",
    "is_retryable",
    "model_info",
    "status_of",
]
