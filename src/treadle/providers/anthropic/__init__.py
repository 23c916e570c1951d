"""Anthropic's Messages API, through the official SDK."""

from treadle.providers.anthropic.model import PROVIDER, AnthropicModel

__all__ = ["PROVIDER", "AnthropicModel"]
