"""A tool that looks somewhere, and responses that call it."""

from treadle import tool
from treadle.testing import call, calls


@tool
def look(place: str) -> str:
    """Look somewhere; as many at once as one likes."""
    return f"{place} is empty"


def looks(*places):
    """A response that looks in all places at once."""
    return calls(*(call("look", place, place=place) for place in places))


def each_look(*places):
    """The responses of a script that looks in one place after another."""
    return [calls(call("look", place=place)) for place in places]
