"""The ways to run a loop, as in the tests of the middleware that is ready to use."""

from tests.providers.middleware.conftest import driven, way

__all__ = ["driven", "way"]
