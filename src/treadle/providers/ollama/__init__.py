"""Ollama, through its native interface and its official SDK."""

from treadle.providers.ollama.model import PROVIDER, OllamaEmbedder, OllamaModel

__all__ = ["PROVIDER", "OllamaEmbedder", "OllamaModel"]
