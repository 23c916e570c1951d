"""Google's Gemini API, through the official SDK."""

from treadle.providers.gemini.client import GeminiEmbedder
from treadle.providers.gemini.model import PROVIDER, GeminiModel

__all__ = ["PROVIDER", "GeminiEmbedder", "GeminiModel"]
