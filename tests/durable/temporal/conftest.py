"""The fixtures of these tests."""

from .servers import temporal_server

__all__ = ["temporal_server"]
