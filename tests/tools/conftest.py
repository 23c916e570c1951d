"""The drivers that run a loop."""

from tests.loop.conftest import way

__all__ = ["way"]
