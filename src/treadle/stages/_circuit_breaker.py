"""`circuit_breaker`: ends the run when a tool keeps failing in the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from treadle.checks import number
from treadle.context import Context
from treadle.messages import ToolResult
from treadle.pipeline import stage
from treadle.results import CircuitBroken

Streaks = Mapping[str, Sequence[str | int]]
"""For each failing tool its error, and the number of consecutive iterations with that error."""

_NO_STREAKS: Streaks = {}
_NEWS = frozenset({"done", "timeout", "invalid", "broken"})
"""The statuses of results that count as a success or a failure of the tool."""


@stage(requires=("tool_results",), provides=("decision", "error"))
def circuit_breaker(ctx: Context, *, threshold: Annotated[int, number(1)] = 3) -> Context:
    """Stop the run when a tool failed with the same error in several consecutive iterations that called it.

    The count is reset when the tool succeeds or fails with another error, not when other tools succeed.

    Args:
        ctx: the context.
        threshold: the number of iterations.
    """
    if not ctx.tool_calls:
        return ctx
    before: Streaks = ctx.memo.get("circuit_breaker", _NO_STREAKS)
    if not before and not _has_error(ctx.tool_results):
        return ctx
    streaks = _streaks(ctx, before)
    if streaks != before:
        ctx = ctx.remember("circuit_breaker", streaks)
    for tool, (error, count) in streaks.items():
        if int(count) >= threshold and streaks.get(tool) != before.get(tool):
            return ctx.stop(
                CircuitBroken(tool, str(error), int(count), _exception(ctx, tool, error))
            )
    return ctx


def _exception(ctx: Context, tool: str, error: str | int) -> BaseException | None:
    """The exception that a tool raised in this iteration; None if it failed in another way."""
    for call in ctx.tool_calls:
        result = ctx.tool_results.get(call.id)
        if call.name == tool and result is not None and result.content == error:
            return ctx.run.failures.get((ctx.iteration, call.id))
    return None


def _has_error(results: Mapping[str, ToolResult]) -> bool:
    for result in results.values():  # noqa: SIM110 - half the time of `any` for one or two results
        if result.is_error:
            return True
    return False


def _streaks(ctx: Context, before: Streaks) -> Streaks:
    failed: dict[str, str] = {}
    succeeded: set[str] = set()
    for call in ctx.tool_calls:
        result = ctx.tool_results.get(call.id)
        if result is None or result.status not in _NEWS:
            continue
        if result.is_error:
            failed.setdefault(call.name, result.content)
        else:
            succeeded.add(call.name)
    streaks = {name: streak for name, streak in before.items() if name not in succeeded}
    for name, error in failed.items():
        if name not in succeeded:
            last, count = streaks.get(name, (error, 0))
            streaks[name] = [error, int(count) + 1 if last == error else 1]
    return streaks
