"""Runs that end with a last answer, after one iteration."""

from treadle import Limits, Loop, tool
from treadle.loop.run import GUIDANCE
from treadle.testing import ScriptedLLM, call, calls

from .notes import note

GUIDED = GUIDANCE.format(reason="no answer within max_iterations=1", how="")
FIRST = calls(call("note", "a", n=1))


@tool
def fail(n: int = 0):
    raise ValueError("no")


def finished(way, *script, **options):
    """Run with a limit of one iteration; return the result and the model."""
    options = {
        "tools": [note, fail],
        "max_iterations": 1,
        "limits": Limits(on_limit="finish"),
        **options,
    }
    with ScriptedLLM(FIRST, *script) as model:
        return way.run(Loop(**options), model), model
