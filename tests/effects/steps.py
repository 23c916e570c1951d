"""Steps that yield one effect, or a few."""

LONG = 30
"""Seconds that only a test that fails takes."""


def steps_of(effect):
    """Return the outcome of the effect."""
    return (yield effect)


def ended(effect, *last):
    """Return the outcome of the effect; however it ends, yield the last effects."""
    try:
        return (yield effect)
    finally:
        yield from last


def caught(effect):
    """Return what the effect raises; else its outcome."""
    try:
        return (yield effect)
    except Exception as error:
        return error
