"""Known policies by name. Each function returns options for `Loop`.

``Loop(**presets.runax(), tools=[...])``; ``Loop(**presets.planck()).with_options(max_iterations=20)``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, TypedDict

from treadle.errors import OptionError
from treadle.limits import Unmeasured
from treadle.tools import Dedupe


class Preset(TypedDict, total=False):
    """The options that a policy sets; see `treadle.loop.options.Settings`."""

    max_iterations: int
    max_tool_calls: int | None
    max_parallel_calls: int
    max_total_tokens: int | None
    max_seconds: float | None
    on_limit: Literal["stop", "finish"]
    unmeasured: Unmeasured
    sequential: Literal["defer", "in_step"]
    dedupe: Dedupe
    loop_threshold: int | None
    breaker_threshold: int
    max_blank_stops: int
    max_retries: int


def _preset(make: Callable[[], Preset]) -> Callable[[], Preset]:
    """Make the error about an argument say where options belong."""

    @functools.wraps(make)
    def made(*arguments: Any, **options: Any) -> Preset:
        if arguments or options:
            raise OptionError(
                f"{make.__name__}: a preset takes no options; change those of a loop: "
                f"Loop(**presets.{make.__name__}()).with_options(...)"
            )
        return make()

    return made


@_preset
def recommended() -> Preset:
    """Limits for a loop that runs unattended; they suit most tasks.

    At a limit the model is asked for a last answer, so that the work is not lost. Tokens that the model does not
    report are estimated, so that the limit holds with any model.
    """
    return {
        "max_iterations": 25,
        "max_tool_calls": 100,
        "max_parallel_calls": 8,
        "max_total_tokens": 1_000_000,
        "max_seconds": 600,
        "on_limit": "finish",
        "unmeasured": "estimate",
        "sequential": "defer",
        "dedupe": "evidence",
        "loop_threshold": 3,
        "breaker_threshold": 3,
        "max_blank_stops": 3,
        "max_retries": 3,
    }


@_preset
def llmcore() -> Preset:
    """LlmCore's agent loop: ten iterations, a circuit breaker, blank stops tolerated.

    It detects neither duplicates nor endless loops, and runs every call of a response.
    """
    return {
        "max_iterations": 10,  # LlmCore: max_iterations
        "on_limit": "stop",  # LlmCore: max_iterations_reached
        "sequential": "in_step",
        "dedupe": "off",
        "loop_threshold": None,
        "breaker_threshold": 3,  # LlmCore: the same error in three consecutive iterations
        "max_blank_stops": 3,  # LlmCore: max_blank_stops
    }


@_preset
def orbiter() -> Preset:
    """Orbiter's call runner: retries of the model, and detection of endless loops by the calls.

    Its limit of steps is not part of the call runner; ten is our choice.
    """
    return {
        "max_iterations": 10,
        "on_limit": "stop",  # treadle reports it; Orbiter returns the last output
        "sequential": "in_step",
        "dedupe": "off",
        "loop_threshold": 3,  # Orbiter: loop_threshold
        "max_retries": 3,  # Orbiter: max_retries
    }


@_preset
def planck() -> Preset:
    """Planck's tool runner: every call runs, and results have a note from the third identical call on.

    It has no limit of iterations. A loop of treadle always has one; a hundred is our choice.
    """
    return {
        "max_iterations": 100,
        "sequential": "in_step",
        "dedupe": "off",
        "loop_threshold": None,
    }


@_preset
def runax() -> Preset:
    """RunaxAI's strict policy: few steps, few calls, duplicates skipped, a last answer at the end."""
    return {
        "max_iterations": 3,  # RunaxAI: reasoning steps
        "max_tool_calls": 6,  # RunaxAI: tool calls in all
        "max_parallel_calls": 3,  # RunaxAI: calls in parallel in one step
        "on_limit": "finish",
        "sequential": "defer",
        "dedupe": "strict",  # RunaxAI: the first repetition
    }


@_preset
def runax_project() -> Preset:
    """RunaxAI's policy for projects: the strict one, with four tool calls."""
    return {**runax(), "max_tool_calls": 4}  # RunaxAI: three steps and four calls
