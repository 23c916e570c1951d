"""Tools and an error that the tests of several folders use."""

from treadle import tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def double(n: int):
    """Double a number."""
    return n * 2


class OverloadedError(Exception):
    """What a server under load answers; a retry may help."""

    status_code = 503
