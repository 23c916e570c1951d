"""OpenAI's Responses API, through the official SDK."""

from treadle.providers.openai_responses.model import PROVIDER, ResponsesModel

__all__ = ["PROVIDER", "ResponsesModel"]
