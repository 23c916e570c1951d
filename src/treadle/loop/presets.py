"""Known policies by name. Each function returns options for `Loop`.

``Loop(**presets.runax(), tools=[...])``; ``Loop(**presets.planck(), max_iterations=20)``.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypedDict

from treadle.limits import Limits
from treadle.tools import Dedupe


class Preset(TypedDict, total=False):
    """The options that a policy sets."""

    limits: Limits
    sequential: Literal["defer", "in_step"]
    dedupe: Dedupe
    loop_threshold: int | None
    max_retries: int


def recommended() -> Preset:
    """Limits for a loop that runs unattended; they suit most tasks.

    At a limit the model is asked for a last answer, so that the work is not lost. Tokens that the model does not
    report are estimated, so that the limit holds with any model.
    """
    limits = Limits(
        max_iterations=25,
        max_tool_calls=100,
        max_parallel_calls=8,
        max_total_tokens=1_000_000,
        max_seconds=600,
        on_limit="finish",
        unmeasured="estimate",
    )
    return {
        "limits": limits,
        "sequential": "defer",
        "dedupe": "evidence",
        "loop_threshold": 3,
        "max_retries": 3,
    }


def llmcore() -> Preset:
    """Ten iterations, a circuit breaker, empty responses tolerated.

    It detects neither duplicates nor endless loops, and runs every call of a response.
    """
    return {
        "limits": Limits(max_iterations=10),
        "sequential": "in_step",
        "dedupe": "off",
        "loop_threshold": None,
    }


def orbiter() -> Preset:
    """Ten iterations, retries of the model, and detection of endless loops by the calls.

    It detects no duplicates, and runs every call of a response.
    """
    return {**llmcore(), "loop_threshold": 3, "max_retries": 3}


def planck() -> Preset:
    """A hundred iterations; every call runs, and results have a note from the third identical call on.

    It detects neither duplicates nor endless loops.
    """
    return {**llmcore(), "limits": Limits(max_iterations=100)}


_RUNAX = Limits(max_iterations=3, max_tool_calls=6, max_parallel_calls=3, on_limit="finish")


def runax() -> Preset:
    """Three iterations, six tool calls, duplicates skipped, a last answer at the end."""
    return {"limits": _RUNAX, "sequential": "defer", "dedupe": "strict"}


def runax_project() -> Preset:
    """Three iterations, four tool calls, duplicates skipped, a last answer at the end."""
    return {**runax(), "limits": dataclasses.replace(_RUNAX, max_tool_calls=4)}
