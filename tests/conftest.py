"""What holds for all tests."""

from hypothesis import settings

# The same examples every time: a failure in CI is one that can be looked at, and nothing fails by chance.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
