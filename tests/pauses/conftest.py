"""The drivers and the recorded tools of the tests of the loop."""

from tests.loop.conftest import recorded, way

__all__ = ["recorded", "way"]
