"""Which loops can run as workflows: checked before a run starts, with the reason if one cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.errors import OptionError
from treadle.loop.subagent import Subagent
from treadle.model import SharedLimit

if TYPE_CHECKING:
    from treadle.loop.loop import Loop


def check_loop(loop: Loop[Any], name: str) -> None:
    """Check that the runs of a loop can be workflows.

    Args:
        loop: the loop.
        name: names it in errors.

    Raises:
        OptionError: it has an ``async def`` stage, or an option of a single run or a single process.
    """
    for stage in loop.pipeline.async_stages:
        raise OptionError(
            f"loop {name!r}: stage {stage!r} is an async def, which cannot run in a workflow: what it awaits "
            "would happen again each time the workflow is replayed, and its outcome, a context, is no data that a "
            "history could keep. Make it a generator that yields effects, or do the work in a tool"
        )
    for tool in loop.tools.values():
        if isinstance(tool.steps, Subagent):
            check_loop(tool.steps.loop, f"{name}/{tool.name}")
    of_options = tuple(loop.settings.model_middleware)
    for component in loop.pipeline.components:
        middleware = getattr(component, "options", {}).get("model_middleware", of_options)
        if tuple(middleware) != of_options and any(map(is_limit, middleware)):
            raise OptionError(
                f"loop {name!r}: stage {component.name!r}: model_middleware has a limit of requests that runs "
                "share, for which a workflow cannot wait; make it an option of the loop: activities wait for it"
            )
    settings = loop.settings
    for option, reason in _OF_ONE_PROCESS.items():
        if getattr(settings, option) is not None:
            raise OptionError(f"loop {name!r}: {option}: {reason}")


def is_limit(middleware: object) -> bool:
    """Whether middleware of model calls makes runs wait for each other."""
    return isinstance(middleware, SharedLimit)


_OF_ONE_PROCESS = {
    "locks": "runs on Temporal share no table of locks, since they are on several machines; each run has its own",
    "handle": "a run on Temporal has its own; steer and cancel it through its TemporalRun",
    "journal": "the history of its workflow is the journal of a run on Temporal",
    "state": "a run on Temporal makes its own, and returns it with the result",
}
